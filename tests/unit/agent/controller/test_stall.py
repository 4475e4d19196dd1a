"""A trainer that no longer gets anywhere, and those that only seem so."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from slurmray.agent.controller.protocol import TRAINING
from slurmray.agent.controller.roster import Roster
from slurmray.agent.controller.stall import describe_stacks

from ..simulation import Cluster

MINUTE = 60
WAITING = {"gpus": 8, "idle_gpus": 0, "waiting_gpus": 8, "power": 152, "cores": 9.0}
# As in github.com/NVIDIA/nccl/issues/1550: some wait in a collective operation for others.
PARTLY = {"gpus": 8, "idle_gpus": 6, "waiting_gpus": 2, "power": 138, "cores": 9.0}
WORKING = {"gpus": 8, "idle_gpus": 0, "waiting_gpus": 0, "power": 610, "cores": 12.0}
IDLE = {"gpus": 8, "idle_gpus": 8, "waiting_gpus": 0, "power": 118, "cores": 0.3}


def train(action: str = "report", progress: str = "", **settings: Any) -> Cluster:
    watch = {"interval": 30, "stall": 30 * MINUTE, "action": action, "progress": progress}
    return Cluster(watch=watch, **settings).train()


def watch(
    cluster: Cluster,
    minutes: int,
    use: Callable[[str, float], dict[str, Any]],
    output: Callable[[float], int] = lambda _: 7,
) -> bool:
    """Let time pass with samples of all nodes; return whether the nodes were asked for evidence.

    use: of a node at a time. output: size of the job's log.
    """
    for _ in range(2 * minutes):
        for node in cluster.nodes:
            cluster.receive(node, "heartbeat", doing="", use=use(node, cluster.now))
        cluster.controller.on_log_size(output(cluster.now), cluster.now)
        for _ in cluster.passes(30):
            if "collect_evidence" in cluster.types():
                return True
    return False


def test_stalls_of_several_starts_have_their_own_folders() -> None:
    first, second = train(), train()
    for cluster in (first, second):
        second.controller.job["stalls"] = first.controller.job["stalls"]  # of the same attempt
        assert watch(cluster, 60, lambda *_: IDLE)
    asked = [m for cluster in (first, second) for m in cluster.sent if m["type"] == "collect_evidence"]
    assert [message["number"] for message in asked] == [1, 2]


def test_a_log_whose_file_system_stalls() -> None:
    """The trainer may wait for it, too; once it answers, the count begins again."""
    cluster = train()
    cluster.controller.on_log_size(7, cluster.now)
    for _ in range(2 * 60):
        cluster.receive_from_all("heartbeat", doing="", use=IDLE)
        for _ in cluster.passes(30):
            assert "collect_evidence" not in cluster.types()
    assert not watch(cluster, 29, lambda _, __: IDLE)
    assert watch(cluster, 3, lambda _, __: IDLE)


def test_all_wait_for_one() -> None:
    cluster = train()
    assert not watch(cluster, 60, lambda _, __: WORKING)
    assert not watch(cluster, 29, lambda node, _: PARTLY if node == "node2" else WAITING)
    assert watch(cluster, 3, lambda node, _: PARTLY if node == "node2" else WAITING)
    for number in range(4):
        place = "load (serialization.py:12)" if number == 2 else "all_reduce (distributed_c10d.py:2810)"
        row = [f"rank {number}", place]
        node = f"node{1 + number // 2}"
        cluster.receive(node, "stacks", number=1, rows=[row], is_complete=number % 2 == 1)
    assert not cluster.events("stall"), "one node is missing"
    cluster.receive("node3", "stacks", number=1, rows=[], is_complete=True)
    assert not cluster.wait(2)
    (stall,) = cluster.events("stall")
    assert stall["folder"] == "/r/logs/stall-1"
    assert stall["text"] == (
        "no output for 30 min; GPUs of node1, node3: busy at a steady low power; "
        "of node2: busy at a steady low power, or idle; "
        "3 of 4 processes are in all_reduce, rank 2 on node2 is in load (serialization.py:12)"
    )
    assert not cluster.wait(60), "the job goes on"


def test_a_node_that_sends_no_evidence() -> None:
    cluster = train()
    assert watch(cluster, 40, lambda _, __: IDLE)
    assert not cluster.wait(60)
    (stall,) = cluster.events("stall")
    assert stall["text"] == "no output for 30 min; GPUs of node1, node2, node3: idle"
    cluster.sent.clear()
    cluster.receive("node1", "stacks", number=1, rows=[["late", "f (a.py:1)"]], is_complete=True)
    assert watch(cluster, 40, lambda _, __: IDLE), "reported again after 30 more minutes"


def test_one_report_per_limit() -> None:
    """The count begins again with each: no new evidence every 40 s."""
    cluster = train()
    for _ in range(2 * 70):
        cluster.receive_from_all("heartbeat", doing="", use=IDLE)
        cluster.controller.on_log_size(7, cluster.now)
        assert not cluster.wait(30)
    assert [stall["number"] for stall in cluster.events("stall")] == [1, 2]
    assert cluster.types().count("collect_evidence") == 2


def test_one_report_per_limit_of_a_progress_file() -> None:
    cluster = train(progress="steps.log")
    for _ in range(6 * 70):
        cluster.controller.on_progress_file(7, cluster.now)
        assert not cluster.wait(10)
    assert len(cluster.events("stall")) == 2


def test_a_progress_file_that_changes_while_gpus_wait() -> None:
    cluster = train(progress="steps.log")
    for minute in range(45):
        cluster.controller.on_progress_file(minute // 20, cluster.now)
        assert not watch(cluster, 1, lambda *_: IDLE)


def test_gpus_that_wait_again_after_work() -> None:
    """With another power than the first time."""
    cluster = train()
    assert not watch(cluster, 20, lambda *_: WAITING)
    assert not watch(cluster, 1, lambda *_: WORKING)
    assert not watch(cluster, 29, lambda *_: {**WAITING, "power": 240})
    assert watch(cluster, 3, lambda *_: {**WAITING, "power": 240})


def test_gpus_whose_power_drifts() -> None:
    """Each sample differs little from the one before, and the last from the first one by much."""
    cluster = train()
    assert not watch(cluster, 70, lambda _, now: {**WAITING, "power": 152 + int(now // 60)})


@pytest.mark.parametrize(("change", "is_steady"), [(15, True), (16, False), (-15, True), (-16, False)])
def test_the_power_of_gpus_that_wait(change: int, is_steady: bool) -> None:
    cluster = train()
    uses = [WAITING, {**WAITING, "power": WAITING["power"] + change}]
    assert watch(cluster, 60, lambda _, now: uses[int(now) // 60 % 2]) is is_steady


@pytest.mark.parametrize(
    ("use", "is_still"),
    [
        ({**IDLE, "cores": 0.7}, True),
        ({**IDLE, "cores": 0.8}, False),
        ({**IDLE, "idle_gpus": 7}, False),
        ({**PARTLY, "idle_gpus": 5}, False),
        ({"gpus": 1, "idle_gpus": 1}, True),
        ({"gpus": 0, "idle_gpus": 0, "waiting_gpus": 0}, False),
    ],
)
def test_what_a_sample_shows(use: dict[str, Any], is_still: bool) -> None:
    assert watch(train(), 60, lambda *_: use) is is_still


def test_a_node_that_was_left_out() -> None:
    """Its last sample is no sign of a stall, and it is not named."""
    cluster = train(on_node_loss="continue")
    cluster.receive_from_all("heartbeat", doing="", use=IDLE)
    for part in cluster.controller.parts:
        part.on_node_left_out("node3")
    assert watch(cluster, 40, lambda node, _: IDLE if node != "node3" else {})
    assert not cluster.wait(60)
    assert cluster.events("stall")[0]["text"] == "no output for 30 min; GPUs of node1, node2: idle"


def test_one_node_of_several_that_sends_its_evidence_twice() -> None:
    cluster = train()
    assert watch(cluster, 40, lambda *_: IDLE)
    for _ in range(3):
        cluster.receive("node1", "stacks", number=1, rows=[], is_complete=True)
    assert not cluster.wait(20)
    assert not cluster.events("stall"), "two nodes are missing, and have 40 s"
    assert not cluster.wait(30)
    assert len(cluster.events("stall")) == 1


def test_evidence_of_an_earlier_stall() -> None:
    cluster = train()
    for number in (1, 2):
        cluster.sent.clear()
        assert watch(cluster, 40, lambda *_: IDLE)
        row = ["rank 0", "wait (a.py:1)"]
        cluster.receive("node1", "stacks", number=number, rows=[row], is_complete=False)
        cluster.receive("node2", "stacks", number=1, rows=[["rank 1", "old (a.py:1)"]], is_complete=True)
        assert not cluster.wait(60)
    texts = [stall["text"].split("idle; ")[1] for stall in cluster.events("stall")]
    assert texts[1] == "rank 0 on node1 is in wait (a.py:1)"


def test_a_limit_in_seconds() -> None:
    cluster = Cluster(watch={"stall": 59}).train()
    assert watch(cluster, 3, lambda *_: IDLE)
    assert not cluster.wait(60)
    assert cluster.events("stall")[0]["text"].startswith("no output for 59 s; ")


def test_output_that_no_file_shows() -> None:
    """The job's log is none: samples alone decide."""
    cluster = train()
    for _ in range(2 * 29):
        cluster.receive_from_all("heartbeat", doing="", use=IDLE)
        assert not cluster.wait(30)
    assert "collect_evidence" not in cluster.types()
    for _ in range(6):
        cluster.receive("node1", "heartbeat", doing="", use=IDLE)
        assert not cluster.wait(30)
    assert "collect_evidence" in cluster.types()


