"""Decisions of the controller when several things happen at once; see also test_decisions.py."""

from __future__ import annotations

from pathlib import Path

import pytest

from ..simulation import Cluster
from .test_process import HANG, Job


def events(cluster: Cluster) -> list[str]:
    return [name for name, _ in cluster.log.events]


def test_a_worker_fails_after_the_trainer_has_failed_because_of_it() -> None:
    cluster = Cluster()
    cluster.train()
    cluster.receive("node1", "exit", code=1)
    for node in ("node1", "node3"):
        cluster.receive(node, "healthy")
    assert not cluster.wait(2), "node2 has not answered yet"
    cluster.receive("node2", "failed", kind="ray", message="ray start exited with 1")
    assert cluster.wait(1)
    end = cluster.end()
    assert (end.code, end.source, end.kind, end.node) == (71, "slurmray", "node_lost", "node2")
    text = "failed (71 node lost): node2: ray start exited with 1; the trainer exited with 1"
    assert end.text == text


def test_controller_waits_for_a_signalled_worker_after_the_trainer_has_failed() -> None:
    cluster = Cluster()
    cluster.train()
    cluster.receive("node2", "signalled")
    cluster.receive("node1", "exit", code=1)
    cluster.receive_from_all("healthy")
    assert not cluster.wait(8), "it ends only after its grace period"
    cluster.receive("node2", "gone")
    assert cluster.wait(1)
    end = cluster.end()
    assert (end.code, end.node) == (71, "node2")
    assert end.text.endswith(
        "container exited unexpectedly (not stopped by Slurm); the trainer exited with 1"
    )


def test_a_lost_worker_is_not_the_cause_if_on_node_loss_is_continue() -> None:
    cluster = Cluster(on_node_loss="continue")
    cluster.train()
    cluster.receive("node2", "signalled")
    cluster.receive("node2", "gone")
    assert not cluster.wait(3)
    cluster.receive("node1", "exit", code=5)
    cluster.receive_from_all("healthy")
    assert cluster.wait(1)
    end = cluster.end()
    assert (end.code, end.source) == (5, "trainer")
    assert events(cluster).count("node_loss") == 1


def test_a_signalled_head_node_whose_trainer_has_succeeded() -> None:
    cluster = Cluster()
    cluster.train()
    cluster.receive("node1", "signalled")
    cluster.receive("node1", "exit", code=0)
    assert cluster.wait(1)
    end = cluster.end()
    assert (end.code, end.source) == (0, "trainer")


def test_a_node_without_heartbeat_after_the_end_is_not_lost() -> None:
    for on_node_loss in ("fail", "continue"):
        cluster = Cluster(on_node_loss=on_node_loss)
        cluster.train()
        cluster.receive("node1", "exit", code=0)
        assert cluster.wait(1)
        cluster.controller.begin_end()
        cluster.lost.add("node2")
        for _ in range(60):  # seconds
            cluster.now += 1
            cluster.receive_from_all("heartbeat", doing="")
            cluster.controller.tick(cluster.now)
        for node in ("node1", "node3"):
            cluster.receive(node, "gone")
        assert cluster.controller.all_nodes_ended(), "no wait for srun"
        end = cluster.controller.outcome(0)
        assert (end.code, end.source) == (0, "trainer")
        assert "node_loss" not in events(cluster)


def test_a_worker_that_ends_because_slurm_signals_only_the_tasks() -> None:
    """Slurm does so for a preemption with GraceTime."""
    cluster = Cluster()
    cluster.train()
    for node in ("node1", "node2"):
        cluster.receive(node, "stop_requested")
    cluster.receive("node2", "gone")
    assert not cluster.wait(2)
    cluster.receive("node1", "exit", code=143)
    assert cluster.wait(1)
    end = cluster.end()
    assert (end.code, end.source) == (143, "trainer")
    assert "stop" in events(cluster)


@pytest.mark.parametrize("code", [0, 5])
def test_a_log_on_a_full_disk_does_not_change_the_exit_code(code: int, tmp_path: Path) -> None:
    (tmp_path / "log").symlink_to("/dev/full")
    job = Job(tmp_path, str(code))
    try:
        assert job.process.wait(HANG) == code
    finally:
        job.process.kill()
