"""Whole jobs with Docker."""

from __future__ import annotations

from pathlib import Path

import pytest

from slurmray.rehearsal.lab import Lab

from .jobs import Jobs
from .test_jobs import TWO, check_hostile


@pytest.fixture
def jobs(docker_lab: Lab, folder: Path) -> Jobs:
    return Jobs(docker_lab, folder, "alice")


def test_two_nodes_are_counted(jobs: Jobs) -> None:
    job = jobs.run("slurm: {nodes: 2, gpus_per_node: 8, cpus_per_task: 2}\ncontainer: {runtime: docker}")
    assert (job.state, job.code) == ("COMPLETED", "0:0"), job.log
    assert "2 nodes, 16 GPUs, 4 CPUs" in job.log
    assert "container: docker run " in job.log


def test_auto_takes_the_runtime_that_has_the_image(jobs: Jobs) -> None:
    job = jobs.run(TWO, ["bash", "-c", "exit 7"])
    assert job.code == "7:0", job.log
    assert "container: docker run " in job.log


@pytest.mark.parametrize("user", ["root", "alice"])
def test_hostile_strings_arrive(docker_lab: Lab, folder: Path, user: str) -> None:
    check_hostile(Jobs(docker_lab, folder, user))


def test_an_image_that_does_not_exist(jobs: Jobs) -> None:
    job = jobs.run(TWO + "container: {image: 'docker.io/none/such:1', runtime: docker}")
    assert job.code == "66:0", job.log


def test_no_daemon(jobs: Jobs) -> None:
    job = jobs.run(TWO + "container: {runtime: docker}\nsetup: export DOCKER_HOST=unix:///no/such.sock")
    assert job.code == "65:0", job.log
    assert (
        "cannot use docker here: Cannot connect to the Docker daemon at unix:///no/such.sock" in job.last_line
    )


def test_scancel(docker_lab: Lab, jobs: Jobs) -> None:
    number = jobs.submit(TWO, ["bash", "-c", "trap '' TERM; echo started; while :; do sleep 0.1; done"])
    jobs.wait_for(number, "\nstarted\n")
    docker_lab.run(["scancel", str(number)])
    job = jobs.end(number)
    assert job.state == "CANCELLED"
    assert "exit code 137 from trainer" in job.last_line
