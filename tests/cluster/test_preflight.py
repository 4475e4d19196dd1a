"""Preflight checks with Podman on a real Slurm."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from slurmray.rehearsal.cluster.slurm_cluster import SlurmCluster

from .jobs import Jobs

TWO = "slurm: {nodes: 2, cpus_per_task: 2, mem: 1G}\n"


@pytest.fixture
def jobs(podman_cluster: SlurmCluster, folder: Path) -> Jobs:
    return Jobs(podman_cluster, folder, "alice")


def test_all_findings_of_all_nodes_in_one_table(podman_cluster: SlurmCluster, jobs: Jobs) -> None:
    init = "git init -q . && git -c user.name=a -c user.email=a@b commit -q --allow-empty -m first"
    for host in ("node1", "node2"):  # the same path, but a separate tree on each node
        podman_cluster.run(["install", "-d", "-o", "alice", "/var/lib/tree"], host=host)
        assert (
            podman_cluster.run(["bash", "-c", init], "alice", host, folder=Path("/var/lib/tree")).returncode
            == 0
        )
    again = "git -c user.name=a -c user.email=a@b commit -q --allow-empty -m second"
    podman_cluster.run(["bash", "-c", again], "alice", "node2", folder=Path("/var/lib/tree"))
    (jobs.folder / "here").mkdir()
    checks = {"paths": ["here", "/no/such/file"], "same_commit": "/var/lib/tree"}
    spec = TWO + yaml.safe_dump({"checks": checks, "container": {"mounts": ["/no/such/data:/data"]}})
    job = jobs.run(spec, ["true"])
    assert job.code == "65:0", job.log
    found = job.findings
    for node in ("node1", "node2"):
        assert found[node, "checks.paths"].startswith("/no/such/file: no such file or directory | ")
        assert found[node, "mount"].startswith("/no/such/data: no such file or directory | ")
    assert ("node1", "checks.same_commit") not in found
    assert found["node2", "checks.same_commit"].endswith(" | git checkout there")
    assert job.log.count("] findings:\n") == 1
    events = [event for event in job.events if event["event"] == "finding"]
    assert {(event["node"], event["check"]) for event in events} == found.keys()
    assert "ray: head at" not in job.log


@pytest.mark.full
@pytest.mark.parametrize(("preflight", "shown"), [("warn", True), ("none", False)])
def test_findings_that_are_only_logged(jobs: Jobs, preflight: str, shown: bool) -> None:
    spec = TWO + yaml.safe_dump({"checks": {"paths": ["/no/such/file"]}, "preflight": preflight})
    job = jobs.run(spec, ["true"])
    assert job.code == "0:0", job.log
    assert set(job.findings) == ({("node1", "checks.paths"), ("node2", "checks.paths")} if shown else set())


def test_temp_folder_without_space(podman_cluster: SlurmCluster, jobs: Jobs) -> None:
    mount = "mkdir -p /run/small && mount -t tmpfs -o size=1M,mode=1777 tmpfs /run/small"
    podman_cluster.run(["mkdir", "-p", "-m", "1777", "/run/small"], host="node1")
    podman_cluster.run(["bash", "-c", mount], host="node2")
    try:
        job = jobs.run(TWO + "ray: {temp_dir: /run/small}", ["true"])
    finally:
        podman_cluster.run(["umount", "/run/small"], host="node2")
    assert job.code == "65:0", job.log
    assert job.findings["node2", "temp folder"].startswith("1 MB free in /run/small | 100 MB | ")
    assert ("node1", "temp folder") not in job.findings


@pytest.fixture
def unconnected_interfaces(podman_cluster: SlurmCluster) -> Iterator[None]:
    """Each node has an interface ib0 without a connection to the other node."""
    for number in (1, 2):
        up = (
            f"ip link add ib0 type bridge && ip address add 10.99.{number}.1/24 dev ib0 && ip link set ib0 up"
        )
        done = podman_cluster.run(["bash", "-c", up], host=f"node{number}")
        assert done.returncode == 0, done.stderr
    yield
    for number in (1, 2):
        podman_cluster.run(["ip", "link", "delete", "ib0"], host=f"node{number}")


@pytest.mark.usefixtures("unconnected_interfaces")
def test_nodes_that_cannot_reach_each_other(jobs: Jobs) -> None:
    job = jobs.run(TWO + "network: {interface: ib0}", ["true"])
    assert job.code == "65:0", job.log
    both = job.findings
    assert both["node2", "connection"].startswith("cannot reach the head node at 10.99.1.1:")
    assert both["node1", "connection"].startswith("cannot reach node2 at 10.99.2.1:")


@pytest.fixture
def node2_is_unconnected(podman_cluster: SlurmCluster) -> Iterator[None]:
    """Each node has an interface ib0, which connects node1 and node3."""
    ends = [str(podman_cluster.pids[node]) for node in ("node1", "node3")]
    pair = [
        "ip",
        "link",
        "add",
        "ib0",
        "netns",
        ends[0],
        "type",
        "veth",
        "peer",
        "name",
        "ib0",
        "netns",
        ends[1],
    ]
    subprocess.run(pair, check=True)
    try:
        for number in (1, 2, 3):
            up = f"ip address add 10.99.0.{number}/24 dev ib0 && ip link set ib0 up"
            script = up if number != 2 else f"ip link add ib0 type bridge && {up}"
            done = podman_cluster.run(["bash", "-c", script], host=f"node{number}")
            assert done.returncode == 0, done.stderr
        yield
    finally:
        for node in ("node1", "node2"):
            podman_cluster.run(["ip", "link", "delete", "ib0"], host=node)


@pytest.mark.full
@pytest.mark.usefixtures("node2_is_unconnected")
def test_a_spare_node_in_place_of_one_without_a_connection(jobs: Jobs) -> None:
    """Both ends find that there is none; only one of them is set aside."""
    job = jobs.run(TWO + "network: {interface: ib0}\nspares: 1", ["bash", "-c", "echo on $NNODES nodes"])
    assert job.code == "0:0", job.log
    assert {("node1", "connection"), ("node2", "connection")} == set(job.findings), job.log
    assert "; node3 takes the place of node2\n" in job.log, job.log


@pytest.mark.full
def test_closed_ephemeral_ports(podman_cluster: SlurmCluster, jobs: Jobs) -> None:
    """Ray gets ready, and tasks on node2 would wait for ever."""
    iptables = ["nsenter", "-t", str(podman_cluster.pids["node2"]), "-n", "iptables"]
    rule = ["INPUT", "-p", "tcp", "--syn", "--dport", "32768:60999", "-j", "DROP"]
    subprocess.run([*iptables, "-A", *rule], check=True)
    try:
        job = jobs.run(TWO, ["sleep", "100"])
    finally:
        subprocess.run([*iptables, "-D", *rule], check=True)
    assert job.code == "65:0", job.log
    assert set(job.findings) == {("node1", "connection")}, job.log
    found = re.match(r"cannot reach node2 at [0-9.]+:(\d+) \| ", job.findings["node1", "connection"])
    assert found, job.log
    assert 32768 <= int(found[1]) <= 60999


def test_a_setup_that_fails(jobs: Jobs) -> None:
    setup = "[[ $SLURMD_NODENAME != node2 ]] || { echo no such module >&2; exit 3; }"
    job = jobs.run(TWO + yaml.safe_dump({"setup": setup}), ["true"])
    assert (job.state, job.code) == ("FAILED", "65:0"), job.log
    assert job.last_line.startswith("failed (65 preflight): node2: setup exited with 3: no such module. "), (
        job.log
    )
