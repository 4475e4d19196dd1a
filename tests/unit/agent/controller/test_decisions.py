"""Decisions of the controller, with simulated nodes."""

from __future__ import annotations

from typing import Any

import pytest

from slurmray.agent.controller.protocol import USE

from ..simulation import Cluster


def test_a_job_from_its_start_to_its_end() -> None:
    cluster = Cluster().train()
    assert cluster.types() == ["start_ray", "head_versions", "join", "ready"]
    assert cluster.reads_output
    assert not cluster.wait(100)
    cluster.exit(0)
    end = cluster.end(1)
    assert (end.code, end.source, end.text) == (0, "trainer", "done: trainer exited with 0")
    assert cluster.heartbeats == pytest.approx(34, abs=2), "every 2.5 s; this clock has whole seconds"


def test_ray_starts_when_all_nodes_are_checked() -> None:
    cluster = Cluster().start()
    cluster.pass_checks("node1", "node2")
    assert cluster.types() == []
    cluster.pass_checks("node2")
    assert cluster.types() == []
    cluster.pass_checks("node3")
    assert cluster.sent == [{"type": "start_ray", "peers": []}]


def test_a_job_that_only_checks_ends_when_all_nodes_are_checked() -> None:
    cluster = Cluster(nodes=2, only_checks=True).start()
    cluster.pass_checks("node1")
    assert not cluster.wait(1)  # the other node may still remove leftovers
    cluster.pass_checks("node2")
    end = cluster.end(1)
    assert (end.code, end.source, end.text) == (0, "slurmray", "done: the nodes are checked")
    assert cluster.types() == []
    assert not cluster.has_started_services


def test_a_job_that_only_checks_and_is_cancelled() -> None:
    cluster = Cluster(nodes=2, only_checks=True).start()
    cluster.pass_checks("node1")
    cluster.controller.losses.on_step_over(cluster.nodes, cluster.now)
    assert cluster.end().code == 67
    cluster.controller.requests.is_stopping = True
    assert cluster.end().source == "slurm"


def test_all_addresses_are_sent_only_if_a_proxy_is_set() -> None:
    cluster = Cluster().start()
    for node, proxy in (("node1", False), ("node2", True), ("node3", False)):
        cluster.pass_checks(node, proxy=proxy)
    assert cluster.sent == [{"type": "start_ray", "peers": ["10.0.0.1", "10.0.0.2", "10.0.0.3"]}]


@pytest.mark.parametrize(("code", "text"), [(7, "7"), (139, "139 (128 + signal SEGV)"), (200, "200")])
def test_the_trainers_exit_code(code: int, text: str) -> None:
    cluster = Cluster().train()
    cluster.exit(code)
    assert not cluster.wait(1)
    assert cluster.types()[-1] == "check_health"
    cluster.receive_from_all("healthy")
    end = cluster.end(1)
    assert (end.code, end.source, end.text) == (code, "trainer", f"done: trainer exited with {text}")


def test_a_trainer_that_fails_because_of_a_lost_node() -> None:
    cluster = Cluster().train()
    cluster.wait(10)
    cluster.lost.add("node3")
    cluster.exit(1, "node1", "node2")
    end = cluster.end(40)
    assert (end.code, end.kind, end.node) == (71, "node_lost", "node3")
    assert "no heartbeat for 25 s" in end.text
    assert "the trainer exited with 1" in end.text
    assert cluster.now < 10 + 25 + 12


def test_controller_does_not_wait_long_for_an_answer_about_health() -> None:
    cluster = Cluster().train()
    cluster.exit(1, "node1", "node2")
    assert cluster.end(8).source == "trainer"


RESTART = {"max": 3, "window": 600, "exit_codes": [1], "grace": 5}


def with_gpus(**settings: Any) -> Cluster:
    """A job with a GPU on each node, whose trainer has failed."""
    cluster = Cluster(**settings).start()
    cluster.pass_checks(*cluster.nodes, gpus=1)
    for kind, fields in (("ready", {}), ("trainer", {"command": "x"}), ("exit", {"code": 1})):
        cluster.receive("node1", kind, **fields)
    assert not cluster.controller.may_end(cluster.now)
    cluster.receive_from_all("healthy")
    return cluster


@pytest.mark.parametrize("on_node_loss", ["fail", "continue", "restart"])
def test_a_trainer_that_fails_because_of_a_lost_gpu(on_node_loss: str) -> None:
    cluster = with_gpus(on_node_loss=on_node_loss, spares=1)
    text = "lost GPU-3f: nvidia-smi: Unable to determine the device handle for GPU0000:3B:00.0: Unknown Error"
    for node, lost in (("node1", ""), ("node4", text), ("node3", text)):
        assert not cluster.controller.may_end(cluster.now)
        cluster.receive(node, "gpus", lost=lost)
    end = cluster.end(1)
    assert (end.code, end.kind, end.node) == (71, "node_lost", "node3")
    assert text + "; the trainer exited with 1" in end.text
    assert [event["node"] for event in cluster.events("set_aside")] == ["node4"]
    assert "replace" not in cluster.types()


