"""Jobs of sites that confine them by cgroups."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from slurmray.rehearsal.cluster import config
from slurmray.rehearsal.cluster.config import Cluster
from slurmray.rehearsal.cluster.lab import Lab
from slurmray.rehearsal.cluster.layout import Runtime
from slurmray.rehearsal.images import rootless

from .jobs import Jobs


@pytest.fixture
def confined(request: pytest.FixtureRequest, archive: Path, runtime: Runtime) -> Iterator[Lab]:
    """Two hosts on which jobs have cgroups; alice has the image."""
    layout = request.getfixturevalue(f"{runtime}_layout")
    with Lab(Cluster(cpus=2, memory=8000, confined=True), layout) as lab:
        if runtime == "podman":
            rootless.give(lab, archive, config.USERS[0], print)
        yield lab


@pytest.mark.parametrize(
    ("runtime", "users"),
    [pytest.param("podman", ("root", "alice"), marks=pytest.mark.full), ("docker", ("alice",))],
)
def test_a_container_keeps_to_the_job_s_limits(
    confined: Lab, folder: Path, runtime: Runtime, users: tuple[str, ...]
) -> None:
    """One CPU and 1,500 MiB: a program that wants more memory is killed, and Ray is not."""
    trainer = """
nproc
grep -h -E ':(memory|cpuset|freezer):' /proc/self/cgroup
python3 -c 'len(b"x" * 2**31)'
echo "too much memory: $?"
trap 'python3 -c "import ray; ray.init(); print(len(ray.nodes()) * 1111)"; exit 3' TERM
echo ready
while :; do sleep 0.1; done
"""
    for user in users:
        (folder / user).mkdir()
        (folder / user).chmod(0o1777)
        jobs = Jobs(confined, folder / user, user)
        # On a busy machine its handler takes more than ten seconds to import Ray.
        spec = "slurm: {nodes: 2, cpus_per_task: 1, mem: 1500M}\nstop: {grace: 25}"
        number = jobs.submit(spec, ["bash", "-c", trainer])
        jobs.wait_for(number, "\nready\n")
        confined.run(["scancel", str(number)])
        job = jobs.end(number)
        assert "too much memory: 137" in job.log
        assert "\n1\n" in job.log
        # What scancel sends to the job's own cgroup must not end Ray before the trainer has saved its work.
        assert "2222" in job.log, job.log
        inside = len(re.findall(rf"^\d+:(?:memory|cpuset|freezer):/.*/job_{number}/", job.log, re.MULTILINE))
        assert inside == {"podman": 3, "docker": 0}[runtime]
        text = "docker leaves the job's cgroup, so it gets --cpuset-cpus 0 --memory 1500m"
        assert job.log.count(text) == {"podman": 0, "docker": 1}[runtime]
