"""A cluster for each group of tests, booted once: a real Slurm, real containers. What is missing fails."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from slurmray.rehearsal import machine
from slurmray.rehearsal.cluster import config
from slurmray.rehearsal.cluster.config import Cluster, Gres
from slurmray.rehearsal.cluster.lab import Lab
from slurmray.rehearsal.cluster.layout import Layout
from slurmray.rehearsal.images import ray_image, rootless, stores, suites
from slurmray.spec.container import DEFAULT_IMAGE

from . import bare, sandbox

GPUS = (Gres("gpu", "", 8),)
CANCEL_ALL = "scancel $(squeue -ho %A); until [[ -z $(squeue -h) ]]; do sleep 0.2; done"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.cluster)


@pytest.fixture(scope="session")
def share() -> Iterator[Path]:
    """The folder that the hosts share with the tests; anybody may write there, and Ray's paths stay short."""
    folder = Path(tempfile.mkdtemp(prefix="slurmray-tests-"))
    folder.chmod(0o1777)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(scope="session")
def archive() -> Path:
    return ray_image.archive(machine.cache_folder(), DEFAULT_IMAGE, print)


@pytest.fixture(scope="session")
def podman_layout(share: Path, archive: Path) -> Layout:
    """Hosts with Podman, and with the machine's own Slurm where that works."""
    machine.require("podman", own_slurm=True, builds=True)
    cache = machine.cache_folder()
    store = stores.podman_store(cache, archive, print)
    return Layout(share, "podman", store, suites.hosts_root(cache, None, print))


@pytest.fixture(scope="session")
def docker_layout(share: Path, archive: Path) -> Layout:
    """The same with Docker."""
    machine.require("docker", own_slurm=True, builds=True)
    cache = machine.cache_folder()
    return Layout(
        share, "docker", stores.docker_root(cache, archive, print), suites.hosts_root(cache, None, print)
    )


@pytest.fixture(scope="session")
def none_layout(share: Path) -> Layout:
    """Hosts whose Python has Ray, without containers."""
    return bare.layout(share)


@pytest.fixture(scope="session")
def apptainer_layout(share: Path, archive: Path) -> Layout:
    """Hosts with Apptainer."""
    return sandbox.layout(share, archive)


@pytest.fixture(scope="session")
def shared_labs() -> list[Lab]:
    """Those of the next two clusters that are up: all tests use the same ones."""
    return []


@pytest.fixture(scope="session")
def podman_lab(podman_layout: Layout, archive: Path, shared_labs: list[Lab]) -> Iterator[Lab]:
    """Three hosts with Podman; alice has the image too."""
    with Lab(Cluster(nodes=("node1", "node2", "node3"), gres=GPUS), podman_layout) as lab:
        rootless.give(lab, archive, config.USERS[0], print)
        shared_labs.append(lab)
        yield lab


@pytest.fixture(scope="session")
def docker_lab(docker_layout: Layout, shared_labs: list[Lab]) -> Iterator[Lab]:
    """Two hosts with Docker."""
    with Lab(Cluster(gres=GPUS), docker_layout) as lab:
        shared_labs.append(lab)
        yield lab


@pytest.fixture(
    params=["both", *(pytest.param(each, marks=pytest.mark.full) for each in ("v4", "v6", "v6-first"))]
)
def addressed_lab(podman_layout: Layout, request: pytest.FixtureRequest) -> Iterator[Lab]:
    """Two hosts with Podman, for each way in which hosts are known to each other."""
    with Lab(Cluster(gres=GPUS, addresses=request.param), podman_layout) as lab:
        yield lab


@pytest.fixture
def folder(share: Path, shared_labs: list[Lab], request: pytest.FixtureRequest) -> Iterator[Path]:
    """A fresh folder on the hosts and here, which anybody may write to."""
    made = Path(tempfile.mkdtemp(dir=share))
    made.chmod(0o1777)
    failed = request.session.testsfailed
    yield made
    if request.session.testsfailed > failed:  # its jobs would keep the nodes from the tests that follow
        for lab in shared_labs:
            lab.run(["bash", "-c", CANCEL_ALL])
    shutil.rmtree(made)
