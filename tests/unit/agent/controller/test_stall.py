"""A trainer that no longer gets anywhere, and those that only seem so."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

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
    cluster = Cluster(watch=watch, **settings)
    cluster.train()
    return cluster


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
        cluster.controller.stall.on_output(output(cluster.now), cluster.now)
        for _ in cluster.passes(30):
            if "collect_evidence" in cluster.types():
                return True
    return False


def stalls(cluster: Cluster) -> list[dict[str, Any]]:
    return [fields for name, fields in cluster.log.events if name == "stall"]


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
    cluster.controller.stall.on_output(7, cluster.now)
    for _ in range(2 * 60):
        for node in cluster.nodes:
            cluster.receive(node, "heartbeat", doing="", use=IDLE)
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
    assert not stalls(cluster), "one node is missing"
    cluster.receive("node3", "stacks", number=1, rows=[], is_complete=True)
    assert not cluster.wait(2)
    (stall,) = stalls(cluster)
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
    (stall,) = stalls(cluster)
    assert stall["text"] == "no output for 30 min; GPUs of node1, node2, node3: idle"
    cluster.sent.clear()
    cluster.receive("node1", "stacks", number=1, rows=[["late", "f (a.py:1)"]], is_complete=True)
    assert watch(cluster, 40, lambda _, __: IDLE), "reported again after 30 more minutes"


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
    assert "node4" not in stalls(cluster)[0]["text"]


def test_a_progress_file() -> None:
    """Unchanged, it is a stall whatever the GPUs do; but not while its file system does not answer."""
    cluster = train(progress="steps.log")
    for minute in range(70):
        cluster.controller.stall.on_progress(minute // 20, cluster.now)
        assert not watch(cluster, 1, lambda *_: WORKING, int)
    assert not watch(cluster, 60, lambda *_: WORKING, int), "no answer"
    cluster.controller.stall.on_progress(3, cluster.now)
    assert watch(cluster, 1, lambda *_: WORKING, int)
    assert not cluster.wait(60)
    assert stalls(cluster)[0]["text"] == "steps.log has not changed for 30 min"


def test_no_stall_before_the_trainer_runs() -> None:
    cluster = Cluster(watch={"interval": 30, "stall": 60, "action": "end", "progress": ""})
    cluster.check()
    assert not watch(cluster, 5, lambda *_: IDLE)


@pytest.mark.parametrize(("action", "again"), [("end", False), ("restart", True)])
def test_actions(action: str, again: bool) -> None:
    """The trainer gets the warning signal first, and its exit code does not count."""
    cluster = train(action)
    assert watch(cluster, 40, lambda *_: IDLE)
    assert not cluster.wait(45)
    assert cluster.sent[-1] == {"type": "stop_before_restart", "seconds": 5}
    cluster.receive("node1", "exit", code=143)
    assert cluster.wait(1)
    end = cluster.end()
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
