"""Host lists, compared with what Slurm makes of them."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from slurmray.agent.controller.host_list import host_list


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [
        (["node7"], "node7"),
        ([f"node{number}" for number in range(64, 0, -1)], "node[1-64]"),
        (["node3", "node1", "node7", "node2"], "node[1-3,7]"),
        ([f"gpu-{number:03}" for number in range(98, 102)], "gpu-[098-101]"),
        (["n8", "n9", "n10", "n09", "n08"], "n[8,08,9,09-10]"),
        (["r1n2", "r1n3", "r2n2", "login", "gpu1-ib", "gpu2-ib"], "gpu1-ib,gpu2-ib,login,r1n[2-3],r2n2"),
        (["gpu", "gpu1", "gpu2", "gpu1"], "gpu,gpu[1-2]"),
        (["9", "10"], "[9-10]"),
    ],
)
def test_slurm_reads_the_host_list(tmp_path: Path, nodes: list[str], expected: str) -> None:
    assert host_list(nodes) == expected
    conf = tmp_path / "slurm.conf"
    conf.write_text("ClusterName=test\nSlurmctldHost=localhost\n")
    argv = ["scontrol", "show", "hostnames", expected]
    environment = {**os.environ, "SLURM_CONF": str(conf)}
    done = subprocess.run(argv, env=environment, capture_output=True, text=True, check=True)
    assert sorted(done.stdout.split()) == sorted(set(nodes))
