"""A host loses power, or its network."""

from __future__ import annotations

import time

import pytest

from slurmray.rehearsal.cluster.slurm_cluster import SlurmCluster
from tests.cluster.jobs import HANG, wait_until

from .case import Fault

# Moment -> the host is lost when the log has this text.
MOMENTS = {"bring-up": "ray: head at", "training": "\nstarted\n"}
full = pytest.mark.full


@pytest.mark.fault("a host is lost", "podman", "docker", "none", "apptainer", "pyxis")
@pytest.mark.parametrize(
    ("way", "moment", "launch"),
    [
        pytest.param("power_off", "training", "exec", marks=full, id="power_off-training"),
        pytest.param("disconnect", "training", "exec", marks=full, id="cut-training"),
        pytest.param("power_off", "bring-up", "exec", marks=full, id="power_off-bring-up"),
        pytest.param("disconnect", "bring-up", "exec", marks=full, id="cut-bring-up"),
        pytest.param("power_off", "training", "ray-job", marks=full, id="power_off-training-ray-job"),
    ],
)
def test_a_worker(fault: Fault, cluster: SlurmCluster, way: str, moment: str, launch: str) -> None:
    fault.submit(launch=launch)
    fault.wait_for_log(MOMENTS[moment])
    fault.start_clock()
    getattr(cluster, way)("node2")
    job = fault.wait_end("node2: no heartbeat for", 45, dead=True, lost=True)
    assert job.last_line.startswith("failed (71 node lost): node2: no heartbeat for 25 s."), job.log
    if way == "disconnect":  # the disconnected node has cleaned up by itself
        assert not fault.leftovers(lost=True)
        return
    boot_again(cluster, "node2")
    assert cluster.wait(job.id, HANG) == ("FAILED", "71:0")
    fault.run_next_job()


@pytest.mark.fault("a host is lost", "podman", "docker")
@full
def test_a_worker_in_its_setup(fault: Fault, cluster: SlurmCluster) -> None:
    fault.submit(setup="[[ $SLURMD_NODENAME != node2 ]] || { touch here; exec sleep 1000; }")
    wait_until((fault.jobs.folder / "here").exists, fault.log)
    fault.start_clock()
    cluster.power_off("node2")
    job = fault.wait_end("node2: no heartbeat for", 45, dead=True, lost=True)
    assert job.last_line.startswith("failed (71 node lost): node2: no heartbeat for 25 s."), job.log
    boot_again(cluster, "node2")
    fault.run_next_job()


@pytest.mark.fault("a host is lost", "podman", "docker")
@full
def test_the_job_continues(fault: Fault, cluster: SlurmCluster) -> None:
    run = "echo started; until [[ -e go ]]; do sleep 0.1; done; echo trained"
    fault.start_trainer(["bash", "-c", run], on_node_loss="continue")
    fault.start_clock()
    cluster.power_off("node2")
    fault.wait_for_log("] node loss: node2: no heartbeat for")
    time.sleep(10)  # meanwhile srun still sends to the lost node
    # As slurmctld does after SlurmdTimeout.
    cluster.run(["scontrol", "update", "NodeName=node2", "State=DOWN", "Reason=lost"])
    time.sleep(2)
    (fault.jobs.folder / "go").touch()
    job = fault.wait_end(dead=True, lost=True)
    assert job.last_line == "done: trainer exited with 0", job.log
    boot_again(cluster, "node2")
    fault.run_next_job()


@pytest.mark.fault("a host is lost", "podman", "docker")
@full
def test_the_head_of_a_job_that_continues(fault: Fault, cluster: SlurmCluster) -> None:
    fault.start_trainer(on_node_loss="continue")
    fault.start_clock()
    cluster.power_off("node1")
    fault.wait_end("node2: no heartbeat from the head node node1", 60, dead=True, lost=True)
    boot_again(cluster, "node1")
    assert cluster.wait(fault.job, HANG)[0] == "CANCELLED"
    fault.run_next_job()


@pytest.mark.fault("a host is lost", "podman", "docker", "none", "apptainer")
@full
@pytest.mark.parametrize("way", ["power_off", "disconnect"], ids=["power_off", "cut"])
def test_the_head(fault: Fault, cluster: SlurmCluster, way: str) -> None:
    fault.start_trainer()
    fault.start_clock()
    getattr(cluster, way)("node1")
    if way == "disconnect":  # the controller writes heartbeats into the run directory until it ends
        fault.wait_end("node1: no heartbeat from any other node", 90, lost=True)
        assert "node2: no heartbeat from the head node node1 for 25 s" in fault.log()
        return
    job = fault.wait_end("node2: no heartbeat from the head node node1", 45, dead=True, lost=True)
    boot_again(cluster, "node1")
    assert cluster.wait(job.id, HANG)[0] == "CANCELLED"
    fault.run_next_job()


def boot_again(cluster: SlurmCluster, host: str) -> None:
    """Boot the host, and wait until all nodes are idle."""
    cluster.power_on(host)
    states = ["sinfo", "--noheader", "--Node", "--format=%T"]
    wait_until(
        lambda: set(cluster.run(states).stdout.split()) == {"idle"},
        lambda: cluster.run(["scontrol", "show", "nodes"]).stdout,
    )
