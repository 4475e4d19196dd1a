"""examples/ddp.yaml on a real Slurm: two hosts train together, by the interface that the job spec names."""

from __future__ import annotations

import dataclasses
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from slurmray.rehearsal import machine
from slurmray.rehearsal.cluster.config import Cluster
from slurmray.rehearsal.cluster.lab import Lab
from slurmray.rehearsal.cluster.layout import Layout
from slurmray.rehearsal.images import ray_image, stores

from .jobs import Jobs

ROOT = Path(__file__).parents[2]
IMAGE = "localhost/ray-torch:1"
# Debian's PyTorch has no CUDA in it, and is built for NumPy 1.
DEBIAN, WHEELS = ["python3-torch"], ["ray[train]", "numpy<2", "pyarrow<20"]
STEPS, MEGABYTES = 20, 256 * 1024 * 4 / 1e6  # of the example; the size of its gradients


@pytest.fixture
def lab(podman_layout: Layout) -> Iterator[Lab]:
    """Two hosts with an image that has PyTorch, and with a second interface, ib0."""
    cache = machine.cache_folder()
    store = stores.podman_store(cache, ray_image.archive(cache, IMAGE, print, DEBIAN, WHEELS), print)
    with Lab(Cluster(), dataclasses.replace(podman_layout, store=store)) as lab:
        for number, node in enumerate(lab.cluster.nodes, start=1):
            add = "ip link add link eth0 name ib0 type macvlan mode bridge && ip link set ib0 up"
            own = f"{add} && ip address add 10.99.0.{number}/24 dev ib0"
            done = lab.run(["bash", "-c", own], host=node)
            assert done.returncode == 0, done.stderr
        yield lab


@pytest.mark.full  # its image takes minutes
def test_two_hosts_train_together(lab: Lab, folder: Path) -> None:
    shutil.copytree(ROOT / "examples", folder / "examples")
    jobs = Jobs(lab, folder)
    spec = (ROOT / "examples/ddp.yaml").read_text()
    assert "interface: null" in spec
    number = jobs.submit(spec.replace("interface: null", "interface: ib0"))
    lab.wait(number, 900)  # PyTorch and Ray Train take their time to be imported
    job = jobs.end(number)
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
