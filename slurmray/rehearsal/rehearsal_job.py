"""Submits a rehearsal's job, follows its log and reports its end."""

from __future__ import annotations

import os
import time
from pathlib import Path

import click

from slurmray.errors import RehearsalError
from slurmray.rehearsal.cluster.requirements import Requirements
from slurmray.rehearsal.cluster.slurm_cluster import SlurmCluster
from slurmray.slurm.states import End, parse_end

# Prefixes of variables about this machine's daemons or a surrounding job, which are wrong on the hosts.
_DROPPED_VARIABLES = (
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
_SLURMCTLD_TIMEOUT = 30  # seconds
_START_TIMEOUT = 20  # seconds; no other job runs there, so one that is still pending will never start
_REQUEUE_TIMEOUT = 150  # seconds; Slurm restarts a job only after its old credential has expired
_CLEANUP_TIMEOUT = 15  # seconds after the job's end


def submit(cluster: SlurmCluster, script: str, requirements: Requirements) -> int:
    """Submit the script, byte for byte, with the caller's environment, and return the job's id."""
    for name in requirements.reservations:
        options = ["Nodes=ALL", "Users=root", "StartTime=now", "Duration=infinite"]
        cluster.run(["scontrol", "create", "reservation", f"ReservationName={name}", *options])
    env = {name: value for name, value in os.environ.items() if not name.startswith(_DROPPED_VARIABLES)}
    job = cluster.sbatch("", user=None, args=requirements.overrides, text=script, env=env)
    if requirements.held:
        cluster.run(["scontrol", "release", str(job)])
    return job


def follow(cluster: SlurmCluster, job: int) -> End:
    """Print the job's log until the job ends; return how. RehearsalError if Slurm does not start the job."""
    pending_since = last_answer = time.monotonic()
    read: dict[str, int] = {}
    for info in cluster.poll(job):
        state = info.get("JobState", "")
        last_answer = time.monotonic() if state else last_answer
        if time.monotonic() - last_answer > _SLURMCTLD_TIMEOUT:
            raise RehearsalError(f"no answer from slurmctld for {_SLURMCTLD_TIMEOUT} s")
        for path in dict.fromkeys((info.get("StdOut", ""), info.get("StdErr", ""))):
            host = info.get("BatchHost", "")
            if path and host in cluster.pids:
                read[path] = _copy(Path(f"/proc/{cluster.pids[host]}/root{path}"), read.get(path, 0))
        pending_since = pending_since if state == "PENDING" else time.monotonic()
        timeout = _START_TIMEOUT if info.get("Restarts", "0") == "0" else _REQUEUE_TIMEOUT
        if time.monotonic() - pending_since > timeout:
            raise RehearsalError(f"Slurm has not started the job within {timeout} s: {info.get('Reason')}")
    return parse_end(info["JobState"], info.get("ExitCode", "0:0"))


def leftovers(cluster: SlurmCluster) -> list[str]:
    """Return the job's leftovers on the hosts, after waiting for their clean-up."""
    deadline = time.monotonic() + _CLEANUP_TIMEOUT
    while (lines := cluster.leftovers()) and time.monotonic() < deadline:
        time.sleep(0.3)
    return lines


def _copy(path: Path, position: int) -> int:
    try:
        with path.open("rb") as stream:
            stream.seek(position)
            while data := stream.read(1 << 16):
                click.echo(data, nl=False)  # the command line handles its errors
            return stream.tell()
    except FileNotFoundError:
        return position