@pytest.mark.parametrize("wish", [{"restart": RESTART}, {"requeue": {"max": 0, "exit_code": 1}}])
def test_a_trainer_that_asks_for_another_start_because_of_a_lost_gpu(wish: dict[str, Any]) -> None:
    cluster = with_gpus(**wish)
    cluster.receive_from_all("gpus", lost="lost GPU-3f: nvidia-smi: no longer lists it")
    end = cluster.end(1)
    assert (end.code, end.source) == (1, "trainer")
    assert all(node.has_finding for node in cluster.controller.nodes.values())


@pytest.mark.parametrize("wish", [{"restart": RESTART}, {"requeue": {"max": 0, "exit_code": 1}}])
@pytest.mark.parametrize("is_host", [True, False])
def test_a_trainer_that_asks_for_another_start_because_of_a_lost_node(
    wish: dict[str, Any], is_host: bool
) -> None:
    """It notices the loss first."""
    cluster = Cluster(**wish).train()
    cluster.lost = {"node3"} if is_host else set()
    cluster.wait(2)
    cluster.exit(1, "node1", "node2")
    cluster.receive("node3", "failed", kind="ray", message="ray start exited with 1")
    end = cluster.end(60)
    assert (end.code, end.source) == (1, "trainer")
    assert [line for line in cluster.log.lines if line.startswith("node3: ")], "what was found is logged"


def test_a_trainer_that_ends_because_of_a_node_that_is_noticed_later() -> None:
    """With on_node_loss: continue, no spare node joins for a trainer that has ended."""
    cluster = Cluster(spares=1, on_node_loss="continue").train()
    cluster.lost = {"node3"}
    cluster.wait(4)
    cluster.exit(1, "node1", "node2", "node4")
    assert cluster.end(60).code == 1
    assert "replace" not in cluster.types()
    assert not [name for name, _ in cluster.log.events if name in ("node_loss", "replacement")]
    assert [line for line in cluster.log.lines if line.startswith("node3: no heartbeat for 25 s")]


def test_a_gpu_of_a_node_that_takes_no_part_any_more() -> None:
    cluster = with_gpus(on_node_loss="continue")
    cluster.controller.state.leave_out("node3")
    for node, lost in (("node1", ""), ("node2", ""), ("node3", "lost GPU-3f: it is gone")):
        cluster.receive(node, "gpus", lost=lost)
    end = cluster.end(20)
    assert (end.code, end.source) == (1, "trainer")


def test_heartbeats_of_a_node_that_is_gone() -> None:
    """Its agent sends them until its input is closed."""
    cluster = Cluster(on_node_loss="continue").train()
    cluster.receive("node3", "failed", kind="ray", message="ray start exited with 1")
    cluster.receive("node3", "gone")
    cluster.wait(20)
    assert not [line for line in cluster.log.lines if "ignored" in line]


@pytest.mark.parametrize("mode", ["fail", "restart"])
@pytest.mark.parametrize("request_", ["is_stopping", "is_time_up"])
def test_a_node_that_is_lost_while_the_trainer_saves(mode: str, request_: str) -> None:
    """The trainer keeps its grace period: 10 s after scancel, 45 s before the time limit."""
    cluster = Cluster(spares=1, on_node_loss=mode).train()
    setattr(cluster.controller.requests, request_, True)
    cluster.wait(2)
    cluster.receive("node3", "failed", kind="ray", message="ray start exited with 1")
    cluster.receive("node3", "gone")
    assert not cluster.wait(7)
    assert "stop_before_restart" not in cluster.types()
    assert "node3: ray start exited with 1" in cluster.log.lines
    cluster.exit(1)
    assert cluster.end(1).code == (72 if request_ == "is_time_up" else 143)


def test_the_head_node_is_lost_while_the_trainer_saves() -> None:
    cluster = Cluster().train()
    cluster.controller.requests.is_stopping = True
    cluster.wait(1)
    cluster.receive("node1", "failed", kind="ray", message="ray start exited with 1")
    assert cluster.wait(2), "its trainer is over"


def test_an_answer_about_gpus_that_does_not_come() -> None:
    cluster = with_gpus()
    assert not cluster.wait(10)
    assert cluster.end(20).source == "trainer"


def test_what_the_nodes_use() -> None:
    """Their latest samples, with their age, and how long a GPU was idle; not of a node that is left out."""
    cluster = Cluster(on_node_loss="continue", spares=1).train()
    began = cluster.now
    cluster.receive("node4", "heartbeat", doing="", use={"gpu": 0, "lowest": 0, "idlest": 0})
    assert not cluster.wait(60)
    assert cluster.usage == {}, "there are no samples of nodes that train"
    first = {"gpu": 90, "lowest": 80, "idlest": 0, "idle_gpus": 0}
    for _ in range(3):
        cluster.receive("node1", "heartbeat", doing="", use=first)
        cluster.receive("node2", "heartbeat", doing="", use={"gpu": 50, "lowest": 0, "idlest": 1})
        cluster.receive("node3", "heartbeat", doing="", use={"cores": 1.5})
        assert not cluster.wait(30)
    assert cluster.usage["node1"] == {**first, "age": 5}
    assert cluster.usage["node2"] == {"gpu": 50, "lowest": 0, "idlest": 1, "age": 5, "idle": 65}
    cluster.receive("node2", "heartbeat", doing="", use={"gpu": 50, "lowest": 3, "idlest": 1})
    cluster.lost.add("node3")
    assert not cluster.wait(60)
    assert cluster.usage.keys() == {"node1", "node2"}
    assert "idle" not in cluster.usage["node2"]
    assert cluster.now - began == 210
    assert {"age", "idle"}.isdisjoint(USE), "these would be overwritten"


