"""A whole job on nodes whose bash is 4.4, the oldest that the story supports."""

import shutil
from pathlib import Path

import pytest

from slurmray.rehearsal.cluster.config import Cluster
from slurmray.rehearsal.cluster.lab import Lab
from slurmray.rehearsal.cluster.layout import Layout
from tests.cluster.jobs import Jobs


@pytest.mark.parametrize("code", [pytest.param(0, marks=pytest.mark.full), 7])
def test_bash_44(podman_layout: Layout, folder: Path, bash_44: str, code: int) -> None:
    bash = shutil.copy(bash_44, folder / "bash")
    cluster = Cluster()
    with Lab(cluster, podman_layout) as lab:
        for node in cluster.nodes:
            bound = lab.run(["mount", "--bind", str(bash), "/usr/bin/bash"], host=node)
            assert bound.returncode == 0, bound.stderr
        spec = 'slurm: {nodes: 2}\nsetup: echo "setup in bash $BASH_VERSION"\n'
        job = Jobs(lab, folder).run(spec, ["bash", "-c", f"exit {code}"])
    for node in cluster.nodes:
        assert "setup in bash 4.4." in (job.run / f"logs/{node}.log").read_text(), job.log
    assert job.code == f"{code}:0", job.log
    assert job.last_line == f"done: trainer exited with {code}"
