"""The jobs that this user has submitted with slurmray: a line of JSON for each, in one file."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from slurmray import files
from slurmray.errors import UsageError
from slurmray.sweeps import is_sweep


class Run(NamedTuple):
    """A submitted job."""

    id: int
    name: str
    cluster: str | None
    folder: str  # in which it was submitted
    run_dir: str
    submitted: float  # seconds since 1970
    nodes: int  # of the whole job, like gpus
    gpus: int
    host: str | None = None  # with Slurm and the folder, as for ssh; None is this one
    sweep: Mapping[str, Sequence[str]] | None = None  # parameters with their values; None without a sweep


def path() -> Path:
    """The file: runs.jsonl in $XDG_STATE_HOME/slurmray, by default ~/.local/state/slurmray."""
    state = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
    return Path(state).expanduser() / "slurmray/runs.jsonl"


def remember(run: Run) -> None:
    """Add a job. OSError if the file cannot be written."""
    _append(run._asdict())


def _append(fields: dict[str, Any]) -> None:
    file = path()
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(descriptor, f"{json.dumps(fields)}\n".encode())  # one write: lines do not mix
    finally:
        os.close(descriptor)


def remember_cancel(
    number: int, task: int | None, cluster: str | None, host: str | None, when: float
) -> None:
    """Note that this user has cancelled a job. when: seconds since 1970. OSError as for `remember`.

    task: SLURM_ARRAY_TASK_ID; None: the job, or all tasks.
    """
    _append({"cancelled": number, "task": task, "cluster": cluster, "host": host, "time": when})


def cancelled_at(number: int, task: int | None, cluster: str | None, host: str | None) -> float | None:
    """Return when this user cancelled a job with slurmray, in seconds since 1970; None: not, or not here.

    task: as for `remember_cancel`.
    """
    for line in reversed(_lines()):
        try:
            record = json.loads(line)
            if (record["cluster"], record["host"]) != (cluster, host):
                continue
            is_meant = record.get("cancelled") == number and record.get("task") in (None, task)
            if is_meant and 0 <= record["time"] < 2**37:  # not for NaN
                return float(record["time"])
            if record.get("id") == number:  # a number that Slurm has used again
                return None
        except (ValueError, TypeError, KeyError, RecursionError):
            continue
    return None


def runs() -> list[Run]:
    """Return the jobs, newest first. Lines that are not of this version are left out."""
    jobs = []
    for line in reversed(_lines()):
        try:
            fields = {name: _escape(value) for name, value in dict(json.loads(line)).items()}
            run = Run(**fields)
        except (ValueError, TypeError, RecursionError):
            continue
        if _is_sound(run):
            jobs.append(run)
    return jobs


def _escape(value: Any) -> Any:
    """Replace what no path and no argument can have: surrogates that stand for no byte (PEP 383)."""
    if not isinstance(value, str):
        return value
    return re.sub("[\ud800-\udc7f\udd00-\udfff]", lambda match: rf"\u{ord(match[0]):x}", value)


def _lines() -> list[str]:
    try:
        return files.read(path()).decode(errors="replace").split("\n")
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise UsageError(f"{path()}: cannot be read: {error.strerror}") from None


def _is_sound(run: Run) -> bool:
    """Whether each field has its type, and `host` is no option of ssh."""
    names = (run.name, run.folder, run.run_dir, run.cluster or "", run.host or "")
    numbers = (run.id, run.nodes, run.gpus)
    return (
        all(isinstance(name, str) and "\0" not in name for name in names)
        and all(type(number) is int and 0 <= number < 2**32 for number in numbers)
        and type(run.submitted) in (int, float)
        and 0 <= run.submitted < 2**37
        and not (run.host or "").startswith("-")
        and (run.sweep is None or is_sweep(run.sweep))
    )


def find(wanted: str | None) -> Run | None:
    """Return the newest job with an id or name; None: the newest of all. UsageError if there is none.

    None for an id that is not remembered: it may be a job of sbatch.
    """
    known = runs()
    if wanted is None:
        if not known:
            raise UsageError("no job was submitted with slurmray submit yet; give the job's id")
        return known[0]
    is_id = re.fullmatch("[0-9]{1,10}", wanted)  # Slurm's ids have 32 bits
    for run in known:
        if wanted == (str(run.id) if is_id else run.name):
            return run
    if is_id and int(wanted):
        return None
    names = list(dict.fromkeys(run.name for run in known))[:5]
    hint = f"known are {', '.join(names)}" if names else "give its id"
    if wanted.endswith((".yaml", ".yml")):
        hint = "give its id or its name, not the file of its job spec"
    raise UsageError(f"no job named {wanted[:100]!r} was submitted with slurmray submit; {hint}")


def last_run(name: str, folder: str, host: str | None) -> Run | None:
    """Return the newest job with a name that was submitted from a folder; None if there is none."""
    return next((run for run in runs() if (run.name, run.folder, run.host) == (name, folder, host)), None)
