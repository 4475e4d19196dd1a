"""Containers and folders with the job's names that exist before the job."""

from __future__ import annotations

import pytest

from slurmray.rehearsal.cluster.slurm_cluster import SlurmCluster
from slurmray.spec.container import DEFAULT_IMAGE

from .case import Fault

UNKNOWN_JOB = 9_999_999  # a job id that Slurm does not know


def create(cluster: SlurmCluster, runtime: str, user: str, name: str, *options: str) -> str:
    """Create a container on node1 without starting it; return its id."""
    argv = [runtime, "create", "--name", name, *options, DEFAULT_IMAGE, "true"]
    done = cluster.run(argv, user, "node1")
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.fault("a container of that name exists")
def test_ours_of_an_ended_job(fault: Fault, cluster: SlurmCluster) -> None:
    name = f"slurmray-{UNKNOWN_JOB}-0-node1"
    create(cluster, fault.runtime, "alice", name, "--label", "slurmray.user=alice")
    cluster.run(["mkdir", "-p", f"/tmp/ray-{UNKNOWN_JOB}-0-0a1b2c/inside"], "alice", "node1")
    fault.submit(["true"])
    job = fault.wait_end(f"leftovers: removed {name} of an ended job from node1")
    assert job.code == "0:0", job.log


@pytest.mark.fault("a container of that name exists")
@pytest.mark.full
def test_ours_of_a_job_that_had_the_same_id(fault: Fault, cluster: SlurmCluster) -> None:
    """For example because Slurm has lost its state, and job ids start again from 1."""
    fault.submit(["true"])
    fault.wait_end()
    number = fault.job + 1
    name = f"slurmray-{number}-0-node1"
    create(cluster, fault.runtime, "alice", name, "--label", "slurmray.user=alice")
    # A pid that no process can have: greater than the kernel's maximum.
    folder = f"/tmp/ray-{number}-0-0a1b2c"
    old = f"mkdir -p {folder}/inside && echo {2**22 + 1} 1 >{folder}/task && touch {folder}/inside/out"
    assert cluster.run(["bash", "-c", old], "alice", "node1").returncode == 0
    fault.submit(["true"])
    assert fault.job == number
    job = fault.wait_end(f"leftovers: removed {name} of an ended job from node1")
    assert job.code == "0:0", job.log


@pytest.mark.fault("a container of that name exists")
@pytest.mark.full
def test_ours_that_runs(fault: Fault, cluster: SlurmCluster) -> None:
    fault.submit(["true"])
    fault.wait_end()
    name = f"slurmray-{fault.job + 1}-0-node1"
    options = ["--detach", "--network", "host", "--name", name, "--label", "slurmray.user=alice"]
    done = cluster.run([fault.runtime, "run", *options, DEFAULT_IMAGE, "sleep", "600"], "alice", "node1")
    assert done.returncode == 0, done.stderr
    try:
        fault.submit(["true"])
        state, code = cluster.wait(fault.job, 60)
        job_log = fault.log()
        running = cluster.run([fault.runtime, "ps", "--quiet", "--no-trunc"], "alice", "node1").stdout.split()
    finally:
        cluster.run([fault.runtime, "rm", "--force", name], "alice", "node1")
    assert (state, code) == ("FAILED", "65:0"), job_log
    assert f"{name} exists, owner alice" in job_log
    assert running == done.stdout.split()
    fault.wait_end()


@pytest.mark.fault("a container of that name exists", "docker", "podman")
def test_somebody_else_s(fault: Fault, cluster: SlurmCluster) -> None:
    fault.submit(["true"])
    fault.wait_end()
    name = f"slurmray-{fault.job + 1}-0-node1"
    # Docker's container names are shared by all users; rootless Podman's are per user.
    user = "bob" if fault.runtime == "docker" else "alice"
    container = create(cluster, fault.runtime, user, name)
    try:
        fault.submit(["true"])
        state, code = cluster.wait(fault.job, 60)
        job_log = fault.log()
        there = cluster.run(
            [fault.runtime, "ps", "--all", "--quiet", "--no-trunc"], user, "node1"
        ).stdout.split()
    finally:
        cluster.run([fault.runtime, "rm", container], user, "node1")
    assert (state, code) == ("FAILED", "65:0"), job_log
    assert f"{name} exists, owner unknown" in job_log
    assert there == [container]
    fault.wait_end()
