"""A cluster for each group of tests, booted once: a real Slurm, real containers. What is missing fails."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from slurmray.rehearsal import conf, images, machine, rootless, stores, suites
from slurmray.rehearsal.conf import Cluster, Gres
from slurmray.rehearsal.lab import Lab
from slurmray.rehearsal.layout import Layout, Runtime
from slurmray.spec import DEFAULT_IMAGE


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
    return images.archive(machine.cache_folder(), DEFAULT_IMAGE, print)


@pytest.fixture(scope="session")
def podman_store(archive: Path) -> Path:
    machine.require("podman", own_slurm=True, builds=True)
    return stores.podman_store(machine.cache_folder(), archive)


@pytest.fixture(scope="session")
def docker_root(archive: Path) -> Path:
    machine.require("docker", own_slurm=True, builds=True)
    return stores.docker_root(machine.cache_folder(), archive)


@pytest.fixture(scope="session")
def podman_lab(share: Path, podman_store: Path, archive: Path) -> Iterator[Lab]:
    """Three hosts with Podman; alice has the image too."""
    with _lab(share, "podman", podman_store, 3, "v4") as lab:
        rootless.give(lab, archive, conf.USERS[0])
        yield lab


@pytest.fixture(scope="session")
def docker_lab(share: Path, docker_root: Path) -> Iterator[Lab]:
    """Two hosts with Docker."""
    with _lab(share, "docker", docker_root, 2, "v4") as lab:
        yield lab


@pytest.fixture(params=["v4", "v6", "v6-first", "both"])
def addressed_lab(share: Path, podman_store: Path, request: pytest.FixtureRequest) -> Iterator[Lab]:
    """Two hosts with Podman, for each way in which hosts are known to each other."""
    with _lab(share, "podman", podman_store, 2, request.param) as lab:
        yield lab


@pytest.fixture
def folder(share: Path) -> Iterator[Path]:
    """A fresh folder on the hosts and here, which anybody may write to."""
    made = Path(tempfile.mkdtemp(dir=share))
    made.chmod(0o1777)
    yield made
    shutil.rmtree(made)


@pytest.fixture
def until() -> Callable[[Callable[[], object]], object]:
    """Wait for what a function returns to be true, and return it."""

    def wait(holds: Callable[[], object]) -> object:
        deadline = time.monotonic() + 60  # bounds a hang
        while not (found := holds()):
            assert time.monotonic() < deadline, "not within 60 s"
            time.sleep(0.1)
        return found

    return wait


def _lab(share: Path, runtime: Runtime, store: Path, nodes: int, addresses: conf.Addresses) -> Lab:
    names = tuple(f"node{number}" for number in range(1, nodes + 1))
    cluster = Cluster(nodes=names, gres=(Gres("gpu", "", 8),), addresses=addresses)
    root = suites.hosts_root(machine.cache_folder(), None, print)
    return Lab(cluster, Layout(share, runtime, store, root))
