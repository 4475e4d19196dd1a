"""The rows of the fault matrix and what a case of it runs on. docs/faults.md is made of these."""

from __future__ import annotations

import platform
from dataclasses import dataclass

RESULTS = "slurmray/faults"  # where pytest's cache keeps what was measured

# The fault -> what must be true, whatever the runtime and the Slurm.
ROWS = {
    "the trainer ends": (
        "its exit code, 128+n for signal n, is Slurm's; the log says it is the trainer's; hosts clean"
    ),
    "scancel": "CANCELLED; every container gone on every host before KillWait ends",
    "a process of the launch is killed": (
        "the container dies too; dead records of it are swept by the next job"
    ),
    "a trainer ignores SIGTERM": "killed after its grace, which stays below the cluster's KillWait",
    "time limit": (
        "the trainer gets stop.signal stop.lead seconds before, then is stopped: our code and event, "
        "unless it exits 0 by itself; not stopped in time: TIMEOUT, hosts clean all the same"
    ),
    "a worker's Ray or container dies": (
        "noticed within 10 s; the log names the node and shows its last lines; the job fails with its "
        "own code, or goes on with on_node_loss: continue"
    ),
    "the head's Ray or container dies": "the same, within 10 s",
    "Ray starts slowly, or not at all": (
        "there is one deadline, ray.ready_timeout; a process of Ray that has ended is noticed within 10 s"
    ),
    "a host is lost": (
        "within 45 s the job ends by itself and says which host; no restart unless asked for; the next "
        "job there sweeps and starts"
    ),
    "a port is taken": "another is used, or one clear error; no stack trace",
    "a container of that name exists": "ours and ended: swept; somebody else's: left alone and reported",
    "a node cannot run the container": "one clear line per node with the node and the remedy, in seconds",
    "the run directory is of no use": "found by a canary before Ray starts",
    "a secret is missing": "one line by name with our config code, before any image is touched",
    "requeue": (
        "a fresh attempt with its own run folder and ports; the old files stay; no requeue after a "
        "config error; without requeue the script says --no-requeue"
    ),
}


# What no case can show on one machine, and why.
NOT_RUN = {
    "a node cannot run the container, image storage on NFS": (
        "there is no NFS in the kernels of the machines that the tests run on; the script knows what Podman "
        "says then from Podman's own source"
    ),
    "limits of the job, on cgroup v2": (
        "the controllers of the machines that the tests run on belong to v1; there proctrack/cgroup and "
        "task/cgroup run for real, in tests/cluster/test_limits.py"
    ),
    "all rows with Docker in rootless mode": "the hosts that the tests make have one daemon each, root's",
    "all rows with SELinux": "the kernels of the machines that the tests run on do not enforce it",
    "all rows with real GPUs": "there are none; Slurm's are declared",
}


# The Debian suite that this machine is not.
OTHER_SUITE = (
    "bookworm" if platform.freedesktop_os_release().get("VERSION_CODENAME") == "trixie" else "trixie"
)


@dataclass(frozen=True)
class Variant:
    """A runtime on a Slurm. suite: the Debian suite of the hosts' programs; None: they are the machine's."""

    runtime: str
    suite: str | None

    def __str__(self) -> str:
        return f"{self.runtime}-{self.suite or 'own'}"


VARIANTS = [
    *(Variant(runtime, suite) for suite in (None, OTHER_SUITE) for runtime in ("podman", "docker")),
    Variant("none", None),
    Variant("apptainer", "sid"),
]
