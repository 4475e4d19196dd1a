"""The page docs/first-hour.md, command by command."""

from __future__ import annotations

from pathlib import Path

import pytest

from slurmray.rehearsal.cluster.layout import Layout
from slurmray.rehearsal.cluster.slurm_cluster import SlurmCluster
from slurmray.rehearsal.cluster.slurm_conf import ClusterConfig

from .conftest import GPUS
from .jobs import path_with_slurm, wait_clean
from .pages import ROOT, run_page


@pytest.mark.full
def test_the_first_hour(
    podman_layout: Layout, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with SlurmCluster(ClusterConfig(nodes=("node1", "node2"), gres=GPUS), podman_layout) as cluster:
        monkeypatch.setenv("PATH", path_with_slurm(cluster, tmp_path / "commands"))
        monkeypatch.setenv("PYTHONPATH", str(ROOT))
        monkeypatch.chdir(folder)
        run_page(ROOT / "docs/first-hour.md")
        logs = "".join(path.read_text() for path in folder.glob("slurm-*.out"))
        assert "steps=600" in logs, "the trainer of the imported script, in bash"
        wait_clean(cluster)