@pytest.mark.parametrize(
    ("nodes", "lost", "answering", "node"),
    [
        (3, "2", "slurmctld", "node2"),
        (3, "3", "slurmctld", "node3"),
        (2, "2", "slurmctld", "node2"),
        (2, "2", "node2", "node2"),  # its agent hangs, but its host answers: nobody asks slurmctld
        (2, "2", "", "node1"),
        (3, "23", "", "node1"),
        (6, "23456", "", "node1"),
    ],
)
def test_a_lost_node(nodes: int, lost: str, answering: str, node: str) -> None:
    """A head node that reaches nobody, not even slurmctld, is lost itself."""
    cluster = Cluster(nodes).train()
    cluster.lost, cluster.answering = {f"node{number}" for number in lost}, {answering}
    end = cluster.end(70)
    assert (end.code, end.kind, end.node) == (71, "node_lost", node)
    assert 25 < cluster.now <= (70 if answering == "node2" else 37 if answering else 45)
    text = "no heartbeat from any other node, and slurmctld does not answer"
    assert f"{node}: {text if node == 'node1' else 'no heartbeat for '}" in end.text
    assert cluster.controller.have_all_nodes_ended()


def test_a_node_is_lost_after_the_timeout_of_the_settings() -> None:
    cluster = Cluster(timeouts={"ready": 600, "heartbeat": 100}).train()
    cluster.lost.add("node2")
    assert not cluster.wait(99)
    assert cluster.wait(10)


def node_record(node: str, state: str, boot: object) -> str:
    """As Slurm 22.05 prints it."""
    return (
        f"NodeName={node} Arch=x86_64 CPUTot=4 OS=Linux 6.1 State=1 Gres=gpu:8 NodeAddr={node} State={state} "
        f"Weight=1 BootTime={boot} SlurmdStartTime=1700000000 Reason=a State=DOWN BootTime=5 [root@x]\n"
    )


MARKED_DOWN = "node2: Slurm has marked it down. Has it lost power or its network?"
SILENT = "node2: no heartbeat for 25 s. Has it lost power or its network?"


@pytest.mark.parametrize(
    ("state", "boot", "text", "within"),
    [
        ("DOWN*", 1000, MARKED_DOWN, 17),
        ("DOWN+NOT_RESPONDING", 1000, MARKED_DOWN, 17),
        ("ALLOCATED", 1130, "node2: its host has booted again", 17),
        ("ALLOCATED*", 1000, SILENT, 32),
        ("ALLOCATED", 1012, SILENT, 32),  # a virtual machine that was paused, or a late message of slurmd
        ("IDLE+POWERED_DOWN", "None", SILENT, 32),
    ],
)
def test_what_slurm_knows_of_a_silent_node(state: str, boot: object, text: str, within: int) -> None:
    cluster = Cluster(on_node_loss="restart").train()
    cluster.lost = {"node2"}
    cluster.records = node_record("node2", "ALLOCATED", 1000) + node_record("node3", "DOWN", 1000)
    assert not cluster.wait(8)
    cluster.records = node_record("node2", state, boot) + node_record("node3", "DOWN", 2000)
    for _ in cluster.passes(within - 8):
        pass
    failure = cluster.controller.state.failure
    assert str(failure) == text
    assert cluster.controller.nodes["node2"].has_ended, "nothing waits for it"
    assert not cluster.controller.nodes["node3"].is_lost, "it has heartbeats"


@pytest.mark.parametrize("moment", ["check", "train"])
def test_a_closed_connection(moment: str) -> None:
    cluster = getattr(Cluster(on_node_loss="restart"), moment)()
    assert not cluster.wait(20)
    cluster.closed, cluster.lost = {"node2"}, {"node3"}
    assert not cluster.wait(10)
    assert not cluster.controller.state.failure, "node2 has heartbeats, and node3 a connection"
    cluster.lost = {"node2", "node3"}
    cluster.wait(10)
    assert (
        str(cluster.controller.state.failure)
        == "node2: its connection to srun is closed: its task or slurmstepd has ended"
    )
    assert cluster.controller.nodes["node2"].has_ended, "nothing waits for it"
    assert not cluster.controller.nodes["node2"].is_lost, "its host has closed the connection"
    assert not cluster.controller.nodes["node3"].is_lost


def test_a_connection_that_was_never_seen() -> None:
    cluster = Cluster()
    cluster.closed = {"node2"}
    cluster.train().lost = {"node2"}
    assert not cluster.wait(25)


def test_srun_that_waits_for_a_lost_node() -> None:
    """It has killed all tasks, and waits for the lost one as long as KillWait."""
    cluster = Cluster(on_node_loss="restart").train()
    report = cluster.controller.on_srun_error
    report("srun: error: node1: task 0: Killed", cluster.nodes)
    assert not cluster.controller.nodes["node1"].has_ended, "its container may send the reason"
    report("srun: error: Aborting, io error and missing step on node 1", cluster.nodes)
    report("srun: error: node1: task 0: Killed", cluster.nodes)
    assert not cluster.controller.have_all_nodes_ended()
    report("srun: error: node3: task 2: Killed", cluster.nodes)
    assert cluster.controller.have_all_nodes_ended()
    assert not cluster.controller.nodes["node3"].is_lost


