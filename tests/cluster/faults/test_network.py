"""The network of a host is cut for a while, and two hosts are lost at once."""

from __future__ import annotations

import subprocess
import time

import pytest

from slurmray.rehearsal.cluster.slurm_cluster import SlurmCluster
from slurmray.rehearsal.cluster.slurm_conf import ClusterConfig, Gres
from tests.cluster.jobs import HANG

from .case import KILL_WAIT, Fault
from .test_host_loss import boot_again

RUN = ["bash", "-c", "echo started; until [[ -e go ]]; do sleep 0.1; done; echo trained"]


@pytest.fixture
def cluster_config() -> ClusterConfig:
    """Three small hosts."""
    options = {"KillWait": str(KILL_WAIT)}
    nodes = ("node1", "node2", "node3")
    return ClusterConfig(nodes=nodes, cpus=2, gres=(Gres("gpu", "", 8),), options=options)


@pytest.mark.fault("a network cut that heals", "podman", "none")
@pytest.mark.parametrize("host", ["node2", "node1"])
@pytest.mark.full
def test_it_heals(fault: Fault, cluster: SlurmCluster, host: str) -> None:
    fault.start_trainer(RUN, slurm={"nodes": 3})
    time.sleep(4.5)  # the heartbeat after the next one begins a retransmission that ends after 25 s
    fault.start_clock()
    cluster.disconnect(host)
    time.sleep(20)
    cluster.reconnect(host)
    time.sleep(40)
    (fault.jobs.folder / "go").touch()
    job = fault.wait_end()
    assert (job.state, job.code) == ("COMPLETED", "0:0"), job.log


@pytest.mark.fault("a host is lost", "podman", "none")
@pytest.mark.full
def test_a_worker_that_only_slurmctld_reaches(fault: Fault, cluster: SlurmCluster) -> None:
    """It looks for heartbeats in the run directory, and leaves the job alone."""
    fault.start_trainer(RUN, slurm={"nodes": 3}, on_node_loss="continue")
    shown = cluster.run(["getent", "ahosts", "node1"], host="node2").stdout
    addresses = {line.split()[0] for line in shown.splitlines()}
    ip = ["nsenter", "-t", str(cluster.pids["node2"]), "-n", "ip"]
    fault.start_clock()
    for address in addresses:
        subprocess.run([*ip, "route", "add", "blackhole", address], check=True)
    fault.jobs.wait_for(fault.job, "] node loss: node2: no heartbeat for")
    time.sleep(30)
    assert cluster.job(fault.job)["JobState"] == "RUNNING", fault.log()
    for address in addresses:
        subprocess.run([*ip, "route", "del", "blackhole", address], check=True)
    (fault.jobs.folder / "go").touch()
    job = fault.wait_end("] node loss: node2: no heartbeat for", dead=True)
    assert (job.state, job.code) == ("COMPLETED", "0:0"), job.log
    fault.run_next_job(nodes=3)


@pytest.mark.fault("a host is lost", "podman", "none")
@pytest.mark.full
def test_two_at_once(fault: Fault, cluster: SlurmCluster) -> None:
    fault.start_trainer(slurm={"nodes": 3})
    fault.start_clock()
    cluster.power_off("node2")
    cluster.power_off("node3")
    job = fault.wait_end("node2 and node3: no heartbeat for", 45, dead=True, lost=True)
    assert job.last_line.startswith("failed (71 node lost): node2 and node3: no heartbeat for 25 s."), job.log
    cluster.power_on("node2")
    boot_again(cluster, "node3")
    assert cluster.wait(job.id, HANG) == ("FAILED", "71:0")


@pytest.mark.fault("a host is lost", "podman", "none")
@pytest.mark.full
def test_a_worker_that_reboots_at_once(fault: Fault, cluster: SlurmCluster) -> None:
    fault.start_trainer(slurm={"nodes": 3})
    fault.start_clock()
    cluster.power_off("node2")
    cluster.power_on("node2")
    job = fault.wait_end("node2: ", 45, dead=True)
    assert job.last_line.startswith("failed (71 node lost): node2: "), job.log
    fault.submit(["true"], slurm={"nodes": 3})
    fault.wait_end()
