"""Reads run directories: the events of a job's attempts."""

from __future__ import annotations

from pathlib import Path

from slurmray.errors import UsageError
from slurmray.slurm.host import HERE, Host
from slurmray.slurm.states import Event, parse_events


def events_of_last_attempt(runs: Path, number: int | str, host: Host = HERE) -> list[Event]:
    """Return the events of a job's last attempt; [] if there are none. UsageError if they cannot be read.

    runs: the folder of run directories. number: SLURM_JOB_ID.
    """
    return events_in(runs / f"{number}-{last_attempt(runs, number, host)}", host)


def last_attempts(runs: Path, host: Host = HERE) -> dict[str, int]:
    """Return {job id: number of its last attempt} of the run directories in a folder."""
    found: dict[str, int] = {}
    for name in host.names(runs):
        job, _, attempt = name.partition("-")
        if attempt.isdecimal():
            found[job] = max(int(attempt), found.get(job, 0))
    return found


def last_attempt(runs: Path, number: int | str, host: Host = HERE) -> int:
    """Return the number of a job's last attempt that has a run directory; 0 if none has."""
    return last_attempts(runs, host).get(str(number), 0)


def events_in(run: Path, host: Host = HERE) -> list[Event]:
    """Return the events in a run directory; [] if it has none. UsageError if they cannot be read."""
    path = run / "events.jsonl"
    try:
        return parse_events(host.read(path).decode(errors="replace"))
    except FileNotFoundError:
        return []
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}") from None