def test_slurmctld_is_asked_a_few_times_for_all_silent_nodes() -> None:
    cluster = Cluster(500).train()
    cluster.lost = set(cluster.nodes[1:400])
    assert cluster.wait(60)
    assert 1 <= len(cluster.asked) <= 10


@pytest.mark.parametrize(
    ("lost", "name", "text"),
    [
        ((2, 3), "node[2-3]", "node2 and node3"),
        ((2, 4, 5), "node[2,4-5]", "node2, node4 and node5"),
        ((2, 3, 4, 5, 6), "node[2-6]", "node[2-6]"),
    ],
)
@pytest.mark.parametrize("on_node_loss", ["fail", "continue"])
def test_all_nodes_that_are_lost_are_named(
    lost: tuple[int, ...], name: str, text: str, on_node_loss: str
) -> None:
    cluster = Cluster(6, on_node_loss=on_node_loss).train()
    cluster.wait(3)
    for number in lost:  # they send their last heartbeats at different times
        cluster.receive(f"node{number}", "heartbeat", doing="")
        cluster.wait(1)
    cluster.lost |= {f"node{number}" for number in lost}
    assert cluster.wait(45) == (on_node_loss == "fail")
    if on_node_loss == "fail":
        end = cluster.end()
        assert (end.code, end.node) == (71, name)
        assert end.text.startswith(
            f"failed (71 node lost): {text}: no heartbeat for 25 s. Have they lost power"
        )
        assert cluster.controller.logs_to_show() == [f"node{number}" for number in lost[:2]]
    else:
        events = [event["node"] for event in cluster.events("node_loss")]
        assert events == [f"node{number}" for number in lost]


def test_a_cut_that_heals() -> None:
    """Messages go on 45 s after the last ones: TCP repeats them at longer and longer intervals."""
    cluster = Cluster().train()
    cluster.lost |= {"node2"}
    assert not cluster.wait(25)
    cluster.answering.add("node2")
    assert not cluster.wait(20)
    cluster.lost.clear()
    assert not cluster.wait(60)


@pytest.mark.parametrize(
    "line",
    [
        "srun: error: Aborting, io error and missing step on node 2",
        "srun: error: step_launch_notify_io_failure: aborting, io error with slurmstepd on node 2",
        "srun: error: Task launch for StepId=9.1 failed on node node3: Communication connection failure",
        "srun: error: Node failure on node3",
    ],
)
@pytest.mark.parametrize("on_node_loss", ["fail", "continue"])
def test_srun_ends_all_tasks_because_of_one_host(line: str, on_node_loss: str) -> None:
    cluster = Cluster(on_node_loss=on_node_loss).train()
    cluster.controller.on_srun_error(line, cluster.nodes)
    cluster.receive("node1", "tether_lost")
    cluster.receive("node2", "tether_lost")
    assert cluster.wait(1)
    if not (on_node_loss == "continue" and "Node failure" in line):
        end = cluster.end()
        assert (end.code, end.node) == (71, "node3")


@pytest.mark.parametrize(
    "line",
    [
        "io error on node 2",
        "srun: error: node3: task 2: Killed",
        "srun: error: Node failure on other",
        "srun: error: aborting, io error on node 3",
        "srun: error: aborting, io error on node " + "1" * 5000,  # Python converts at most 4,300 digits
        "",
    ],
)
def test_other_lines_of_srun(line: str) -> None:
    cluster = Cluster().train()
    cluster.controller.on_srun_error(line, cluster.nodes)
    assert not cluster.wait(1)


def test_a_signal_is_passed_on_once() -> None:
    cluster = Cluster().check()
    cluster.receive("node1", "signal", name="USR1")
    assert "signal" not in cluster.types()
    assert cluster.log.lines[-1] == "signal USR1: ignored, as no trainer runs"
    cluster.train()
    cluster.wait(3)
    for _ in range(3):
        cluster.controller.endings.on_signal("USR1", cluster.now)
        cluster.receive_from_all("signal", name="USR1")
        cluster.receive("node1", "signal", name="KILL")
    assert cluster.sent[-1] == {"type": "signal", "name": "USR1"}
    assert cluster.types().count("signal") == 1
    cluster.wait(3)
    cluster.receive("node1", "signal", name="USR1")
    assert cluster.types().count("signal") == 2


def test_on_node_loss_continue_needs_the_head_node() -> None:
    cluster = Cluster(on_node_loss="continue").train()
    assert cluster.heartbeat_files
    cluster.lost.add("node2")
    assert not cluster.wait(60)
    cluster.lost.clear()  # a lost node stays lost
    assert not cluster.wait(10)
    assert "node2" not in cluster.controller.losses.monitor.nodes()
    assert len(cluster.events("node_loss")) == 1
    cluster.receive("node1", "failed", kind="ray", message="raylet exited")
    assert cluster.end(1).code == 71


def test_a_node_that_is_lost_before_the_trainer_runs_ends_the_job() -> None:
    cluster = Cluster(on_node_loss="continue").check()
    cluster.lost.add("node2")
    assert cluster.end(40).code == 71


