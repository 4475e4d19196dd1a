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
@pytest.mark.parametrize(("timeout", "seconds"), [(25, 23), (10, 8)], ids=["default", "shortest"])
@pytest.mark.full
def test_it_heals(fault: Fault, cluster: SlurmCluster, host: str, timeout: int, seconds: int) -> None:
    """A cut that is 2 s shorter than heartbeat_timeout."""
    fault.start_trainer(RUN, slurm={"nodes": 3}, heartbeat_timeout=timeout)
    fault.start_clock()
    cluster.disconnect(host)
    time.sleep(seconds)
    cluster.reconnect(host)
    time.sleep(2 * timeout)
    (fault.jobs.folder / "go").touch()
    job = fault.wait_end()
    assert (job.state, job.code) == ("COMPLETED", "0:0"), job.log


def change_routes(cluster: SlurmCluster, verb: str) -> None:
    """Add or delete routes that drop what node2 sends to node1."""
    shown = cluster.run(["getent", "ahosts", "node1"], host="node2").stdout
    ip = ["nsenter", "-t", str(cluster.pids["node2"]), "-n", "ip"]
    for address in {line.split()[0] for line in shown.splitlines()}:
        subprocess.run([*ip, "route", verb, "blackhole", address], check=True)


@pytest.mark.fault("a host is lost", "podman", "none")
@pytest.mark.full
def test_a_worker_that_only_slurmctld_reaches(fault: Fault, cluster: SlurmCluster) -> None:
    """It looks for heartbeats in the run directory, and leaves the job alone."""
    fault.start_trainer(RUN, slurm={"nodes": 3}, on_node_loss="continue")
    fault.start_clock()
    change_routes(cluster, "add")
    fault.jobs.wait_for(fault.job, "] node loss: node2: no heartbeat for")
    time.sleep(30)
    assert cluster.job(fault.job)["JobState"] == "RUNNING", fault.log()
    change_routes(cluster, "del")
    (fault.jobs.folder / "go").touch()
    job = fault.wait_end("] node loss: node2: no heartbeat for", dead=True)
    assert (job.state, job.code) == ("COMPLETED", "0:0"), job.log
    fault.run_next_job(nodes=3)


@pytest.mark.fault("a host is lost", "podman", "none")
@pytest.mark.full
def test_a_host_that_has_booted_again(fault: Fault, cluster: SlurmCluster) -> None:
    """Nothing of it reaches the head node, and only slurmctld knows."""
    fault.start_trainer(slurm={"nodes": 3}, heartbeat_timeout=300)
    fault.start_clock()
    change_routes(cluster, "add")
    time.sleep(8)  # slurmctld is asked for the first time
    # -b: as after a boot of the host.
    again = "kill $(cat /run/slurmd.pid); while [[ -e /run/slurmd.pid ]]; do sleep 0.1; done; slurmd -b"
    assert cluster.run(["bash", "-c", again], host="node2").returncode == 0
    job = fault.wait_end("node2: its host has booted again", 45, dead=True, lost=True)
    assert job.last_line.startswith("failed (71 node lost): node2: its host has booted again"), job.log
    change_routes(cluster, "del")
    assert cluster.wait(job.id, HANG) == ("FAILED", "71:0")
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
