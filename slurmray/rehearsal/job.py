"""One job of a rehearsal: submitted, followed while it runs, reported on."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import click

from slurmray.errors import RehearsalError
from slurmray.rehearsal.cluster.directives import Wanted
from slurmray.rehearsal.cluster.lab import Lab
from slurmray.slurm.states import FINAL

# What belongs to a job or to a daemon around us, and would be wrong on the hosts.
_OTHERS = (
    "CONTAINERS_",
    "CONTAINER_HOST",
    "DBUS_",
    "DOCKER_",
    "SBATCH_",
    "SLURM",
    "SRUN_",
    "TMPDIR",
    "XDG_RUN",
)
_SILENCE = 30  # seconds without a word of slurmctld
_PENDING = 20  # seconds; nothing else runs there, so a job that waits longer waits for ever
_RESTART = 150  # seconds; before it starts a job anew, Slurm waits until its old credential is void
_CLEAN = 15  # seconds that the hosts get to end what they are ending


def submit(lab: Lab, script: str, wanted: Wanted) -> int:
    """Submit the script, byte for byte, with the caller's environment, and return the job's id."""
    for name in wanted.reservations:
        words = ["Nodes=ALL", "Users=root", "StartTime=now", "Duration=infinite"]
        lab.run(["scontrol", "create", "reservation", f"ReservationName={name}", *words])
    env = {name: value for name, value in os.environ.items() if not name.startswith(_OTHERS)}
    job = lab.sbatch("", user=None, args=wanted.overrule, text=script, env=env)
    if wanted.held:
        lab.run(["scontrol", "release", str(job)])
    return job


def follow(lab: Lab, job: int, write: Callable[[bytes], object]) -> dict[str, str]:
    """Write what the job logs, as it grows, until the job has ended; return its last `scontrol show job`.

    RehearsalError when Slurm does not start it.
    """
    begun = heard = time.monotonic()
    read: dict[str, int] = {}
    while True:
        about = lab.job(job)
        state = about.get("JobState", "")
        heard = time.monotonic() if state else heard
        if time.monotonic() - heard > _SILENCE:
            raise RehearsalError("slurmctld does not answer any more")
        for path in dict.fromkeys((about.get("StdOut", ""), about.get("StdErr", ""))):
            host = about.get("BatchHost", "")
            if path and host in lab.pids:
                read[path] = _copy(Path(f"/proc/{lab.pids[host]}/root{path}"), read.get(path, 0), write)
        if state in FINAL:
            return about
        begun = begun if state == "PENDING" else time.monotonic()
        patience = _PENDING if about.get("Restarts", "0") == "0" else _RESTART
        if time.monotonic() - begun > patience:
            raise RehearsalError(f"Slurm does not start the job: {about.get('Reason')}")
        time.sleep(0.2)


def cancel(lab: Lab, job: int) -> None:
    """End the job as `scancel` does."""
    lab.run(["scancel", str(job)])


def exit_code(about: dict[str, str]) -> int:
    """Return the exit code for a shell: the job's own, or 128 and its signal, or 1 if it failed otherwise."""
    code, _, number = about.get("ExitCode", "0:0").partition(":")
    if int(code) or int(number):
        return int(code) or 128 + int(number)
    return 0 if about.get("JobState") == "COMPLETED" else 1


def left_over(lab: Lab) -> list[str]:
    """Return what the job has left on the hosts, once they have had time to end what they are ending."""
    deadline = time.monotonic() + _CLEAN
    while (found := lab.left_over()) and time.monotonic() < deadline:
        time.sleep(0.3)
    return found


def to_stdout(data: bytes) -> None:
    """Write at once, by what tells the command line when that is full."""
    click.echo(data, nl=False)


def _copy(path: Path, position: int, write: Callable[[bytes], object]) -> int:
    try:
        with path.open("rb") as stream:
            stream.seek(position)
            while data := stream.read(1 << 16):
                write(data)
            return stream.tell()
    except FileNotFoundError:
        return position
