"""Decisions of the controller when several things happen at once; see also test_decisions.py."""

from __future__ import annotations

import shutil
import signal
from pathlib import Path
from typing import Any

import pytest

from ..simulation import Cluster
from .test_controller_process import Job


def test_a_worker_fails_after_the_trainer_has_failed_because_of_it() -> None:
    cluster = Cluster().train()
    cluster.exit(1, "node1", "node3")
    assert not cluster.wait(2), "node2 has not answered yet"
    cluster.receive("node2", "failed", kind="ray", message="ray start exited with 1")
    end = cluster.end(1)
    assert (end.code, end.source, end.kind, end.node) == (71, "slurmray", "node_lost", "node2")
    message = "failed (71 node lost): node2: ray start exited with 1; the trainer exited with 1"
    assert end.text == message


def test_controller_waits_for_a_signalled_worker_after_the_trainer_has_failed() -> None:
    cluster = Cluster().train()
    cluster.receive("node2", "signalled")
    cluster.exit(1, *cluster.nodes)
    assert not cluster.wait(8), "it ends only after its grace period"
    cluster.receive("node2", "gone")
    end = cluster.end(1)
    assert (end.code, end.node) == (71, "node2")
    assert end.text.endswith(
        "container exited unexpectedly (not stopped by Slurm); the trainer exited with 1"
    )


def test_a_lost_worker_is_not_the_cause_if_on_node_loss_is_continue() -> None:
    cluster = Cluster(on_node_loss="continue").train()
    cluster.receive("node2", "signalled")
    cluster.receive("node2", "gone")
    assert not cluster.wait(3)
    cluster.exit(5, *cluster.nodes)
    end = cluster.end(1)
    assert (end.code, end.source) == (5, "trainer")
    assert len(cluster.events("node_loss")) == 1


def test_a_node_without_heartbeat_after_the_end_is_not_lost() -> None:
    for on_node_loss in ("fail", "continue"):
        cluster = Cluster(on_node_loss=on_node_loss).train()
        cluster.exit(0)
        assert cluster.wait(1)
        cluster.controller.begin_end()
        cluster.lost.add("node2")
        for _ in range(60):  # seconds
            cluster.now += 1
            cluster.receive_from_all("heartbeat", doing="")
            cluster.controller.tick(cluster.now)
        for node in ("node1", "node3"):
            cluster.receive(node, "gone")
        assert cluster.controller.have_all_nodes_ended(), "no wait for srun"
        end = cluster.outcome(0)
        assert (end.code, end.source) == (0, "trainer")
        assert not cluster.events("node_loss")


def test_a_worker_that_ends_because_slurm_signals_only_the_tasks() -> None:
    """Slurm does so for a preemption with GraceTime."""
    cluster = Cluster().train()
    for node in ("node1", "node2"):
        cluster.receive(node, "stop_requested")
    cluster.receive("node2", "gone")
    assert not cluster.wait(2)
    cluster.exit(143)
    end = cluster.end(1)
    assert (end.code, end.source) == (143, "trainer")
    assert cluster.events("stop")


def test_the_step_of_a_service_ends() -> None:
    cluster = Cluster().train()
    assert cluster.has_started_services
    cluster.controller.losses.on_service_step_over("web", ["node2"], 1, cluster.now)
    assert not cluster.wait(3), "Slurm may be ending the job"
    cluster.controller.losses.on_service_step_over("web", ["node2"], 1, cluster.now)
    assert cluster.wait(1)
    assert cluster.controller.logs_to_show() == ["service-web"]
    end = cluster.end()
    assert (end.code, end.kind) == (70, "service")
    message = "failed (70 service): the step of service web ended, srun exited with 1. Its log has the reason"
    assert end.text == message


def test_slurm_ends_the_step_of_a_service_before_the_batch_script() -> None:
    cluster = Cluster().train()
    cluster.controller.losses.on_service_step_over("web", ["node2"], 143, cluster.now)
    assert not cluster.wait(2)
    cluster.controller.requests.is_stopping = True
    assert not cluster.wait(5)
    cluster.exit(0)
    assert cluster.end(1).code == 0


@pytest.mark.parametrize("is_lost", [True, False])
def test_the_step_of_a_service_ends_with_its_last_node(is_lost: bool) -> None:
    """srun notices before there are too few heartbeats."""
    cluster = Cluster(on_node_loss="continue").train()
    cluster.controller.losses.on_service_step_over("web", ["node2"], 1, cluster.now)
    cluster.lost = {"node2"} if is_lost else set()
    assert not cluster.wait(25)
    assert cluster.wait(60) != is_lost


def test_services_do_not_start_where_a_node_is_unfit() -> None:
    cluster = Cluster()
    cluster.report("node1")
    cluster.check()
    assert not cluster.has_started_services


@pytest.mark.parametrize(("runtime", "code"), [("pyxis", 66), ("none", 67)])
def test_no_task_has_started(runtime: str, code: int) -> None:
    cluster = Cluster(container={"runtimes": [runtime]})
    cluster.controller.losses.on_step_over(cluster.nodes, cluster.now)
    assert cluster.outcome(1).code == code


def test_the_loss_of_the_head_node_is_not_taken_for_a_failure_of_its_output() -> None:
    """The head node is another host than the batch script's."""
    cluster = Cluster().train()
    cluster.controller.losses.on_output_step_over(1, cluster.now)
    cluster.lost = {"node1"}
    assert cluster.wait(60)
    assert "no heartbeat for 25 s" in cluster.end().text


