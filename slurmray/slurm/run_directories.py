"""Reads run directories: the events of a job's attempts."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from slurmray.agent import paths
from slurmray.errors import SlurmError, UsageError
from slurmray.files import MAX_INPUT
from slurmray.slurm import slurm_commands
from slurmray.slurm.host import HERE, Host
from slurmray.slurm.states import Event, parse_events


def expand(run_dir: str, number: int, host: Host = HERE, variables: Mapping[str, str] | None = None) -> str:
    """Return run_dir of a job spec with its variables expanded, as sbatch passes them to the job from a host.

    As it is, if one of them is not set there. number: SLURM_JOB_ID. variables: added to those of the host.
    """
    if "$" not in run_dir:
        return run_dir
    try:
        printed = slurm_commands.call(["env", "-0"], host=host, variables=variables).stdout
        environment = dict(line.split("=", 1) for line in printed.split("\0") if "=" in line)
        return paths.expand(run_dir, {**environment, "SLURM_JOB_ID": str(number)})
    except (SlurmError, paths.UnsetError):
        return run_dir


def attempts(runs: Path, job: str, host: Host = HERE) -> list[int]:
    """Return the numbers of a job's attempts that have a run directory, in their order.

    runs: the folder of run directories. job: its id, or ARRAY_TASK.
    """
    return [attempt for name, attempt in _attempts(runs, host) if name == job]


def directories(runs: Path, number: int, host: Host = HERE) -> list[str]:
    """Return the names of the run directories of a job, or of the tasks of an array."""
    own = re.compile(f"{number}(_[0-9]+)?")
    return [f"{name}-{attempt}" for name, attempt in _attempts(runs, host) if own.fullmatch(name)]


def renamed_directories(runs: Path, number: int, host: Host = HERE) -> list[str]:
    """Return the names of run directories that a later job with the same id has renamed: of ended jobs."""
    pattern = re.compile(rf"{number}(_[0-9]+)?-[0-9]+\.[0-9]{{8}}-[0-9]{{6}}")
    return [name for name in host.names(runs) if pattern.fullmatch(name)]


def last_attempt(runs: Path, job: str, host: Host = HERE) -> int:
    """Return the number of a job's last attempt that has a run directory; 0 if none has."""
    return max(attempts(runs, job, host), default=0)


def last_attempts(runs: Path, host: Host = HERE) -> dict[str, int]:
    """Return {job id or ARRAY_TASK: number of its last attempt} of the run directories in a folder."""
    return dict(_attempts(runs, host))


def _attempts(runs: Path, host: Host) -> list[tuple[str, int]]:
    """Job id, or ARRAY_TASK, and number of each attempt that has a run directory, in their order."""
    matches = (re.fullmatch("([^-]*)-([0-9]{1,6})", name) for name in host.names(runs))
    return sorted((match[1], int(match[2])) for match in matches if match)


def read_events(run: Path, host: Host = HERE) -> list[Event]:
    """Return the events in a run directory; [] if it has none. UsageError if they cannot be read."""
    path = run / "events.jsonl"
    try:
        return parse_events(host.read(path, limit=MAX_INPUT).decode(errors="replace"))
    except FileNotFoundError:
        return []
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}") from None
