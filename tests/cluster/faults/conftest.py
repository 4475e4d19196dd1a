"""What every case of the fault matrix gets: one lab at a time, a job to make a fault in, and a recorder."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from slurmray.rehearsal import images, machine, rootless, suites
from slurmray.rehearsal.conf import USERS, Cluster, Gres
from slurmray.rehearsal.lab import Lab
from slurmray.rehearsal.layout import Layout

from .case import Fault
from .rows import RESULTS, ROWS, VARIANTS, Variant


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
            marks=[
                pytest.mark.xdist_group(str(variant)),
                *([] if variant == Variant(runtimes[0], None) else [pytest.mark.full]),
            ],
        )
        for variant in VARIANTS
        if variant.runtime in runtimes
    ]
    metafunc.parametrize("variant", params, indirect=True, scope="session")


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput") and config.cache:  # a worker of xdist reports to its controller
        config.pluginmanager.register(Recorder(config.cache))


class Recorder:
    """Keeps outcome and measurements of each case, as soon as it is over, in pytest's cache."""

    def __init__(self, cache: pytest.Cache):
        self.cache = cache
        self.entries: dict[str, dict[str, Any]] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Add what a phase of a test says; the last phase completes the case."""
        case = report.nodeid.partition("@")[0]  # the rest is xdist's name for the group
        if "tests/cluster/faults/" not in case:
            return
        entry = self.entries.setdefault(case, {"outcome": "passed"})
        if report.skipped and isinstance(report.longrepr, tuple):
            entry |= {"outcome": "skipped", "reason": report.longrepr[2].removeprefix("Skipped: ")}
        elif report.failed:
            said = [line[1:].strip() for line in report.longreprtext.splitlines() if line.startswith("E ")]
            said.sort(key=lambda line: not line.startswith("assert "))  # what did not hold tells most
            entry |= {"outcome": "failed", "reason": "".join(said[:1])[:200]}
        if report.when == "teardown":
            results = self.cache.get(RESULTS, {})
            passed = entry["outcome"] == "passed"
            streak = results.get(case, {}).get("in_a_row", 0) + 1 if passed else 0
            when = time.strftime("%Y-%m-%d %H:%M", time.gmtime())
            results[case] = {**entry, **dict(report.user_properties), "in_a_row": streak, "date": when}
            self.cache.set(RESULTS, results)


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
            rootless.give(lab, archive, USERS[0])
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
    return Cluster(
        cpus=2, gres=(Gres("gpu", "", 8),), options={"KillWait": "12", "AuthInfo": "cred_expire=5"}
    )


@pytest.fixture
def lab(
    labs: Labs,
    variant: Variant,
    cluster: Cluster,
    share: Path,
    archive: Path,
    request: pytest.FixtureRequest,
) -> Lab:
    store = request.getfixturevalue({"podman": "podman_store", "docker": "docker_root"}[variant.runtime])
    root = suites.hosts_root(machine.cache_folder(), variant.suite, print)
    return labs.get(cluster, Layout(share, variant.runtime, store, root), archive)


@pytest.fixture
def fault(lab: Lab, folder: Path, variant: Variant, record_property: Any) -> Fault:
    """A job of alice's that something happens to; what it measures goes into docs/faults.md."""
    for name, command in {
        "Slurm": ["slurmctld", "-V"],
        "runtime": [{"podman": "podman", "docker": "dockerd"}[variant.runtime], "--version"],
        "kernel": ["uname", "-r"],
    }.items():
        record_property(name, lab.run(command, host="node1").stdout.strip())
    record_property("Ray", images.RAY_VERSION)
    return Fault(lab, folder, variant.runtime, record_property)
