"""Images with other versions of Ray, also two under one name; Ray's environment and open ports."""

from __future__ import annotations

import dataclasses
import json
import re
import shutil
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from slurmray.rehearsal import machine
from slurmray.rehearsal.cluster.layout import Layout
from slurmray.rehearsal.cluster.slurm_cluster import SlurmCluster
from slurmray.rehearsal.cluster.slurm_conf import IMAGES, ClusterConfig, Gres
from slurmray.rehearsal.images import ray_image, stores
from slurmray.spec.container import DEFAULT_IMAGE

from .jobs import HANG, Job, Jobs

NO_TOKEN = "runs without a token: every user who can connect can run code"


def image(version: str) -> str:
    return f"docker.io/rayproject/ray:{version}-py311"


OLD = ("2.44.1", "both")
OTHERS = [("2.52.1", "v4"), ("2.52.1", "v6"), ("2.60.0", "v4")]
pytestmark = pytest.mark.full  # each builds an image


@pytest.fixture(
    scope="module",
    params=[OLD, *OTHERS],
    ids="-".join,
)
def cluster(podman_layout: Layout, request: pytest.FixtureRequest) -> Iterator[SlurmCluster]:
    """Two hosts with Podman, with this Ray version in the image and these addresses."""
    version, addresses = request.param
    cache = machine.cache_folder()
    store = stores.load("podman", cache, ray_image.archive(cache, image(version), print), print)
    cluster_config = ClusterConfig(gres=(Gres("gpu", "", 8),), features=(version,), addresses=addresses)
    assert podman_layout.store
    layout = dataclasses.replace(podman_layout, store=store, files=[podman_layout.store])
    with SlurmCluster(cluster_config, layout) as cluster:
        yield cluster


@pytest.fixture
def jobs(cluster: SlurmCluster, folder: Path) -> Jobs:
    shutil.copy(Path(__file__).with_name("inspect_ray.py"), folder)
    return Jobs(cluster, folder)


def inspect_ray(jobs: Jobs, more: str = "") -> tuple[Job, dict[str, Any]]:
    """Run inspect_ray.py as the trainer of a job on both nodes; return the job and seen.json."""
    [version] = jobs.cluster.config.features
    spec = (
        f"{{nodes: 2, gpus_per_node: 4, cpus_per_task: 2, mem: 1G}}\ncontainer: {{image: {image(version)}}}"
    )
    job = jobs.run(f"slurm: {spec}\n{more}", ["python3", "inspect_ray.py"], timeout=2 * HANG)
    assert job.code == "0:0", job.log
    seen: dict[str, Any] = json.loads((jobs.folder / "seen.json").read_text())
    assert seen["ray"] == version
    assert seen["nodes"].keys() == {"node1", "node2"}
    return job, seen


