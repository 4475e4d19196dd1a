"""A host's PID 1 never waits for orphans, e.g. slurmd as PID 1 of a container or pod: they stay zombies."""

from __future__ import annotations

import dataclasses
import os
import signal
from collections.abc import Iterator

import pytest

from slurmray.rehearsal.cluster.config import Cluster
from slurmray.rehearsal.cluster.lab import Lab

from .case import Fault

SHORT_KILL_WAIT = 10  # seconds


@pytest.fixture
def cluster(cluster: Cluster) -> Cluster:
    return dataclasses.replace(cluster, options={**cluster.options, "KillWait": str(SHORT_KILL_WAIT)})


@pytest.fixture
def lab(lab: Lab) -> Iterator[Lab]:
    """Nodes whose PID 1 is stopped. Only another PID namespace can do that to a PID 1."""
    nodes = [lab.pids[node] for node in lab.cluster.nodes]
    for pid in nodes:
        os.kill(pid, signal.SIGSTOP)
    yield lab
    for pid in nodes:
        os.kill(pid, signal.SIGCONT)


@pytest.mark.fault("PID 1 does not reap", "podman", "docker", "none", "apptainer")
def test_scancel(fault: Fault, lab: Lab) -> None:
    fault.train()
    fault.strike(["scancel", str(fault.job)])
    job = fault.end(clean_within=SHORT_KILL_WAIT)
    assert job.state == "CANCELLED", job.log
    for node in lab.cluster.nodes:
        states = lab.run(["ps", "-e", "-o", "stat="], host=node).stdout.split()
        assert any(state.startswith("Z") for state in states), "PID 1 has reaped, so nothing was tested"
    fault.next_job()
