"""A host's PID 1 never reaps orphans, e.g. slurmd as PID 1 of a container or pod: they stay zombies."""

from __future__ import annotations

import dataclasses
import os
import signal
from collections.abc import Iterator

import pytest

from slurmray.rehearsal.cluster.slurm_cluster import SlurmCluster
from slurmray.rehearsal.cluster.slurm_conf import ClusterConfig

from .case import Fault

SHORT_KILL_WAIT = 10  # seconds


@pytest.fixture
def cluster_config(cluster_config: ClusterConfig) -> ClusterConfig:
    return dataclasses.replace(
        cluster_config, options={**cluster_config.options, "KillWait": str(SHORT_KILL_WAIT)}
    )


@pytest.fixture
def cluster(cluster: SlurmCluster) -> Iterator[SlurmCluster]:
    """Nodes whose PID 1 is stopped with SIGSTOP, which works only from the parent PID namespace."""
    nodes = [cluster.pids[node] for node in cluster.config.nodes]
    for pid in nodes:
        os.kill(pid, signal.SIGSTOP)
    yield cluster
    for pid in nodes:
        os.kill(pid, signal.SIGCONT)


@pytest.mark.fault("PID 1 does not reap", "podman", "docker", "none", "apptainer", "pyxis")
@pytest.mark.full
def test_scancel(fault: Fault, cluster: SlurmCluster) -> None:
    fault.start_trainer()
    fault.inject(["scancel", str(fault.job)])
    job = fault.wait_end(clean_within=SHORT_KILL_WAIT)
    assert job.state == "CANCELLED", job.log
    for node in cluster.config.nodes:
        states = cluster.run(["ps", "-e", "-o", "stat="], host=node).stdout.split()
        assert any(state.startswith("Z") for state in states), (
            "PID 1 has reaped orphans, so the test proves nothing"
        )
    fault.run_next_job()
