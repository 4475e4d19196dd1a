"""A Slurm without GRES for GPUs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from slurmray.rehearsal.cluster.layout import Layout
from slurmray.rehearsal.cluster.slurm_cluster import SlurmCluster
from slurmray.rehearsal.cluster.slurm_conf import ClusterConfig

from . import bare
from .jobs import Jobs


@pytest.fixture(scope="module")
def cluster(none_layout: Layout) -> Iterator[SlurmCluster]:
    with SlurmCluster(ClusterConfig(), none_layout) as cluster:
        yield cluster


@pytest.mark.full
def test_gpus_that_slurm_does_not_count(cluster: SlurmCluster, folder: Path) -> None:
    spec = {
        "slurm": {"nodes": 2, "exclusive": True, "mem": "1G"},
        "setup": bare.setup(),
        "container": {"runtime": "none"},
        "ray": {"gpus_per_node": 4},
    }
    job = Jobs(cluster, folder, "alice").run(yaml.safe_dump(spec))
    assert job.code == "0:0", job.log
    assert "2 nodes, 8 GPUs" in job.log
