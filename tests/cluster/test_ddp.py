"""Jobs with PyTorch on a real Slurm: examples/ddp.yaml, and a burn-in."""

from __future__ import annotations

import dataclasses
import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from slurmray.rehearsal import machine
from slurmray.rehearsal.cluster.layout import Layout
from slurmray.rehearsal.cluster.slurm_cluster import SlurmCluster
from slurmray.rehearsal.cluster.slurm_conf import ClusterConfig
from slurmray.rehearsal.images import ray_image, stores

from .jobs import Jobs

ROOT = Path(__file__).parents[2]
IMAGE = "localhost/ray-torch:1"
# Debian's PyTorch is without CUDA, and built for NumPy 1.
DEBIAN, WHEELS = ["python3-torch"], ["ray[train]", "numpy<2", "pyarrow<20"]
STEPS, MEGABYTES = 20, 256 * 1024 * 4 / 1e6  # of the example: training steps, size of the gradients


@pytest.fixture(scope="module")
def cluster(podman_layout: Layout) -> Iterator[SlurmCluster]:
    """Two hosts with PyTorch in the image, and with a second interface ib0."""
    cache = machine.cache_folder()
    store = stores.load("podman", cache, ray_image.archive(cache, IMAGE, print, DEBIAN, WHEELS), print)
    with SlurmCluster(ClusterConfig(), dataclasses.replace(podman_layout, store=store)) as cluster:
        for number, node in enumerate(cluster.config.nodes, start=1):
            add = "ip link add link eth0 name ib0 type macvlan mode bridge && ip link set ib0 up"
            command = f"{add} && ip address add 10.99.0.{number}/24 dev ib0"
            done = cluster.run(["bash", "-c", command], host=node)
            assert done.returncode == 0, done.stderr
        yield cluster


@pytest.mark.full  # builds its image in minutes
def test_two_hosts_train_together(cluster: SlurmCluster, folder: Path) -> None:
    shutil.copytree(ROOT / "examples", folder / "examples")
    jobs = Jobs(cluster, folder)
    spec = (ROOT / "examples/ddp.yaml").read_text()
    assert "interface: null" in spec
    number = jobs.submit(spec.replace("interface: null", "interface: ib0"))
    cluster.wait(number, 900)  # importing PyTorch and Ray Train takes long
    job = jobs.wait_end(number)
    assert job.code == "0:0", job.log
    line = r"^(node\d): sent (\d+) MB over (\S+), loss ([\d.]+) -> ([\d.]+), gradient (\S+)$"
    hosts, sent, interfaces, first, last, gradients = zip(
        *re.findall(line, job.log, re.MULTILINE), strict=True
    )
    assert sorted(hosts) == ["node1", "node2"]
    assert set(interfaces) == {"ib0"}
    assert all(int(megabytes) >= int(STEPS * MEGABYTES) for megabytes in sent), job.log
    assert all(float(end) < float(begin) for begin, end in zip(first, last, strict=True)), job.log
    assert len(set(gradients)) == 1


@pytest.mark.full  # needs the same image
def test_burn_in(cluster: SlurmCluster, folder: Path) -> None:
    """On CPUs, with Gloo. What it starts has ended before the next stage begins."""
    jobs = Jobs(cluster, folder)
    spec = {
        "slurm": {"nodes": 2, "cpus_per_task": 2, "mem": "3G"},
        "container": {"image": IMAGE, "pull": "never"},
        "checks": {"burn_in": 3},
        "prepare": [{"name": "after", "run": "! grep -al burn-in /proc/[0-9]*/cmdline", "where": "all"}],
    }
    number = jobs.submit(yaml.safe_dump(spec), ["true"])
    cluster.wait(number, 600)
    job = jobs.wait_end(number)
    assert job.code == "0:0", job.log
    events = map(json.loads, (folder / f"slurmray-runs/{number}-0/events.jsonl").read_text().splitlines())
    figures = {event["node"]: event for event in events if event["event"] == "burn_in"}
    assert sorted(figures) == ["node1", "node2"]
    for event in figures.values():
        assert (event["kind"], len(event["products"]), len(event["copies"])) == ("CPU", 1, 1)
        assert min(*event["products"], *event["copies"], event["pairs"]) > 0
    assert "burn-in, the slowest nodes first:" in job.log