@pytest.mark.parametrize(
    ("kind", "code", "name"),
    [
        ("config", 64, "config"),
        ("preflight", 65, "preflight"),
        ("image", 66, "image"),
        ("ray", 67, "bring up"),
        ("prepare", 69, "prepare"),
        ("service", 70, "service"),
        ("internal", 79, "internal"),
    ],
)
def test_a_node_that_fails(kind: str, code: int, name: str) -> None:
    cluster = Cluster().check()
    cluster.receive("node2", "failed", kind=kind, message="cause. Fix it")
    # Other nodes may have the same to say about checks and images.
    assert cluster.wait(1) == (kind not in ("preflight", "image"))
    end = cluster.end(10)
    assert (end.code, end.text) == (code, f"failed ({code} {name}): node2: cause. Fix it")


DIED = {"kind": "ray", "message": "ray start exited with 1"}
LOST = "failed (71 node lost): "
# Messages while the trainer runs, which end the job, its exit code and last line.
ENDINGS: dict[str, tuple[list[tuple[str, str, dict[str, Any]]], int, str]] = {
    "Ray of a worker": ([("node2", "failed", DIED)], 71, f"{LOST}node2: ray start exited with 1"),
    "a task": ([("node2", "tether_lost", {})], 71, f"{LOST}node2: the node's task was killed"),
    "a container": (
        [("node2", "gone", {})],
        71,
        f"{LOST}node2: container exited unexpectedly (not stopped by Slurm)",
    ),
    "a signal to the head node": (
        [("node1", "signalled", {}), ("node1", "exit", {"code": 143})],
        71,
        f"{LOST}node1: container got SIGTERM, but not from Slurm; the trainer exited with 143",
    ),
    "a signal to the head node, success": (
        [("node1", "signalled", {}), ("node1", "exit", {"code": 0})],
        0,
        "done: trainer exited with 0",
    ),
    "clean-up of the head node": (
        [("node1", "gone", {})],
        71,
        f"{LOST}node1: the step ended unexpectedly; srun exited with 0",
    ),
}


@pytest.mark.parametrize(("messages", "code", "text"), ENDINGS.values(), ids=ENDINGS)
def test_an_end(messages: list[tuple[str, str, dict[str, Any]]], code: int, text: str) -> None:
    cluster = Cluster().train()
    for node, kind, fields in messages:
        cluster.receive(node, kind, **fields)
    end = cluster.end(1)
    assert (end.code, end.source, end.text) == (code, "slurmray" if code else "trainer", text)


def test_findings_of_all_nodes_come_before_the_end() -> None:
    cluster = Cluster(nodes=4).start()
    cluster.report("node2", check="mount", found="/data: no such directory", fix="mkdir /data")
    assert not cluster.wait(5)
    cluster.report("node4", check="mount", found="/data: no such directory", fix="mkdir /data")
    end = cluster.end(11)
    cluster.controller.findings.show()
    assert (end.code, end.node) == (65, "node2")
    assert "node[2,4]" in cluster.log.lines[-1]
    assert "start_ray" not in cluster.types()


def test_no_wait_when_all_nodes_have_sent_their_findings() -> None:
    cluster = Cluster(nodes=2)
    for node in cluster.nodes:
        cluster.report(node, kind="config", found="4", fix="--gpus-per-node 4")
        assert not cluster.wait(1)
        cluster.receive(node, "unfit")
    assert cluster.end(1).text.endswith("GPUs: 4; slurmray render --gpus-per-node 4")


def test_no_wait_for_nodes_that_have_passed_their_checks() -> None:
    cluster = Cluster(nodes=3).start()
    cluster.report("node1")
    cluster.pass_checks("node1", "node2")
    cluster.receive("node1", "unfit")
    assert not cluster.wait(1)
    cluster.pass_checks("node3")
    assert cluster.wait(1)
    assert "start_ray" not in cluster.types()


def test_errors_in_threads_of_nodes() -> None:
    """Many nodes may have the same one, e.g. where the disk of the run directory is full. The job goes on."""
    cluster = Cluster().train()
    before = len(cluster.log.lines)
    for node in ("node3", "node1", "node3"):
        for text in ("for samples: OSError: No space left on device", "for a claim: KeyError: 'x'"):
            cluster.receive(node, "thread_error", text="error in the thread " + text)
    assert not cluster.wait(30)
    cluster.exit(0)
    cluster.controller.begin_end()
    cluster.receive("node2", "thread_error", text="late")
    assert [line for line in cluster.log.lines[before:] if "error" in line or "late" in line] == [
        "node3: error in the thread for samples: OSError: No space left on device",
        "node3: error in the thread for a claim: KeyError: 'x'",
        "node2: late",
    ]


def test_equal_findings_are_one_row() -> None:
    cluster = Cluster(nodes=3)
    cluster.report("node3", "node1", "node3", kind="warn", found="64 MB")
    cluster.check()
    assert [line.split()[0] for line in cluster.log.lines if "64 MB" in line] == ["node[1,3]"]


