"""Rows of the fault matrix, and the variants that its cases run on; input of docs/inside/faults.md."""

from __future__ import annotations

import platform
from dataclasses import dataclass

RESULTS = "slurmray/faults"  # key of the results in pytest's cache

# Fault -> required result with every runtime and every Slurm.
ROWS = {
    "the trainer ends": (
        "Slurm has its exit code, 128+n for signal n; the log names the trainer as its source; clean hosts"
    ),
    "scancel": "CANCELLED; no container is left on any host before KillWait ends",
    "a process outside of the container is killed": (
        "whether it is srun, a node agent or the runtime's client: the container ends, too; the next job "
        "removes the leftovers"
    ),
    "a trainer ignores SIGTERM": (
        "killed after its grace period, which is shorter than KillWait; at once after slurmray cancel --now"
    ),
    "PID 1 does not reap": (
        "after scancel, with KillWait 10, no process, container or folder is left; zombies of a PID 1 that "
        "never waits for orphans, for example slurmd in a container, do not count"
    ),
    "time limit": (
        "the trainer gets stop.signal stop.lead seconds before it, and is then stopped: exit code 72 and an "
        "event, unless the trainer exits with 0; not stopped in time: TIMEOUT, and clean hosts all the same"
    ),
    "a signal while it trains": (
        "whether it is sent to the tasks, the batch script or both, the trainer gets it once; what is not "
        "meant for it changes nothing"
    ),
    "a worker's Ray or container dies": (
        "noticed within 10 s; the log names the node and shows its last lines; the job fails with exit code "
        "71, or continues with on_node_loss: continue"
    ),
    "the head's Ray or container dies": "noticed within 10 s; as with a worker, but the job always fails",
    "a container process is stopped": (
        "after heartbeat_timeout the job ends by itself with exit code 71, and names the node; clean hosts; "
        "it goes on if any of its processes was stopped for less than that"
    ),
    "Ray starts slowly, or not at all": (
        "the only timeout is ray.ready_timeout; a process of Ray that has exited is noticed within 10 s"
    ),
    "a host is lost": (
        "within 45 s the job ends by itself and names the host; no restart unless asked for; the next job "
        "there removes the leftovers and starts"
    ),
    "a spare node": (
        "takes the place of a node that fails its checks, and with on_node_loss: restart of one that is lost "
        "while the trainer runs; the trainer then starts again on the nodes that are left; clean hosts"
    ),
    "a network cut that heals": "the job goes on, if the cut was not longer than heartbeat_timeout",
    "a port is taken": "another is used, or there is one clear error; no stack trace",
    "a container of that name exists": (
        "of an ended job of ours: removed; somebody else's: left alone and reported"
    ),
    "a node cannot run the container": "one clear line for each node, with the fix, within seconds",
    "the run directory cannot be used": "found by a check before Ray starts",
    "a secret is missing": "one line with its name, exit code 64, before any image is touched",
    "requeue": (
        "a new attempt with its own run directory and ports; the old files stay; no requeue after a config "
        "error; without requeue the script has --no-requeue"
    ),
}


# Cases that cannot be tested on one machine -> reason.
NOT_RUN = {
    "a node cannot run the container, image storage on NFS": (
        "the kernels of the machines that run the tests have no NFS; Podman's error message is taken from "
        "Podman's source"
    ),
    "limits of the job, on cgroup v2": (
        "the machines that run the tests have their controllers in cgroup v1, and slurmd then refuses v2 "
        "(`Hybrid mode is not supported`); with v1 proctrack/cgroup and task/cgroup are tested"
    ),
    "a host is lost, the head node's, with pyxis": (
        "the container has no Slurm commands, so the job ends only when Slurm notices (SlurmdTimeout)"
    ),
    "all rows with Docker in rootless mode": "the hosts of the tests have one daemon each, of root",
    "all rows with SELinux": "the kernels of the machines that run the tests do not enforce it",
    "all rows with real GPUs": (
        "the machines that run the tests have none; Slurm is configured with device files that stand for them"
    ),
}


# A Debian suite other than this machine's.
OTHER_SUITE = (
    "bookworm" if platform.freedesktop_os_release().get("VERSION_CODENAME") == "trixie" else "trixie"
)


@dataclass(frozen=True)
class Variant:
    """A runtime and a Slurm. suite: Debian suite with the hosts' programs; None: the machine's programs."""

    runtime: str
    suite: str | None

    def __str__(self) -> str:
        return f"{self.runtime}-{self.suite or 'own'}"


VARIANTS = [
    *(Variant(runtime, suite) for suite in (None, OTHER_SUITE) for runtime in ("podman", "docker")),
    Variant("none", None),
    Variant("apptainer", "sid"),
    Variant("pyxis", "bookworm"),
]
