"""Jobs on sites that limit them with cgroups."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from slurmray.rehearsal.cluster import slurm_conf
from slurmray.rehearsal.cluster.slurm_cluster import SlurmCluster
from slurmray.rehearsal.cluster.slurm_conf import ClusterConfig
from slurmray.rehearsal.machine import Runtime

from . import rootless
from .jobs import Jobs


@pytest.fixture
def confined(request: pytest.FixtureRequest, archive: Path, runtime: Runtime) -> Iterator[SlurmCluster]:
    """Two hosts on which cgroups limit jobs; alice has the image."""
    layout = request.getfixturevalue(f"{runtime}_layout")
    config = ClusterConfig(cpus=2, memory=8000, confined=True, options={"KillWait": "90"})
    with SlurmCluster(config, layout) as cluster:
        if runtime == "podman":
            rootless.load_for_user(cluster, archive, slurm_conf.USERS[0], print)
        yield cluster


@pytest.mark.parametrize(
    ("runtime", "users"),
    [("podman", ("root", "alice")), ("docker", ("alice",))],
)
@pytest.mark.full
def test_a_container_has_the_job_s_limits(
    confined: SlurmCluster, folder: Path, runtime: Runtime, users: tuple[str, ...]
) -> None:
    """One CPU and 1,500 MiB: a program that needs more memory is killed, but not Ray."""
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
        # On a busy machine the trap handler needs half a minute to join Ray.
        spec = "slurm: {nodes: 2, cpus_per_task: 1, mem: 1500M}\nstop: {grace: 60}"
        number = jobs.submit(spec, ["bash", "-c", trainer])
        jobs.wait_for(number, "\nready\n")
        confined.run(["scancel", str(number)])
        job = jobs.wait_end(number)
        assert "too much memory: 137" in job.log
        assert "\n1\n" in job.log
        # scancel's signal to the job's cgroup must not end Ray before the trainer has saved its work.
        assert "2222" in job.log, job.log
        inside = len(re.findall(rf"^\d+:(?:memory|cpuset|freezer):/.*/job_{number}/", job.log, re.MULTILINE))
        assert inside == {"podman": 3, "docker": 0}[runtime]
        text = "docker leaves the job's cgroup, so it gets --cpuset-cpus 0 --memory 1500m"
        assert job.log.count(text) == {"podman": 0, "docker": 1}[runtime]
        assert "limits do not hold" not in job.log
        assert "have no cgroups" not in job.log


@pytest.mark.full
@pytest.mark.parametrize("runtime", ["podman", "docker"])
def test_a_job_with_all_memory_of_its_nodes(confined: SlurmCluster, folder: Path, runtime: Runtime) -> None:
    """Slurm sets no variable with it. The hosts have more than the 8,000 MiB of slurm.conf."""
    jobs = Jobs(confined, folder, "alice")
    spec = f"slurm: {{nodes: 2, cpus_per_task: 1, mem: 0}}\ncontainer: {{runtime: {runtime}}}"
    job = jobs.run(spec, ["true"])
    assert job.code == "0:0", job.log
    assert ("--cpuset-cpus 0 --memory 8000m" in job.log) == (runtime == "docker")
    for node in ("node1", "node2"):
        stores = re.findall(r"--object-store-memory=(\d+)", (job.run / f"logs/{node}.log").read_text())
        assert stores == [str(8000 * 2**20 * 3 // 10)]


@pytest.mark.full
@pytest.mark.parametrize("runtime", ["podman"])
def test_a_podman_that_leaves_the_job_s_cgroup(confined: SlurmCluster, folder: Path) -> None:
    """As Podman before 5.2 does by the user's systemd, which the hosts of a rehearsal lack."""
    program = folder / "podman"
    program.write_text(
        """#!/bin/bash
if [[ $1 == run ]]; then
    mkdir -p /sys/fs/cgroup/memory/user.slice
    echo $$ >/sys/fs/cgroup/memory/user.slice/cgroup.procs
fi
exec /usr/bin/podman "$@"
"""
    )
    program.chmod(0o755)
    spec = f"slurm: {{nodes: 2, cpus_per_task: 1, mem: 1500M}}\nsetup: PATH={folder}:$PATH"
    job = Jobs(confined, folder).run(spec)
    assert job.code == "0:0", job.log
    text = r"^node\[1-2\] +cgroup +the container is in \d+:memory:/user.slice \| the job's \| Slurm's limits"
    assert len(re.findall(text, job.log, re.MULTILINE)) == 1, job.log
