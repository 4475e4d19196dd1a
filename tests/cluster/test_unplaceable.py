"""Demands of Ray that no node can hold: in the job's log, and in `status`, `why` and `report`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from slurmray.rehearsal.cluster.layout import Layout
from slurmray.rehearsal.cluster.slurm_cluster import SlurmCluster
from slurmray.rehearsal.cluster.slurm_conf import ClusterConfig

from . import bare
from .jobs import Jobs, path_with_slurm, wait_until
from .test_verbs import slurmray

# The last task waits for those before it, and would fit on an empty node.
TRAINER = """
import os, time, ray
from ray.util.placement_group import placement_group, remove_placement_group
ray.init(log_to_driver=False)

@ray.remote
def work():
    while not os.path.exists("end"):
        time.sleep(0.1)

running = [work.options(num_cpus=1).remote() for _ in range(4)]
while ray.available_resources().get("CPU", 0):
    time.sleep(0.1)
large = [work.options(num_cpus=3).remote() for _ in range(2)]
group = placement_group([{"CPU": 2}, {"CPU": 2}], strategy="STRICT_PACK")
labelled = work.options(num_cpus=1, label_selector={"zone": "b"}).remote()
queued = [work.options(num_cpus=2).remote() for _ in range(3)]
while not os.path.exists("remove"):
    time.sleep(0.1)
remove_placement_group(group)
ray.get(running)
"""
LARGE = "Ray is asked for a task or actor with {CPU: 3}, 2 times; the largest node, node1, has {CPU: 2}"
PACKED = (
    "Ray is asked for a placement group of 2 x {CPU: 2} (STRICT_PACK); the largest node, node1, has {CPU: 2}"
)
LABELLED = "Ray is asked for a task or actor with {CPU: 1, zone=b}; no node has the label zone=b"
FIXES = {
    LARGE: "Raise slurm.cpus_per_task by 1",
    PACKED: "Raise slurm.cpus_per_task by 2, or let the trainer use PACK",
    LABELLED: "Correct the label selector, or set the label with --labels in ray.args",
}


@pytest.fixture(scope="module")
def cluster(none_layout: Layout) -> Iterator[SlurmCluster]:
    with SlurmCluster(ClusterConfig(), none_layout) as cluster:
        yield cluster


@pytest.mark.full
def test_demands_that_no_node_can_hold(
    cluster: SlurmCluster, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", path_with_slurm(cluster, tmp_path / "commands"))
    monkeypatch.chdir(folder)
    (folder / "train.py").write_text(TRAINER)
    spec = {
        "slurm": {"nodes": 2, "cpus_per_task": 2, "mem": "1G"},
        "setup": bare.setup(),
        "container": {"runtime": "none"},
    }
    jobs = Jobs(cluster, folder)
    number = jobs.submit(yaml.safe_dump(spec), ["python3", "train.py"])
    lines = [f"] unplaceable: {text}. {fix}\n" for text, fix in FIXES.items()]
    for line in lines:
        jobs.wait_for(number, line)
    status, why = (
        slurmray("status", str(number)).stdout,
        " ".join(slurmray("why", str(number)).stdout.split()),
    )
    for text, fix in FIXES.items():
        assert f"  unplaceable: {text}. {fix}\n" in status
        assert f"Ray: {text}" in why
        assert f"fix: {fix}." in why
    (folder / "remove").touch()
    wait_until(lambda: PACKED not in slurmray("status", str(number)).stdout, lambda: jobs.log(number))
    assert slurmray("report", str(number), "--output", "page.html").returncode == 0
    page = (folder / "page.html").read_text()
    assert LABELLED in page
    assert PACKED not in page
    (folder / "end").touch()
    job = jobs.wait_end(number)
    assert job.code == "0:0", job.log
    assert job.log.count("] unplaceable: ") == len(lines), job.log  # none of what is only queued