def test_a_restart_of_the_trainer_counts_from_its_start() -> None:
    """Also with a progress file, which an earlier start has written."""
    cluster = train(progress="steps.log")
    cluster.now += 25 * MINUTE
    cluster.controller.on_progress_file(-1, cluster.now)
    for part in cluster.controller.parts:
        part.on_progress(TRAINING, cluster.now)
    cluster.controller.on_progress_file(-1, cluster.now + 29 * MINUTE)
    assert not any(part.tick(cluster.now + 29 * MINUTE) for part in cluster.controller.parts)
    assert "collect_evidence" not in cluster.types()


@pytest.mark.parametrize(
    ("use", "output"),
    [
        pytest.param(lambda *_: {**IDLE, "cores": 3.8}, None, id="compiles"),
        pytest.param(lambda *_: {**IDLE, "cores": 1.0}, None, id="writes a checkpoint"),
        pytest.param(lambda *_: WORKING, None, id="evaluates"),
        pytest.param(lambda _, now: {**WAITING, "power": 232 + now // 30 % 7 * 9}, None, id="changing power"),
        pytest.param(lambda *_: {**WAITING, "waiting_gpus": 7}, None, id="one GPU works"),
        pytest.param(lambda node, _: WORKING if node == "node3" else IDLE, None, id="one node works"),
        pytest.param(lambda *_: IDLE, lambda now: int(now // (20 * MINUTE)), id="prints now and then"),
        pytest.param(lambda *_: {"cores": 0.1, "memory": 7}, None, id="no GPUs"),
        pytest.param(lambda *_: {"error": "nvidia-smi does not answer"}, None, id="no samples of GPUs"),
    ],
)
def test_no_stall(use: Any, output: Any) -> None:
    assert not watch(train(), 180, use, output or (lambda _: 7))


def test_spare_nodes_only_wait() -> None:
    cluster = train(spares=1)
    assert not watch(cluster, 60, lambda node, _: IDLE if node == "node4" else WORKING)
    assert watch(cluster, 40, lambda *_: IDLE)
    assert not cluster.wait(60)
    assert "node4" not in cluster.events("stall")[0]["text"]


def test_a_progress_file() -> None:
    """Unchanged, it is a stall whatever the GPUs do; but not while its file system does not answer."""
    cluster = train(progress="steps.log")
    for minute in range(70):
        cluster.controller.on_progress_file(minute // 20, cluster.now)
        assert not watch(cluster, 1, lambda *_: WORKING, int)
    assert not watch(cluster, 60, lambda *_: WORKING, int), "no answer"
    cluster.controller.on_progress_file(3, cluster.now)
    assert watch(cluster, 1, lambda *_: WORKING, int)
    assert not cluster.wait(60)
    assert cluster.events("stall")[0]["text"] == "steps.log has not changed for 30 min"


def test_no_stall_before_the_trainer_runs() -> None:
    cluster = Cluster(watch={"stall": 60, "action": "end"}).check()
    assert not watch(cluster, 5, lambda *_: IDLE)


@pytest.mark.parametrize(("action", "again"), [("end", False), ("restart", True)])
def test_actions(action: str, again: bool) -> None:
    """The trainer gets the warning signal first, and its exit code does not count."""
    cluster = train(action)
    assert watch(cluster, 40, lambda *_: IDLE)
    assert not cluster.wait(45)
    assert cluster.sent[-1] == {"type": "stop_before_restart", "seconds": 5}
    cluster.exit(143)
    end = cluster.end(1)
    assert (end.code, end.kind) == (74, "stalled")
    assert end.text.startswith("failed (74 stalled): no output for 30 min; GPUs of node1, node2, node3: idle")
    assert end.text.endswith("; the trainer exited with 143")
    roster = Roster(cluster.settings, cluster.job)
    assert roster.restart(cluster.controller, end, cluster.now) is again
    assert (roster.bad, roster.nodes if again else cluster.nodes) == ([], cluster.nodes)


def test_an_end_that_slurm_asks_for_counts_more() -> None:
    cluster = train("end")
    cluster.controller.requests.is_stopping = True
    assert not watch(cluster, 1, lambda *_: IDLE)
    assert cluster.controller.state.failure is None


@pytest.mark.parametrize(
    ("places", "text"),
    [
        ([], ""),
        (["a (x.py:1)"], "rank 0 on n is in a (x.py:1)"),
        (["a (x.py:1)"] * 2, "all processes are in a (x.py:1)"),
        (["a (x.py:1)", "b (x.py:2)", "c (x.py:3)"], ""),
        (
            ["a (x.py:1)", "a (x.py:9)", "b (y.py:2)"],
            "2 of 3 processes are in a, rank 2 on n is in b (y.py:2)",
        ),
        (["a (x.py:1)"] * 9 + ["b (y.py:2)"] * 4, ""),
    ],
)
def test_who_waits_for_whom(places: list[str], text: str) -> None:
    stacks = [("n", f"rank {number}", place) for number, place in enumerate(places)]
    assert describe_stacks(stacks) == text
