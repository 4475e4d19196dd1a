"""Fixtures of the fault matrix: one cluster at a time, and a job with a fault."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from slurmray.rehearsal import machine
from slurmray.rehearsal.cluster.layout import Layout
from slurmray.rehearsal.cluster.slurm_cluster import SlurmCluster
from slurmray.rehearsal.cluster.slurm_conf import USERS, ClusterConfig, Gres
from slurmray.rehearsal.images import ray_image, suites
from tests.cluster import enroot, rootless

from .case import KILL_WAIT, Fault
from .rows import ROWS, VARIANTS, Variant


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run each case on each variant. `make test` runs only its first runtime, on the machine's Slurm."""
    if "variant" not in metafunc.fixturenames:
        return
    (mark,) = metafunc.definition.iter_markers("fault")
    row, *runtimes = mark.args
    assert row in ROWS, f"no such row: {row}"
    runtimes = runtimes or ["podman", "docker"]
    params = [
        pytest.param(variant, id=str(variant), marks=_marks(variant, runtimes[0]))
        for variant in VARIANTS
        if variant.runtime in runtimes
    ]
    metafunc.parametrize("variant", params, indirect=True, scope="session")


def _marks(variant: Variant, first: str) -> Sequence[pytest.MarkDecorator]:
    if variant.runtime == "pyxis":
        return [pytest.mark.pyxis]
    return [] if variant == Variant(first, None) else [pytest.mark.full]


# Runtime -> command for the version of the program that starts containers.
VERSIONS = {
    "podman": ["podman", "--version"],
    "docker": ["dockerd", "--version"],
    "none": ["python3", "--version"],
    "apptainer": ["apptainer", "--version"],
    "pyxis": ["enroot", "version"],
}


class ClusterPool:
    """Keeps at most one cluster, and reuses it if it is clean and the next case needs the same one."""

    def __init__(self) -> None:
        self.cluster: SlurmCluster | None = None

    def get(self, cluster_config: ClusterConfig, layout: Layout, archive: Path) -> SlurmCluster:
        cluster = self.cluster
        if cluster and cluster.config == cluster_config and cluster.layout == layout and _is_clean(cluster):
            return cluster
        self.down()
        cluster = self.cluster = SlurmCluster(cluster_config, layout)
        cluster.__enter__()
        if layout.runtime == "podman":
            rootless.load_for_user(cluster, archive, USERS[0], print)
        return cluster

    def down(self) -> None:
        if self.cluster:
            self.cluster.down()
        self.cluster = None


def _is_clean(cluster: SlurmCluster) -> bool:
    states = cluster.run(["sinfo", "--noheader", "--Node", "--format=%T"]).stdout.split()
    return (
        set(cluster.pids) == set(cluster.config.hosts) and set(states) == {"idle"} and not cluster.leftovers()
    )


@pytest.fixture(scope="session")
def clusters() -> Iterator[ClusterPool]:
    clusters = ClusterPool()
    yield clusters
    clusters.down()


@pytest.fixture(scope="session")
def variant(request: pytest.FixtureRequest) -> Variant:
    assert isinstance(request.param, Variant)
    return request.param


@pytest.fixture
def cluster_config() -> ClusterConfig:
    """Two small hosts. Modules that need another configuration override this fixture."""
    return ClusterConfig(cpus=2, gres=(Gres("gpu", "", 8),), options={"KillWait": str(KILL_WAIT)})


@pytest.fixture
def cluster(
    clusters: ClusterPool,
    variant: Variant,
    cluster_config: ClusterConfig,
    archive: Path,
    request: pytest.FixtureRequest,
) -> SlurmCluster:
    layout = request.getfixturevalue(f"{variant.runtime}_layout")
    if variant.runtime == "pyxis":
        more = enroot.options(layout.folder)
        cluster_config = dataclasses.replace(cluster_config, options={**cluster_config.options, **more})
    if variant.runtime in ("apptainer", "pyxis"):
        return clusters.get(cluster_config, layout, archive)
    root = suites.hosts_root(machine.cache_folder(), variant.suite, print)
    return clusters.get(cluster_config, dataclasses.replace(layout, root=root), archive)


@pytest.fixture
def fault(
    cluster: SlurmCluster, folder: Path, variant: Variant, archive: Path, record_property: Any
) -> Fault:
    """A job of alice with a fault; its measurements are for docs/inside/faults.md."""
    for name, command in {
        "Slurm": ["slurmctld", "-V"],
        "runtime": VERSIONS[variant.runtime],
        "kernel": ["uname", "-r"],
    }.items():
        record_property(name, cluster.run(command, host="node1").stdout.strip())
    record_property("Ray", ray_image.RAY_VERSION)
    return Fault(cluster, folder, variant.runtime, archive, record_property)
