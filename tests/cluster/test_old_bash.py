"""A complete job on nodes with bash 4.4, the oldest supported version."""

import shutil
from pathlib import Path

import pytest

from slurmray.rehearsal.cluster.layout import Layout
from slurmray.rehearsal.cluster.slurm_cluster import SlurmCluster
from slurmray.rehearsal.cluster.slurm_conf import ClusterConfig
from tests.cluster.jobs import Jobs


@pytest.mark.full
@pytest.mark.parametrize("code", [0, 7])
def test_bash_44(podman_layout: Layout, folder: Path, bash_44: str, code: int) -> None:
    bash = shutil.copy(bash_44, folder / "bash")
    cluster_config = ClusterConfig()
    with SlurmCluster(cluster_config, podman_layout) as cluster:
        for node in cluster_config.nodes:
            mounted = cluster.run(["mount", "--bind", str(bash), "/usr/bin/bash"], host=node)
            assert mounted.returncode == 0, mounted.stderr
        spec = 'slurm: {nodes: 2}\nsetup: echo "setup in bash $BASH_VERSION"\n'
        job = Jobs(cluster, folder).run(spec, ["bash", "-c", f"exit {code}"])
    for node in cluster_config.nodes:
        assert "setup in bash 4.4." in (job.run / f"logs/{node}.log").read_text(), job.log
    assert job.code == f"{code}:0", job.log
    assert job.last_line == f"done: trainer exited with {code}"
