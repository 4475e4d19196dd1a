"""A host loses power, or its network."""

from __future__ import annotations

import time

import pytest

from slurmray.rehearsal.cluster.lab import Lab
from tests.cluster.jobs import HANG, wait_until

from .case import Fault

# The host is lost when the log has this text.
MOMENTS = {"bring-up": "ray: head at", "training": "\nstarted\n"}
full = pytest.mark.full


@pytest.mark.fault("a host is lost", "podman", "docker", "none", "apptainer")
@pytest.mark.parametrize(
    ("way", "moment", "launch"),
    [
        pytest.param("power_off", "training", "exec", id="power_off-training"),
        pytest.param("cut", "training", "exec", marks=full, id="cut-training"),
        pytest.param("power_off", "bring-up", "exec", marks=full, id="power_off-bring-up"),
        pytest.param("cut", "bring-up", "exec", marks=full, id="cut-bring-up"),
        pytest.param("power_off", "training", "ray-job", marks=full, id="power_off-training-ray-job"),
    ],
)
def test_a_worker(fault: Fault, lab: Lab, way: str, moment: str, launch: str) -> None:
    fault.submit(launch=launch)
    fault.until(MOMENTS[moment])
    fault.mark()
    getattr(lab, way)("node2")
    job = fault.end("node2: no heartbeat for", 45, dead=True, lost=True)
    assert job.last_line.startswith("failed (71 node lost): node2: no heartbeat for 25 s."), job.log
    if way == "cut":  # the node that was cut off has cleaned up by itself
        assert not fault.left(lost=True)
        return
    come_back(lab, "node2")
    assert lab.wait(job.id, HANG) == ("FAILED", "71:0")
    fault.next_job()


@pytest.mark.fault("a host is lost", "podman", "docker")
@full
def test_a_worker_in_its_setup(fault: Fault, lab: Lab) -> None:
    fault.submit(setup="[[ $SLURMD_NODENAME != node2 ]] || { touch here; exec sleep 1000; }")
    wait_until((fault.jobs.folder / "here").exists, fault.log)
    fault.mark()
    lab.power_off("node2")
    job = fault.end("node2: no heartbeat for", 45, dead=True, lost=True)
    assert job.last_line.startswith("failed (71 node lost): node2: no heartbeat for 25 s."), job.log
    come_back(lab, "node2")
    fault.next_job()


@pytest.mark.fault("a host is lost", "podman", "docker")
@full
def test_the_job_continues(fault: Fault, lab: Lab) -> None:
    run = "echo started; until [[ -e go ]]; do sleep 0.1; done; echo trained"
    fault.train(["bash", "-c", run], on_node_loss="continue")
    fault.mark()
    lab.power_off("node2")
    fault.until("] node loss: node2: no heartbeat for")
    time.sleep(10)  # srun still sends to the lost node
    (fault.jobs.folder / "go").touch()
    job = fault.end(dead=True, lost=True)
    assert job.last_line == "done: trainer exited with 0", job.log
    come_back(lab, "node2")
    fault.next_job()


@pytest.mark.fault("a host is lost", "podman", "docker")
@full
def test_the_head_of_a_job_that_continues(fault: Fault, lab: Lab) -> None:
    fault.train(on_node_loss="continue")
    fault.mark()
    lab.power_off("node1")
    fault.end("node2: no heartbeat from the head node node1", 60, dead=True, lost=True)
    come_back(lab, "node1")
    assert lab.wait(fault.job, HANG)[0] == "CANCELLED"
    fault.next_job()


@pytest.mark.fault("a host is lost", "podman", "docker", "none", "apptainer")
@full
@pytest.mark.parametrize("way", ["power_off", "cut"])
def test_the_head(fault: Fault, lab: Lab, way: str) -> None:
    fault.train()
    fault.mark()
    getattr(lab, way)("node1")
    job = fault.end("node2: no heartbeat from the head node node1", 45, dead=True, lost=True)
    if way == "cut":
        assert not fault.left(lost=True)
        return
    come_back(lab, "node1")
    assert lab.wait(job.id, HANG)[0] == "CANCELLED"
    fault.next_job()


def come_back(lab: Lab, host: str) -> None:
    """Boot the host, and wait until Slurm has all nodes."""
    lab.power_on(host)
    states = ["sinfo", "--noheader", "--Node", "--format=%T"]
    wait_until(
        lambda: set(lab.run(states).stdout.split()) == {"idle"},
        lambda: lab.run(["scontrol", "show", "nodes"]).stdout,
    )