def test_findings_that_differ_in_the_name_of_the_node_are_one_row() -> None:
    cluster = Cluster(nodes=64)
    row = {"kind": "warn", "found": "7 seen by nvidia-smi"}
    for node in cluster.nodes:
        cluster.report(node, **row, fix=f"look at nvidia-smi on {node}; drain it")
    cluster.report("node1", **row, fix="look at nvidia-smi on node12")
    cluster.check()
    assert [" ".join(line.split()) for line in cluster.log.lines if "7 seen" in line] == [
        "node[1-64] GPUs 7 seen by nvidia-smi | 8 | look at nvidia-smi on node[1-64]; drain it",
        "node1 GPUs 7 seen by nvidia-smi | 8 | look at nvidia-smi on node12",
    ]
    assert cluster.log.events[1][1]["fix"] == "look at nvidia-smi on node2; drain it"


@pytest.mark.parametrize(
    ("first", "other", "rows"),
    [
        ("read udp 10.0.1.1:48012->10.0.0.1:53: i/o", "read udp 10.0.1.22:9345->10.0.0.1:53: i/o", 1),
        ("10.0.0.1:48012 refused", "10.0.0.1:4801 refused", 1),
        ("now 2026-11-27T22:30:50Z is after x", "now 2026-11-27T22:31:09.5Z is after x", 1),
        ("pid 12 uses it for 1.5s", "pid 4711 uses it for 0.25s", 1),
        ("RequestId: 7a7c-1", "RequestId: 99bb-2", 1),
        ("GPU-5e1c4d2a-0000-0000-0000-000000000001", "GPU-5e1c4d2a-0000-0000-0000-000000000002", 2),
        ("64 MB", "32 MB", 2),
        ("Ray 2.52.1, Python 3.11.2", "Ray 2.52.1, Python 3.11.4", 2),
        ("10.0.0.1:443 refused", "10.0.0.2:443 refused", 2),
    ],
)
def test_findings_that_differ_by_chance_are_one_row(first: str, other: str, rows: int) -> None:
    cluster = Cluster(nodes=2)
    for node, found in (("node1", first), ("node2", other)):
        cluster.report(node, kind="warn", found=found)
    cluster.check()
    shown = [line for line in cluster.log.lines if " | 8 | none" in line]
    assert len(shown) == rows
    assert first in shown[0]
    assert shown[0].split()[0] == ("node[1-2]" if rows == 1 else "node1")


@pytest.mark.parametrize("cause", ["is_stopping", "is_time_up", "is_ending", ""])
def test_a_worker_that_has_cleaned_up(cause: str) -> None:
    cluster = Cluster().train()
    if cause:
        setattr(
            cluster.controller.state if cause == "is_ending" else cluster.controller.requests, cause, True
        )
    cluster.receive("node2", "gone")
    assert (cluster.controller.state.failure is None) == bool(cause)


def test_messages_during_the_end_of_the_step_change_nothing() -> None:
    cluster = Cluster().train()
    cluster.controller.begin_end()
    cluster.exit(3)
    assert cluster.controller.state.trainer_code is None


def test_each_node_has_time_to_answer_check_health() -> None:
    cluster = Cluster().train()
    cluster.exit(1, "node1", "node3")
    assert not cluster.controller.may_end(cluster.now)
    cluster.now += 1
    cluster.receive("node2", "heartbeat", doing="")  # it runs, but its answer may be on its way
    assert not cluster.controller.may_end(cluster.now)
    cluster.receive("node2", "failed", kind="ray", message="raylet exited")
    assert cluster.end(1).code == 71


def test_controller_waits_for_findings_about_the_image() -> None:
    cluster = Cluster(nodes=2)
    cluster.pass_checks(*cluster.nodes)
    for node, is_over in (("node1", False), ("node2", True)):
        cluster.report(node, kind="image")
        cluster.receive(node, "unfit")
        assert cluster.wait(1 if is_over else 5) == is_over


def test_a_warning_ends_nothing() -> None:
    cluster = Cluster()
    cluster.report("node2", kind="warn", found="64 MB")
    cluster.train()
    assert not cluster.wait(30)
    assert any("64 MB" in line for line in cluster.log.lines)


def test_scancel() -> None:
    cluster = Cluster().train()
    cluster.wait(3)
    cluster.controller.requests.is_stopping = True
    cluster.wait(2)
    assert cluster.sent[-1] == {"type": "stop", "seconds": 10}
    assert cluster.types().count("stop") == 1
    cluster.exit(3)
    end = cluster.end(1)
    assert (end.code, end.source) == (3, "trainer")


def test_scancel_while_the_task_of_the_head_node_is_not_an_agent_yet() -> None:
    """Slurm's signal ends it, so it sends nothing; nobody waits for the end of the grace period."""
    cluster = Cluster(nodes=2)
    cluster.receive("node2", "started", step="0")
    cluster.controller.requests.is_stopping = True
    assert not cluster.wait(1)
    cluster.receive("node2", "gone")
    assert (cluster.end(1).code, cluster.now) == (143, 2)


def test_scancel_without_grace_period() -> None:
    cluster = Cluster().train()
    cluster.controller.requests.is_stopping = cluster.controller.requests.is_grace_over = True
    cluster.wait(3)
    assert [message for message in cluster.sent if message["type"] == "stop"] == [
        {"type": "stop", "seconds": 10},
        {"type": "stop", "seconds": 0},
    ]
    assert [name for name, _ in cluster.log.events][-2:] == ["stop", "stop_now"]
    assert cluster.wait(5), "not the grace period of the first"
    assert cluster.end().code == 143


