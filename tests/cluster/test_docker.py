"""Complete jobs with Docker."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from slurmray.rehearsal import machine
from slurmray.rehearsal.cluster.layout import Layout
from slurmray.rehearsal.cluster.slurm_cluster import SlurmCluster
from slurmray.rehearsal.cluster.slurm_conf import USERS, ClusterConfig
from slurmray.rehearsal.images import suites
from slurmray.spec.container import DEFAULT_IMAGE

from . import rootless
from .jobs import Jobs
from .test_jobs import ONE, TWO, check_values_arrive


@pytest.fixture
def jobs(docker_cluster: SlurmCluster, folder: Path) -> Jobs:
    return Jobs(docker_cluster, folder, "alice")


@pytest.mark.full
def test_built_in_check(jobs: Jobs) -> None:
    job = jobs.run("slurm: {nodes: 2, gpus_per_node: 8, cpus_per_task: 2}\ncontainer: {runtime: docker}")
    assert (job.state, job.code) == ("COMPLETED", "0:0"), job.log
    assert "2 nodes, 16 GPUs, 4 CPUs" in job.log
    assert "container: docker run " in job.log


@pytest.mark.full
def test_auto_takes_the_runtime_that_has_the_image(jobs: Jobs) -> None:
    job = jobs.run(TWO, ["bash", "-c", "exit 7"])
    assert job.code == "7:0", job.log
    assert "container: docker run " in job.log


@pytest.mark.full
def test_local_image_is_preferred_for_a_short_name(docker_cluster: SlurmCluster, jobs: Jobs) -> None:
    for host in docker_cluster.config.nodes:
        done = docker_cluster.run(["docker", "tag", DEFAULT_IMAGE, "mine:1"], host=host)
        assert done.returncode == 0, done.stderr
    job = jobs.run(ONE + "container: {runtime: docker, image: 'mine:1'}", ["true"])
    assert job.code == "0:0", job.log
    job = jobs.run(ONE + "container: {runtime: docker, image: 'other:1'}", ["true"])
    assert "docker pull docker.io/library/other:1" in job.log, job.log
    assert job.code == "66:0"


@pytest.mark.full
@pytest.mark.parametrize("user", ["root", "alice"])
def test_values_reach_slurm_and_the_trainer_unchanged(
    docker_cluster: SlurmCluster, folder: Path, user: str
) -> None:
    check_values_arrive(Jobs(docker_cluster, folder, user))


@pytest.fixture
def private_folder() -> Iterator[Path]:
    """A folder for jobs outside /tmp."""
    folder = Path(tempfile.mkdtemp(prefix="slurmray-tests-", dir="/var/tmp"))
    folder.chmod(0o1777)
    yield folder
    shutil.rmtree(folder)


ON_ONE_CPU = "slurm: {nodes: 2, cpus_per_task: 1, mem: 1G}\n"


@contextlib.contextmanager
def one_cpu() -> Iterator[None]:
    """Processes that are started here run on one CPU."""
    cpus = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cpus)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, cpus)


@contextlib.contextmanager
def private_tmp_cluster(layout: Layout, folder: Path) -> Iterator[Jobs]:
    """A cluster whose Slurm makes a /tmp for each job."""
    root = suites.root(machine.cache_folder(), "trixie", print)
    layout = dataclasses.replace(layout, folder=folder, root=root)
    with contextlib.ExitStack() as stack:
        # Slurm mounts the file of a new mount namespace. Linux 6.18 takes that for a loop if its number is
        # lower than that of slurmd's namespace, and each CPU has numbers of its own.
        with one_cpu():
            cluster = stack.enter_context(SlurmCluster(ClusterConfig(private_tmp=True), layout))
        yield Jobs(cluster, folder, "alice")


@pytest.fixture
def private_tmp(docker_layout: Layout, private_folder: Path) -> Iterator[Jobs]:
    with private_tmp_cluster(docker_layout, private_folder) as jobs:
        yield jobs


@pytest.mark.full
def test_a_tmp_that_slurm_makes_for_each_job(private_tmp: Jobs) -> None:
    job = private_tmp.run(ON_ONE_CPU)
    assert job.code == "65:0", job.log
    found = "/tmp is the job's own (job_container/tmpfs), and docker sees another"
    fix = "set ray.temp_dir to a folder elsewhere on the node's disk"
    row = f"{found} | a folder that is the same for both | {fix}"
    assert job.findings == {(node, "mount"): row for node in ("node1", "node2")}


@pytest.mark.full
def test_a_temp_folder_that_docker_sees(private_tmp: Jobs) -> None:
    job = private_tmp.run(ON_ONE_CPU + "ray: {temp_dir: /var/tmp}")
    assert job.code == "0:0", job.log


@pytest.mark.full
def test_a_tmp_that_an_earlier_podman_does_not_see(
    podman_layout: Layout, archive: Path, private_folder: Path
) -> None:
    """Of the same user, on one of the nodes: rootless Podman joins its namespaces."""
    with private_tmp_cluster(podman_layout, private_folder) as jobs:
        cluster = jobs.cluster
        rootless.load_for_user(cluster, archive, USERS[0], print)
        for host in ("node1", "node2"):
            cluster.run(
                ["install", "--directory", "--owner=alice", f"/run/user/{USERS[0].uid}"], "root", host
            )
        assert cluster.run(["podman", "ps"], "alice", "node2").returncode == 0
        job = jobs.run(ON_ONE_CPU)
        assert job.code == "65:0", job.log
        found = "/tmp is the job's own (job_container/tmpfs), and podman sees another"
        fix = "set ray.temp_dir to a folder elsewhere on the node's disk"
        assert job.findings == {("node2", "mount"): f"{found} | a folder that is the same for both | {fix}"}
        assert jobs.run(ON_ONE_CPU + "ray: {temp_dir: /var/tmp}").code == "0:0"
