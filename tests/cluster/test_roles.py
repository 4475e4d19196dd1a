"""Nodes with different roles."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from slurmray.rehearsal.cluster.slurm_cluster import SlurmCluster

from .jobs import Jobs

SLURM = "slurm: {nodes: 3, gpus_per_node: 8, cpus_per_task: 2, mem: 1G}\n"
# Prints what each node offers to Ray, and where a task that asks for a GPU runs.
TRAINER = """
import json, os, ray
ray.init(logging_level="warning")
nodes = ray.nodes()
names = {row["NodeID"]: row["NodeName"] for row in nodes}
kinds = ("CPU", "GPU", "memory")
offers = {row["NodeName"]: [row["Resources"].get(kind, 0) for kind in kinds] for row in nodes}
task = ray.remote(num_gpus=8)(lambda: names[ray.get_runtime_context().get_node_id()])
places = sorted(ray.get([task.remote(), task.remote()]))
print(json.dumps([offers, places, os.environ["NNODES"], os.environ["GPUS_PER_NODE"]]))
"""


@pytest.fixture
def jobs(podman_cluster: SlurmCluster, folder: Path) -> Jobs:
    return Jobs(podman_cluster, folder, "alice")


def test_a_head_node_without_gpus(jobs: Jobs) -> None:
    (jobs.folder / "train.py").write_text(TRAINER)
    spec = f"{SLURM}ray: {{head: {{gpus: 0, cpus: 1, memory: 100M}}}}"
    job = jobs.run(spec, ["python3", "train.py"])
    assert job.code == "0:0", job.log
    assert "probe: 3/3 nodes, 16/16 GPUs" in job.log
    line = next(line for line in job.log.splitlines() if line.startswith("[{"))
    offers, places, *facts = json.loads(line)
    assert offers.pop("node1") == [1, 0, 100 * 2**20]
    assert {tuple(offer[:2]) for offer in offers.values()} == {(2, 8)}
    assert places == ["node2", "node3"]
    assert facts == ["2", "8"]


@pytest.mark.full
def test_the_built_in_check_on_a_head_node_without_cpus(jobs: Jobs) -> None:
    job = jobs.run(f"{SLURM}ray: {{head: {{gpus: 0, cpus: 0}}}}")
    assert job.code == "0:0", job.log
    assert "node1: a task ran on node1, 0 CPUs, 0 GPUs" in job.log
    assert "3 nodes, 16 GPUs, 4 CPUs" in job.log
