"""Containers and folders that exist before the job."""

from __future__ import annotations

import pytest

from slurmray.rehearsal.cluster.lab import Lab
from slurmray.spec.container import DEFAULT_IMAGE

from .case import Fault

NEVER = 9_999_999  # the id of a job that Slurm does not have


def create(lab: Lab, runtime: str, user: str, name: str, *options: str) -> str:
    """A container that has not been started, on node1; returns its id."""
    argv = [runtime, "create", "--name", name, *options, DEFAULT_IMAGE, "true"]
    made = lab.run(argv, user, "node1")
    assert made.returncode == 0, made.stderr
    return made.stdout.strip()


@pytest.mark.fault("a container of that name exists")
def test_ours_of_an_ended_job(fault: Fault, lab: Lab) -> None:
    name = f"slurmray-{NEVER}-0-node1"
    create(lab, fault.runtime, "alice", name, "--label", "slurmray.user=alice")
    lab.run(["mkdir", "-p", f"/tmp/ray-{NEVER}-0/inside"], "alice", "node1")
    fault.submit(["true"])
    job = fault.end(f"leftovers: removed {name} of an ended job from node1")
    assert job.code == "0:0", job.log


@pytest.mark.fault("a container of that name exists")
@pytest.mark.full
def test_ours_of_a_job_that_had_the_same_id(fault: Fault, lab: Lab) -> None:
    """For example after Slurm's state was lost and job ids start from 1 again."""
    fault.submit(["true"])
    fault.end()
    number = fault.job + 1
    name = f"slurmray-{number}-0-node1"
    create(lab, fault.runtime, "alice", name, "--label", "slurmray.user=alice")
    # A pid and a start time that no process has: the kernel's pids are smaller.
    folder = f"/tmp/ray-{number}-0"
    old = f"mkdir -p {folder}/inside && echo {2**22 + 1} 1 >{folder}/task && touch {folder}/inside/out"
    assert lab.run(["bash", "-c", old], "alice", "node1").returncode == 0
    fault.submit(["true"])
    assert fault.job == number
    job = fault.end(f"leftovers: removed {name} of an ended job from node1")
    assert job.code == "0:0", job.log


@pytest.mark.fault("a container of that name exists")
@pytest.mark.full
def test_ours_that_runs(fault: Fault, lab: Lab) -> None:
    fault.submit(["true"])
    fault.end()
    name = f"slurmray-{fault.job + 1}-0-node1"
    options = ["--detach", "--network", "host", "--name", name, "--label", "slurmray.user=alice"]
    made = lab.run([fault.runtime, "run", *options, DEFAULT_IMAGE, "sleep", "600"], "alice", "node1")
    assert made.returncode == 0, made.stderr
    try:
        fault.submit(["true"])
        state, code = lab.wait(fault.job, 60)
        job_log = fault.log()
        running = lab.run([fault.runtime, "ps", "--quiet", "--no-trunc"], "alice", "node1").stdout.split()
    finally:
        lab.run([fault.runtime, "rm", "--force", name], "alice", "node1")
    assert (state, code) == ("FAILED", "65:0"), job_log
    assert f"{name} exists, of alice" in job_log
    assert running == made.stdout.split()
    fault.end()


@pytest.mark.fault("a container of that name exists", "docker", "podman")
def test_somebody_else_s(fault: Fault, lab: Lab) -> None:
    fault.submit(["true"])
    fault.end()
    name = f"slurmray-{fault.job + 1}-0-node1"
    # Docker has one set of names for all users; each user of rootless Podman has names of his own.
    user = "bob" if fault.runtime == "docker" else "alice"
    made = create(lab, fault.runtime, user, name)
    try:
        fault.submit(["true"])
        state, code = lab.wait(fault.job, 60)
        job_log = fault.log()
        there = lab.run([fault.runtime, "ps", "--all", "--quiet", "--no-trunc"], user, "node1").stdout.split()
    finally:
        lab.run([fault.runtime, "rm", made], user, "node1")
    assert (state, code) == ("FAILED", "65:0"), job_log
    assert f"{name} exists, of somebody who does not use slurmray" in job_log
    assert there == [made]
    fault.end()
