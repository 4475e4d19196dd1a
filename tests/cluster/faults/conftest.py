"""Fixtures of the fault matrix: one lab at a time, and a job to make a fault in."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from slurmray.rehearsal import machine
from slurmray.rehearsal.cluster.config import USERS, Cluster, Gres
from slurmray.rehearsal.cluster.lab import Lab
from slurmray.rehearsal.cluster.layout import Layout
from slurmray.rehearsal.images import ray_image, rootless, suites

from .case import KILL_WAIT, Fault
from .rows import ROWS, VARIANTS, Variant


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Each case on each variant; the first of its runtimes on the machine's own Slurm is for `make test`."""
    if "variant" not in metafunc.fixturenames:
        return
    (mark,) = metafunc.definition.iter_markers("fault")
    row, *runtimes = mark.args
    assert row in ROWS, f"no such row: {row}"
    runtimes = runtimes or ["podman", "docker"]
    params = [
        pytest.param(
            variant,
            id=str(variant),
            marks=() if variant == Variant(runtimes[0], None) else pytest.mark.full,
        )
        for variant in VARIANTS
        if variant.runtime in runtimes
    ]
    metafunc.parametrize("variant", params, indirect=True, scope="session")


PROGRAMS = {"podman": "podman", "docker": "dockerd", "none": "python3", "apptainer": "apptainer"}


class Labs:
    """At most one lab at a time; the same one for the next case if it needs the same, and is clean."""

    def __init__(self) -> None:
        self.lab: Lab | None = None

    def get(self, cluster: Cluster, layout: Layout, archive: Path) -> Lab:
        lab = self.lab
        if lab and lab.cluster == cluster and lab.layout == layout and _is_fresh(lab):
            return lab
        self.down()
        lab = self.lab = Lab(cluster, layout)
        lab.__enter__()
        if layout.runtime == "podman":
            rootless.give(lab, archive, USERS[0], print)
        return lab

    def down(self) -> None:
        if self.lab:
            self.lab.down()
        self.lab = None


def _is_fresh(lab: Lab) -> bool:
    states = lab.run(["sinfo", "--noheader", "--Node", "--format=%T"]).stdout.split()
    return set(lab.pids) == set(lab.cluster.hosts) and set(states) == {"idle"} and not lab.left_over()


@pytest.fixture(scope="session")
def labs() -> Iterator[Labs]:
    labs = Labs()
    yield labs
    labs.down()


@pytest.fixture(scope="session")
def variant(request: pytest.FixtureRequest) -> Variant:
    assert isinstance(request.param, Variant)
    return request.param


@pytest.fixture
def cluster() -> Cluster:
    """Two small hosts. A module whose faults need another cluster has a fixture of this name."""
    return Cluster(cpus=2, gres=(Gres("gpu", "", 8),), options={"KillWait": str(KILL_WAIT)})


@pytest.fixture
def lab(labs: Labs, variant: Variant, cluster: Cluster, archive: Path, request: pytest.FixtureRequest) -> Lab:
    layout = request.getfixturevalue(f"{variant.runtime}_layout")
    if variant.runtime == "apptainer":
        return labs.get(cluster, layout, archive)
    root = suites.hosts_root(machine.cache_folder(), variant.suite, print)
    return labs.get(cluster, dataclasses.replace(layout, root=root), archive)


@pytest.fixture
def fault(lab: Lab, folder: Path, variant: Variant, archive: Path, record_property: Any) -> Fault:
    """A job of alice's in which a fault happens; its measurements go into docs/faults.md."""
    for name, command in {
        "Slurm": ["slurmctld", "-V"],
        "runtime": [PROGRAMS[variant.runtime], "--version"],
        "kernel": ["uname", "-r"],
    }.items():
        record_property(name, lab.run(command, host="node1").stdout.strip())
    record_property("Ray", ray_image.RAY_VERSION)
    return Fault(lab, folder, variant.runtime, archive, record_property)