@pytest.mark.parametrize("exits", [False, True])
def test_the_trainer_s_output_cannot_be_read(exits: bool) -> None:
    """The head node is another host than the batch script's. The trainer waits for a reader, or has run."""
    cluster = Cluster().train()
    cluster.controller.losses.on_output_step_over(1, cluster.now)
    assert not cluster.wait(25)
    if exits:
        cluster.exit(3, *cluster.nodes)
    assert cluster.wait(12)
    text = "the step that copies the trainer's output ended, srun exited with 1"
    wanted = "done: trainer exited with 3" if exits else f"failed (71 node lost): node1: {text}"
    assert cluster.end().text == wanted


NODE_FAILURE = "srun: error: Node failure on node2"


@pytest.mark.parametrize("order", ["srun, stop", "stop, srun", "stop, end, srun"])
@pytest.mark.parametrize("code", [None, 143])
def test_slurm_ends_the_job_for_a_lost_node(order: str, code: int | None) -> None:
    """Slurm's SIGTERM may come before or after srun's message: the job was not cancelled."""
    cluster = Cluster().train()
    for what in order.split(", "):
        if what == "stop":
            cluster.controller.requests.is_stopping = True
        elif what == "srun":
            cluster.controller.on_srun_error(NODE_FAILURE, cluster.nodes)
        else:
            cluster.controller.begin_end()
        cluster.controller.tick(cluster.now)
    if code is not None:
        cluster.controller.state.trainer_code = code
    end = cluster.end()
    assert (end.code, end.source, end.kind, end.node) == (71, "slurmray", "node_lost", "node2")
    text = "failed (71 node lost): node2: Slurm has marked it down. Has it lost power or its network?"
    assert end.text == text + ("; the trainer exited with 143" if code else "")


@pytest.mark.parametrize("is_lost_first", [True, False])
def test_a_node_is_lost_before_or_after_scancel(is_lost_first: bool) -> None:
    """By its heartbeats: the first of both has ended the job."""
    cluster = Cluster().train()
    cluster.controller.requests.is_stopping = not is_lost_first
    cluster.lost.add("node2")
    for _ in range(45):
        cluster.now += 1
        if cluster.now % 5 == 0:
            cluster.receive_from_all("heartbeat", doing="")
        cluster.controller.tick(cluster.now)
    cluster.controller.requests.is_stopping = True
    assert cluster.controller.state.failure
    end = cluster.end()
    assert (end.code, end.source) == ((71, "slurmray") if is_lost_first else (143, "slurm"))


@pytest.mark.parametrize("more", [{"on_node_loss": "restart"}, {"on_node_loss": "continue"}, {"spares": 1}])
def test_slurm_does_not_end_a_job_that_may_lose_nodes(more: dict[str, Any]) -> None:
    """With --no-kill: its SIGTERM is for something else."""
    cluster = Cluster(**more).train()
    cluster.controller.requests.is_stopping = True
    cluster.controller.on_srun_error(NODE_FAILURE, cluster.nodes)
    end = cluster.end()
    assert (end.code, end.source) == (143, "slurm")


def test_a_trainer_that_has_succeeded_needs_no_nodes() -> None:
    cluster = Cluster().train()
    cluster.exit(0)
    cluster.controller.requests.is_stopping = True
    cluster.controller.on_srun_error(NODE_FAILURE, cluster.nodes)
    assert (cluster.end().code, cluster.end().source) == (0, "trainer")


def test_a_host_that_is_lost_after_the_trainer_has_succeeded() -> None:
    """Neither ends the job: srun's own line is enough, and a cut-off head node cannot take back an end."""
    cluster = Cluster(2).train()
    cluster.exit(0)
    before = list(cluster.log.lines)
    cluster.controller.on_srun_error(
        "srun: error: Aborting, io error and missing step on node 1", cluster.nodes
    )
    assert cluster.log.lines == before
    cluster.lost.add("node2")
    cluster.answering.clear()
    cluster.wait(60)
    assert (cluster.end().code, cluster.end().source) == (0, "trainer")


def test_a_job_that_is_cut_off_after_scancel() -> None:
    """The loss is no reason for the end."""
    cluster = Cluster(2, job={"grace": 100}).train()
    cluster.controller.requests.is_stopping = True
    cluster.wait(1)
    cluster.lost.add("node2")
    cluster.answering.clear()
    cluster.wait(60)
    assert cluster.end().code == 143


def test_scancel_while_srun_starts_tasks() -> None:
    """slurmd then refuses the task, before SIGTERM comes."""
    cluster = Cluster(2)
    line = "srun: error: Task launch for StepId=9.0 failed on node node2: Job credential revoked"
    cluster.controller.on_srun_error(line, cluster.nodes)
    cluster.controller.losses.on_step_over(cluster.nodes, cluster.now)
    cluster.controller.tick(cluster.now)
    cluster.controller.requests.is_stopping = True
    assert cluster.end().code == 143


def test_the_last_line_where_the_run_directory_is_removed(tmp_path: Path) -> None:
    srun = {"sys.argv[-1]": repr("stop"), 'job["run_dir"] + "/../../temp': 'folder + "/temp'}
    job = Job(tmp_path, "waits", srun=srun, stop={"grace": 60})
    job.wait_for("waits")
    job.wait_for_event("trainer")
    shutil.rmtree(tmp_path / "slurmray-runs/7-0")
    job.process.send_signal(signal.SIGTERM)
    log = job.ends(5).log()
    assert log.splitlines()[-1].endswith("] done: trainer exited with 5"), log
