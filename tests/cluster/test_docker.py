"""Whole jobs with Docker."""

from __future__ import annotations

from pathlib import Path

import pytest

from slurmray.rehearsal.lab import Lab

from .jobs import Jobs
from .test_jobs import TWO, USERS, check_what_arrives


@pytest.fixture
def jobs(docker_lab: Lab, folder: Path) -> Jobs:
    return Jobs(docker_lab, folder, "alice")


@pytest.mark.full
def test_two_nodes_are_counted(jobs: Jobs) -> None:
    job = jobs.run("slurm: {nodes: 2, gpus_per_node: 8, cpus_per_task: 2}\ncontainer: {runtime: docker}")
    assert (job.state, job.code) == ("COMPLETED", "0:0"), job.log
    assert "2 nodes, 16 GPUs, 4 CPUs" in job.log
    assert "container: docker run " in job.log


def test_auto_takes_the_runtime_that_has_the_image(jobs: Jobs) -> None:
    job = jobs.run(TWO, ["bash", "-c", "exit 7"])
    assert job.code == "7:0", job.log
    assert "container: docker run " in job.log


@USERS
def test_what_slurm_and_the_trainer_see(docker_lab: Lab, folder: Path, user: str) -> None:
    check_what_arrives(Jobs(docker_lab, folder, user))
