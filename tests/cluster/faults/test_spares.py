"""A spare node takes the place of a node that fails, in the same allocation."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from slurmray.rehearsal.cluster.slurm_cluster import SlurmCluster
from slurmray.rehearsal.cluster.slurm_conf import ClusterConfig, Gres
from tests.cluster.jobs import HANG, Job

from .case import KILL_WAIT, Fault
from .test_host_loss import boot_again

ROW = "a spare node"
# Waits in its first start, then names the nodes that Ray has.
_FIRST = "((SLURMRAY_RESTART)) || { echo started; exec sleep infinity; }; echo restart $SLURMRAY_RESTART"
_NODES = "import ray; ray.init(); print('in Ray:', *sorted(row['NodeName'] for row in ray.nodes()))"
TRAINER = ["bash", "-c", f'{_FIRST} on $NNODES; exec python3 -c "{_NODES}"']

# On the last node.
PLACES = {"name": "places", "run": "echo $NNODES nodes; exec sleep infinity", "where": 1, "shared": True}


@pytest.fixture
def cluster_config() -> ClusterConfig:
    """Three small hosts."""
    options = {"KillWait": str(KILL_WAIT)}
    nodes = ("node1", "node2", "node3")
    return ClusterConfig(nodes=nodes, cpus=2, gres=(Gres("gpu", "", 8),), options=options)


def restarts(job: Job) -> list[dict[str, object]]:
    lines = (job.run / "events.jsonl").read_text().splitlines()
    return [event for event in map(json.loads, lines) if event["event"] == "restart"]


def check_restarted(job: Job, nodes: Sequence[str] = ("node1", "node3")) -> None:
    """Check that the trainer ran again on these nodes, once."""
    assert job.last_line == "done: trainer exited with 0", job.log
    assert f"\nrestart 1 on {len(nodes)}\n" in job.log, job.log
    assert "\nin Ray: " + " ".join(nodes) in job.log, job.log
    (restart,) = restarts(job)
    assert (restart["restart"], restart["nodes"], restart["spares"]) == (1, [*nodes], [])


@pytest.mark.fault(ROW, "podman", "docker", "none", "apptainer", "pyxis")
def test_a_raylet_dies(fault: Fault) -> None:
    fault.start_trainer(TRAINER, spares=1, on_node_loss="restart")
    fault.kill("node2", "--full", "raylet/raylet")
    fault.wait_for_log("restart 1 of 3: node2: ray start exited with")
    check_restarted(fault.wait_end())


@pytest.mark.fault(ROW, "podman", "docker", "none", "apptainer", "pyxis")
def test_the_container_of_the_head_dies(fault: Fault) -> None:
    fault.start_trainer(TRAINER, spares=1, on_node_loss="restart")
    fault.kill_container("node1")
    check_restarted(fault.wait_end("restart 1 of 3: node1: "), ["node2", "node3"])


@pytest.mark.fault(ROW, "podman", "docker", "none", "apptainer")
def test_a_host_loses_power(fault: Fault, cluster: SlurmCluster) -> None:
    fault.start_trainer(TRAINER, spares=1, on_node_loss="restart")
    fault.start_clock()
    cluster.power_off("node2")
    job = fault.wait_end("restart 1 of 3: node2: no heartbeat for 25 s", 45, dead=True, lost=True)
    check_restarted(job)
    assert "; node3 takes the place of node2\n" in job.log
    boot_again(cluster, "node2")
    assert cluster.wait(job.id, HANG) == ("COMPLETED", "0:0")
    fault.run_next_job()


@pytest.mark.fault(ROW, "podman", "none")
def test_a_node_that_fails_its_checks(fault: Fault, cluster: SlurmCluster) -> None:
    for host in ("node1", "node3"):
        assert cluster.run(["touch", "/run/only-here"], host=host).returncode == 0
    fault.submit(["bash", "-c", "echo $NNODES nodes"], spares=1, checks={"paths": ["/run/only-here"]})
    job = fault.wait_end()
    assert job.last_line == "done: trainer exited with 0", job.log
    assert "start again: node2: " in job.log, job.log
    (restart,) = restarts(job)
    assert (restart["restart"], restart["nodes"]) == (0, ["node1", "node3"])


@pytest.mark.fault(ROW, "podman", "docker", "none", "apptainer", "pyxis")
def test_fewer_nodes_when_no_spare_node_is_left(fault: Fault) -> None:
    fewer: dict[str, Any] = {"on_node_loss": "restart", "restart": {"min_nodes": 1}}
    fault.start_trainer(TRAINER, spares=0, slurm={"nodes": 3}, services=[PLACES], **fewer)
    fault.kill("node2", "--full", "raylet/raylet")
    job = fault.wait_end("restart 1 of 3: node2: ray start exited with")
    assert "; on 2 of 3 nodes, without node2\n" in job.log, job.log
    check_restarted(job)
    assert (job.run / "logs/service-places@node3.log").read_text().endswith("\n2 nodes\n")


@pytest.mark.fault(ROW, "podman", "none")
def test_fewer_nodes_after_a_host_has_lost_power(fault: Fault, cluster: SlurmCluster) -> None:
    fewer: dict[str, Any] = {"on_node_loss": "restart", "restart": {"min_nodes": 1}}
    fault.start_trainer(TRAINER, spares=0, **fewer)
    cluster.power_off("node2")
    job = fault.wait_end("restart 1 of 3: node2: no heartbeat for 25 s", 45, dead=True, lost=True)
    check_restarted(job, ["node1"])
    boot_again(cluster, "node2")
    assert cluster.wait(job.id, HANG) == ("COMPLETED", "0:0")
    fault.run_next_job()
