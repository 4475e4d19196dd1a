"""The tasks of an array: what Slurm, its accounting and the run directories know of each."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from slurmray.diagnosis import pending
from slurmray.slurm import slurm_commands, syntax
from slurmray.slurm.host import Host
from slurmray.slurm.run_directories import last_attempts
from slurmray.slurm.states import Event, parse_events, recorded_end
from slurmray.sweeps import MAX_TASKS


def list_tasks(
    array: int, cluster: str | None, host: Host, runs: Path, total: int
) -> Iterator[tuple[int, str, str, str]]:
    """Yield number, state, reason and text of each task of an array, by their numbers: see Task.

    array: its id. runs: the folder of their run directories. total: tasks of the sweep, if the array has all
    of them; else 0.
    """
    queued = _queue(array, cluster, host)
    events = _read_events(array, host, runs)
    names = {f"{array}_{number}" for number in range(total)}
    accounted = _account(array, cluster, host) if not queued or names - queued.keys() else {}
    numbers = sorted(int(name.partition("_")[2]) for name in {*names, *queued, *events, *accounted})
    for number in numbers:
        name = f"{array}_{number}"
        known, recorded = queued.get(name), events.get(name, [])
        end = recorded_end(recorded)
        state = known.state if known else accounted.get(name, end.state if end else "UNKNOWN")
        reason = pending.explain(known.state, known.reason, known.dependency) if known else ""
        last = next((event["text"] for event in reversed(recorded) if event["event"] == "end"), "")
        yield number, state, reason, last


def _queue(array: int, cluster: str | None, host: Host) -> dict[str, slurm_commands.Queued]:
    """The tasks that Slurm knows."""
    queued: dict[str, slurm_commands.Queued] = {}
    for names, known in slurm_commands.squeue(host, cluster, array).items():
        with suppress(ValueError):
            queued |= dict.fromkeys(expand_tasks(array, names), known)
    return queued


def expand_tasks(number: int, names: str) -> list[str]:
    """Return the tasks of an array that a name of squeue has: those that never started may be `1234_[3-5%2]`.

    number: the array's id. ValueError if squeue has cut the name off.
    """
    listed = syntax.expand_host_list(re.sub("%[0-9]+]", "]", names), MAX_TASKS)
    return [name for name in listed if re.fullmatch(f"{number}_[0-9]{{1,7}}", name)]


def _read_events(array: int, host: Host, runs: Path) -> dict[str, list[Event]]:
    """The events of the last attempt of each task that has a run directory."""
    own = re.compile(f"{array}_[0-9]{{1,7}}")
    attempts = {name: last for name, last in last_attempts(runs, host).items() if own.fullmatch(name)}
    paths = {name: runs / f"{name}-{last}" / "events.jsonl" for name, last in attempts.items()}
    texts = host.read_all([*paths.values()])
    return {name: parse_events(texts.get(path, b"").decode(errors="replace")) for name, path in paths.items()}


def _account(array: int, cluster: str | None, host: Host) -> dict[str, str]:
    """The states of the tasks that have ended, from the accounting."""
    option = slurm_commands.cluster_option(cluster)
    output = slurm_commands.sacct("JobID,State", *option, f"--jobs={array}", host=host)
    return dict(re.findall(rf"^({array}_[0-9]{{1,7}})\|([A-Z_]+)", output, re.MULTILINE))