def test_a_job_with_this_ray(jobs: Jobs) -> None:
    job, seen = inspect_ray(jobs)
    has_tokens = not seen["ray"].startswith("2.44")
    assert (NO_TOKEN in job.log) == (not has_tokens)
    assert seen["metrics"] == []
    for name, node in seen["nodes"].items():
        assert node["modes"] == ["token" if has_tokens else "disabled"], name
        environment = node["environment"]
        links = jobs.cluster.run(["ip", "-o", "address"], host=name).stdout
        [interface] = re.findall(
            rf"^\d+: (\S+) +inet6? {re.escape(environment['VLLM_HOST_IP'])}/", links, re.M
        )
        assert environment["GLOO_SOCKET_IFNAME"] == interface
        assert "NCCL_SOCKET_IFNAME" not in environment  # the host has only one interface
        assert [key for key in environment if re.match("SLURM_|SLURMD|PMI", key)] == []
    stores = re.findall(r"--object-store-memory=(\d+)", (job.run / "logs/node2.log").read_text())
    assert stores == [str(2**30 * 3 // 10)]
    assert {node["memory"] for node in seen["nodes"].values()} == {2**30 - 2**30 * 3 // 10}


def test_metrics_are_exported_if_enabled(jobs: Jobs) -> None:
    seen = inspect_ray(jobs, "ray: {metrics: true}")[1]
    assert len(seen["metrics"]) == 3
    assert all(seen["gcs"] < port < seen["gcs"] + 16 for port in seen["metrics"])


def test_a_job_of_ray_with_this_ray(jobs: Jobs) -> None:
    run = "import os, ray; ray.init(); print(len(ray.nodes()), 'nodes', os.environ['NODE_RANK']); exit(3)"
    [version] = jobs.cluster.config.features
    spec = f"slurm: {{nodes: 2, cpus_per_task: 2, mem: 1G}}\ncontainer: {{image: {image(version)}}}\n"
    job = jobs.run(spec + "launch: ray-job", ["python3", "-c", run])
    assert job.last_line == "done: trainer exited with 3", job.log + dashboard_log(job)
    assert "\n2 nodes 0\n" in job.log


def dashboard_log(job: Job) -> str:
    """The dashboard's logs of the head node, which Ray's job API needs; "" if they were not kept."""
    path = job.run / "logs/node1-ray.tar.gz"
    if not path.exists():
        return ""
    with tarfile.open(path) as archive:
        files = {
            member.name: file.read().decode(errors="replace")
            for member in archive
            if member.name.startswith("dashboard") and (file := archive.extractfile(member))
        }
    return "\n".join(f"==> {name} <==\n{text}" for name, text in files.items())


@pytest.fixture
def mixed(cluster: SlurmCluster, podman_layout: Layout) -> Iterator[str]:
    """An image name for which node1 has a newer Ray than node2."""
    name = "localhost/mixed:1"
    commands = {
        "node1": f"mount --bind {podman_layout.store} {IMAGES} && podman tag {DEFAULT_IMAGE} {name}",
        "node2": f"podman tag {image(OLD[0])} {name}",
    }
    for node, command in commands.items():
        done = cluster.run(["bash", "-c", command], host=node)
        assert done.returncode == 0, done.stderr
    yield name
    for node in commands:
        cluster.run(["podman", "untag", name], host=node)
    cluster.run(["umount", IMAGES], host="node1")


@pytest.mark.parametrize("cluster", [OLD], indirect=True, ids=["old"])
def test_nodes_with_different_images_under_one_name(jobs: Jobs, mixed: str) -> None:
    job = jobs.run(f"slurm: {{nodes: 2, mem: 1G}}\ncontainer: {{image: {mixed}}}", ["echo", "trained"])
    assert job.code == "65:0", job.log
    found, head = (rf"Ray {re.escape(version)}, Python 3\.11\.\d+" for version in (OLD[0], "2.60.0"))
    fix = "use one image on all nodes, by digest, or one environment"
    text = rf"failed \(65 preflight\): node2: versions: {found}; {fix}"
    assert re.fullmatch(text, job.last_line), job.log
    row = job.findings["node2", "versions"]
    assert re.fullmatch(rf"{found} \| {head}, as on the head node \| {fix}", row), job.log
    assert "\ntrained\n" not in job.log


@pytest.mark.parametrize("cluster", [OLD], indirect=True, ids=["old"])
@pytest.mark.parametrize(
    ("more", "code", "text"),
    [
        (
            "ray: {auth: token}",
            "64:0",
            "ray.auth is token, and Ray 2.44.1 has no tokens. Use Ray 2.52 or later",
        ),
        ("network: {family: ipv6}", "65:0", "Ray 2.44 has no IPv6. Use an image with Ray 2.49 or later"),
    ],
    ids=["token", "ipv6"],
)
def test_features_that_an_old_ray_lacks(jobs: Jobs, more: str, code: str, text: str) -> None:
    job = jobs.run(f"slurm: {{nodes: 1, mem: 1G}}\ncontainer: {{image: {image(OLD[0])}}}\n{more}", ["true"])
    assert job.code == code, job.log
    assert text in job.last_line
