"""Clusters with a real Slurm and real containers, each booted once. Missing programs are failures."""

from __future__ import annotations

import dataclasses
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from slurmray.rehearsal import machine
from slurmray.rehearsal.cluster import slurm_conf
from slurmray.rehearsal.cluster.layout import Layout
from slurmray.rehearsal.cluster.slurm_cluster import SlurmCluster
from slurmray.rehearsal.cluster.slurm_conf import ClusterConfig, Gres
from slurmray.rehearsal.images import ray_image, stores, suites
from slurmray.spec.container import DEFAULT_IMAGE

from . import bare, enroot, rootless, sandbox

GPUS = (Gres("gpu", "", 8),)
CANCEL_ALL = "scancel $(squeue -ho %A); until [[ -z $(squeue -h) ]]; do sleep 0.2; done"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.cluster)


@pytest.fixture(scope="session")
def share() -> Iterator[Path]:
    """World-writable folder that the hosts and the tests share. Its path is short, for Ray's sockets."""
    folder = Path(tempfile.mkdtemp(prefix="slurmray-tests-"))
    folder.chmod(0o1777)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(scope="session")
def archive() -> Path:
    return ray_image.archive(machine.cache_folder(), DEFAULT_IMAGE, print)


@pytest.fixture(scope="session")
def podman_layout(share: Path, archive: Path) -> Layout:
    """Hosts with Podman, with the root filesystem of `suites.hosts_root`."""
    machine.require("podman", own_slurm=True, builds=True)
    cache = machine.cache_folder()
    store = stores.load("podman", cache, archive, print)
    return Layout(share, "podman", store, suites.hosts_root(cache, None, print))


@pytest.fixture(scope="session")
def docker_layout(share: Path, archive: Path) -> Layout:
    """Hosts with Docker, with the same root filesystem."""
    machine.require("docker", own_slurm=True, builds=True)
    cache = machine.cache_folder()
    return Layout(
        share, "docker", stores.load("docker", cache, archive, print), suites.hosts_root(cache, None, print)
    )


@pytest.fixture(scope="session")
def none_layout(share: Path) -> Layout:
    """Hosts without containers, with Ray in their Python."""
    return bare.layout(share)


@pytest.fixture(scope="session")
def apptainer_layout(share: Path, archive: Path) -> Layout:
    """Hosts with Apptainer."""
    return sandbox.layout(share, archive)


@pytest.fixture(scope="session")
def pyxis_layout(share: Path, archive: Path) -> Layout:
    """Hosts with pyxis."""
    return enroot.layout(share, archive)


@pytest.fixture(scope="session")
def shared_clusters() -> list[SlurmCluster]:
    """Running clusters among `podman_cluster` and `docker_cluster`."""
    return []


@pytest.fixture(scope="session")
def podman_cluster(
    podman_layout: Layout, archive: Path, shared_clusters: list[SlurmCluster]
) -> Iterator[SlurmCluster]:
    """Three hosts with Podman; root and alice have the image."""
    with SlurmCluster(ClusterConfig(nodes=("node1", "node2", "node3"), gres=GPUS), podman_layout) as cluster:
        rootless.load_for_user(cluster, archive, slurm_conf.USERS[0], print)
        shared_clusters.append(cluster)
        yield cluster


@pytest.fixture(scope="session")
def docker_cluster(docker_layout: Layout, shared_clusters: list[SlurmCluster]) -> Iterator[SlurmCluster]:
    """Two hosts with Docker."""
    with SlurmCluster(ClusterConfig(gres=GPUS), docker_layout) as cluster:
        shared_clusters.append(cluster)
        yield cluster


@pytest.fixture(scope="session")
def trixie_cluster(podman_layout: Layout, shared_clusters: list[SlurmCluster]) -> Iterator[SlurmCluster]:
    """Two hosts of Debian 13, with its Slurm and its Podman."""
    root = suites.hosts_root(machine.cache_folder(), "trixie", print)
    with SlurmCluster(ClusterConfig(gres=GPUS), dataclasses.replace(podman_layout, root=root)) as cluster:
        shared_clusters.append(cluster)
        yield cluster


@pytest.fixture(
    scope="module",
    params=["both", *(pytest.param(each, marks=pytest.mark.full) for each in ("v4", "v6", "v6-first"))],
)
def addressed_cluster(podman_layout: Layout, request: pytest.FixtureRequest) -> Iterator[SlurmCluster]:
    """Two hosts with Podman, for each set of address families."""
    with SlurmCluster(ClusterConfig(gres=GPUS, addresses=request.param), podman_layout) as cluster:
        yield cluster


@pytest.fixture
def folder(
    share: Path, shared_clusters: list[SlurmCluster], request: pytest.FixtureRequest
) -> Iterator[Path]:
    """A new world-writable folder, shared with the hosts."""
    folder = Path(tempfile.mkdtemp(dir=share))
    folder.chmod(0o1777)
    failed = request.session.testsfailed
    yield folder
    if request.session.testsfailed > failed:  # its jobs would block the nodes for the following tests
        for cluster in shared_clusters:
            cluster.run(["bash", "-c", CANCEL_ALL])
    shutil.rmtree(folder)