def test_a_grace_period_that_is_cut_short() -> None:
    """It never gets longer."""
    for second, end in ((1, 6), (9, 14), (14, 15)):
        cluster = Cluster().train()
        cluster.controller.requests.is_stopping = True
        cluster.wait(second)
        cluster.controller.requests.is_grace_over = True
        cluster.wait(end - second)
        assert not cluster.controller.may_end(cluster.now), second
        assert cluster.wait(2), second


def test_scancel_without_an_exit_code() -> None:
    cluster = Cluster().check()
    cluster.controller.requests.is_stopping = True
    cluster.receive("node2", "failed", kind="ray", message="of the signal")
    end = cluster.end(20)
    assert (end.code, end.source) == (143, "slurm")


def test_a_trainer_that_ignores_its_signal() -> None:
    cluster = Cluster().train()
    cluster.controller.requests.is_stopping = True
    assert not cluster.wait(14)
    assert cluster.end(4).code == 143


@pytest.mark.parametrize(("lead", "seconds"), [(120, 105), (20, 10)])
def test_the_time_limit(lead: int, seconds: int) -> None:
    stop = {"lead": lead, "grace": 10, "signal": "USR1", "cancel_signal": "TERM"}
    cluster = Cluster(stop=stop).train()
    cluster.controller.requests.is_time_up = True
    cluster.wait(2)
    assert cluster.sent[-1] == {"type": "stop_at_limit", "seconds": seconds}
    cluster.exit(1)
    end = cluster.end(1)
    assert (end.code, end.kind) == (72, "time_limit")


def test_a_trainer_that_ends_well_at_the_time_limit() -> None:
    cluster = Cluster().train()
    cluster.controller.requests.is_time_up = True
    cluster.wait(1)
    cluster.exit(0)
    assert cluster.end(1).code == 0


def test_a_preemption_with_grace_time_signals_only_the_tasks() -> None:
    cluster = Cluster().train()
    cluster.receive("node2", "stop_requested")
    cluster.wait(1)
    assert cluster.types()[-1] == "stop"


@pytest.mark.parametrize(
    ("kind", "shown"),
    [
        *[("image", "node2"), ("bring_up", "node2"), ("internal", "node2"), ("config", "")],
        ("service", "service-web@node2"),
        # Findings. One of another check is all there is to know.
        *[("container.setup", "node2"), ("python3", ""), ("checks.paths", "")],
    ],
)
def test_the_log_that_is_shown_with_a_failure(kind: str, shown: str) -> None:
    cluster = Cluster().check()
    if "." in kind or kind == "python3":
        cluster.report("node2", check=kind)
    else:
        log = {"log": shown} if kind == "service" else {}
        cluster.receive("node2", "failed", kind=kind, message="cause. Fix it", **log)
    assert cluster.controller.logs_to_show() == ([shown] if shown else [])
    assert cluster.end().node == "node2"


def test_a_cluster_that_is_not_ready_in_time() -> None:
    cluster = Cluster(timeouts={"ready": 30, "heartbeat": 25}).check()
    cluster.receive("node1", "not_ready", missing="node3", why="has not joined")
    cluster.receive("node1", "failed", kind="probe", message="2 of 3 nodes joined, missing node3")
    assert cluster.wait(1)
    assert cluster.controller.logs_to_show() == ["node3"]
    assert cluster.end().code == 68


def test_nodes_that_are_not_ready_for_the_same_reason_are_one_line() -> None:
    cluster = Cluster(nodes=64).check()
    for number in range(2, 65):
        why = "has 7 of 8 GPUs" if number == 40 else "has not joined"
        cluster.receive("node1", "not_ready", missing=f"node{number}", why=why)
    expected = ["node[2-39,41-64] has not joined", "node40 has 7 of 8 GPUs"]
    assert cluster.controller.gate.not_ready_texts() == expected


def test_a_node_that_never_sends_a_message() -> None:
    cluster = Cluster(timeouts={"ready": 30, "heartbeat": 25})
    cluster.lost.add("node3")
    cluster.check()
    assert cluster.wait(60)
    assert 45 <= cluster.now <= 47
    assert cluster.end().code == 68
    assert [node for node, _ in cluster.controller.gate.not_ready] == ["node3"]
    assert any("waiting for node3" in line for line in cluster.log.lines)


@pytest.mark.parametrize(
    ("setup", "field", "why"),
    [
        ("module load x", "setup", "has not been checked: its setup still runs"),
        ("", "node_env", "has not been checked: its node_env still runs"),
        ("module load x", "", "has not been checked"),
    ],
)
def test_commands_that_do_not_end_are_named(setup: str, field: str, why: str) -> None:
    cluster = Cluster(timeouts={"ready": 30, "heartbeat": 25}, setup=setup).start()
    cluster.pass_checks("node1", "node2")
    for _ in cluster.passes(60):
        cluster.receive("node3", "heartbeat", doing="", **({"field": field} if field else {}))
    assert [f"node3 {why}"] == cluster.controller.gate.not_ready_texts()
    end = f"for 45 s; {field} still runs on node3" if field else "for 45 s"
    outcome = cluster.end()
    assert (outcome.code, outcome.text.endswith(end)) == (68, True), outcome.text


def test_a_node_without_python_may_still_run_setup() -> None:
    cluster = Cluster(timeouts={"ready": 30, "heartbeat": 25}, setup="module load python")
    cluster.lost.add("node3")
    cluster.check()
    assert cluster.wait(60)
    texts = cluster.controller.gate.not_ready_texts()
    assert texts == ["node3 has not been checked: its setup may still run"]


def test_controller_waits_for_a_long_pull() -> None:
    cluster = Cluster(timeouts={"ready": 30, "heartbeat": 25}).check()
    for _ in cluster.passes(300):
        if cluster.now % 5 == 0:
            cluster.receive("node2", "heartbeat", doing="pull")
    assert not cluster.controller.may_end(cluster.now)


def test_srun_that_is_killed() -> None:
    cluster = Cluster().train()
    cluster.controller.losses.on_step_over(cluster.nodes, cluster.now)
    assert cluster.controller.may_end(1)
    cluster.controller.begin_end()
    text = (
        "failed (71 node lost): node1: the step ended unexpectedly; srun exited with 137 (128 + signal KILL)"
    )
    assert cluster.outcome(137).text == cluster.outcome(-9).text == text


def test_the_step_of_a_group_that_ends() -> None:
    cluster = Cluster().train()
    cluster.controller.losses.on_step_over(["node2", "node3"], cluster.now)
    assert not cluster.controller.may_end(cluster.now)
    assert cluster.wait(5)
    text = "node2 and node3: the step ended unexpectedly. The job's log has the messages of srun"
    assert cluster.end().text == f"failed (71 node lost): {text}"


def test_slurm_ends_the_step_of_a_group_before_it_signals_the_batch_script() -> None:
    cluster = Cluster().train()
    cluster.controller.losses.on_step_over(["node2", "node3"], cluster.now)
    cluster.wait(2)
    cluster.controller.requests.is_stopping = True
    cluster.wait(30)
    assert cluster.end().source == "slurm"


def test_the_nodes_of_a_group_have_cleaned_up() -> None:
    cluster = Cluster(on_node_loss="continue").train()
    for node in ("node2", "node3"):
        cluster.receive(node, "gone")
    cluster.controller.losses.on_step_over(["node2", "node3"], cluster.now)
    assert not cluster.wait(10)


def test_a_stage_is_done_when_all_nodes_are() -> None:
    cluster = Cluster(prepare=[{"needs_ray": False}]).check()
    cluster.receive("node1", "stage_done", stage="prepare")
    cluster.receive("node2", "stage_done", stage="prepare")
    assert "stage_done" not in cluster.types()
    cluster.wait(6)
    assert "prepare: 2/3 nodes, waiting for node3" in cluster.log.lines
    cluster.receive("node3", "stage_done", stage="prepare")
    assert cluster.sent[-1] == {"type": "stage_done", "stage": "prepare"}


def test_a_stage_of_many_nodes_takes_few_lines() -> None:
    cluster = Cluster(nodes=200, prepare=[{"needs_ray": False}]).check()
    for _ in cluster.passes(200):
        cluster.receive(f"node{int(cluster.now)}", "stage_done", stage="prepare")
    lines = [line for line in cluster.log.lines if line.startswith("prepare: ")]
    assert lines[0].startswith("prepare: 1/200 nodes, waiting for node2, node3, node4, node5 and 195 more")
    assert lines[-1] == "prepare: 200/200 nodes after 3 min"
    assert 20 < len(lines) < 50


def test_a_stage_that_takes_long_is_logged_once_a_minute() -> None:
    cluster = Cluster(prepare=[{"needs_ray": False}]).check()
    cluster.receive("node1", "stage_done", stage="prepare")
    for _ in cluster.passes(200):
        cluster.receive("node2", "heartbeat", doing="prepare")
    lines = [line for line in cluster.log.lines if line.startswith("prepare: ")]
    assert [line.partition(",")[0] for line in lines] == [
        "prepare: 1/3 nodes",
        "prepare: 1/3 nodes after 1 min",
        "prepare: 1/3 nodes after 2 min",
        "prepare: 1/3 nodes after 3 min",
    ]


def test_addresses_to_test_are_sent_in_one_message() -> None:
    cluster = Cluster(nodes=5).check()
    for number in (2, 3, 4, 5):
        cluster.receive(f"node{number}", "reachable_at", address=f"10.0.0.{number}", ports=[1234])
    cluster.controller.tick(cluster.now)
    (message,) = [message for message in cluster.sent if message["type"] == "check_reachable"]
    assert [target[0] for target in message["targets"]] == ["node2", "node3", "node4", "node5"]


def test_addresses_to_test_do_not_wait_for_the_slowest_node() -> None:
    cluster = Cluster(nodes=5).check()
    cluster.receive("node2", "reachable_at", address="10.0.0.2", ports=[1234])
    cluster.wait(1)
    assert cluster.types()[-1] == "check_reachable"


def test_equal_phases_of_many_nodes_are_logged_once() -> None:
    cluster = Cluster()
    cluster.receive_from_all("phase", phase="image", text="podman pull ray")
    assert cluster.log.lines.count("image: podman pull ray") == 1


def test_prepared_is_noted() -> None:
    cluster = Cluster().check()
    cluster.receive("node1", "prepared", name="data@node1")
    assert cluster.done == ["data@node1"]
