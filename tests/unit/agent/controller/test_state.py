"""The tables of states: what no state allows has no effect, whoever sends it."""

from __future__ import annotations

from typing import Any

import pytest

from slurmray.agent.controller import state
from tests.attacks import tried

from ..simulation import FOLDER, Cluster

# A message of each type that changes something where it is expected.
MESSAGES: dict[str, dict[str, Any]] = {
    "leftover_jobs": {"jobs": ["5"]},
    "checked": {"addresses": ["10.0.0.9"], "proxy": False, "folder": FOLDER},
    "versions": {"text": "Ray 2.60.0"},
    "reachable_at": {"address": "10.0.0.1", "ports": [1234]},
    "join": {"address": "10.0.0.1:6379"},
    "joined": {"nodes": ["node1"], "gpus": 8},
    "ready": {},
    "burn_in": {
        "kind": "CPU",
        "products": [0.1],
        "copies": [9],
        "within": 0,
        "pairs": 0,
        "all": 0,
        "problems": [],
    },
    "stage_done": {"stage": "prepare"},
    "prepared": {"name": "data"},
    "attach": {"command": ["ray"], "runtime": "podman", "folder": FOLDER, "unset": []},
    "trainer": {"command": "python"},
    "exit": {"code": 0},
    "stacks": {"number": 1, "rows": [], "is_complete": True},
    "healthy": {},
    "gpus": {"lost": "lost GPU-a: nvidia-smi: no longer lists it"},
}


def at(progress: str) -> Cluster:
    """A job that has come so far."""
    cluster = Cluster()
    cluster.receive_from_all("started", step="0")
    steps: list[tuple[str, Any]] = [
        (state.STARTING_RAY, cluster.check),
        (state.READY, lambda: cluster.receive("node1", "ready")),
        (state.TRAINING, lambda: cluster.receive("node1", "trainer", command="python3 train.py")),
        (state.TRAINED, lambda: cluster.receive("node1", "exit", code=1)),
    ]
    for name, step in steps:
        if state.JOB.index(name) <= state.JOB.index(progress):
            step()
    assert cluster.controller.state.progress == progress
    return cluster


def effects(cluster: Cluster) -> Any:
    job = cluster.controller.state
    nodes = [(node.progress, node.end, node.is_healthy, node.addresses) for node in job.nodes.values()]
    return cluster.sent, cluster.log.events, cluster.done, job.progress, job.trainer_code, job.failure, nodes


def test_each_message_of_the_table_is_tried() -> None:
    assert MESSAGES.keys() == state.EXPECTED.keys()


@pytest.mark.attack("messages that no state of the job allows")
@pytest.mark.parametrize("progress", state.JOB)
def test_a_message_that_the_job_does_not_expect(progress: str) -> None:
    unexpected = [kind for kind in MESSAGES if progress not in state.EXPECTED[kind]]
    for kind in tried(unexpected):
        cluster = at(progress)
        before = repr(effects(cluster))
        for _ in range(2):
            cluster.receive("node1", kind, **MESSAGES[kind])
        assert repr(effects(cluster)) == before, kind
        line = f"node1: ignored the message {kind}, while the job is {progress}"
        assert cluster.log.lines.count(line) == 1


@pytest.mark.attack("messages that no state of the job allows")
def test_a_message_of_the_head_node_from_a_worker() -> None:
    for kind in tried(set(state.FROM_HEAD) & set(state.EXPECTED)):
        cluster = at(state.EXPECTED[kind][0])
        before = repr(effects(cluster))
        cluster.receive("node2", kind, **MESSAGES[kind])
        assert repr(effects(cluster)) == before, kind
        assert f"node2: ignored the message {kind}, from a worker node" in cluster.log.lines


@pytest.mark.attack("messages that no state of the job allows", inputs=3)
def test_messages_that_the_state_of_a_node_does_not_allow() -> None:
    cluster = Cluster()
    cluster.receive("node2", "checked", **MESSAGES["checked"])
    assert "node2: ignored the message checked, from a node that is waiting" in cluster.log.lines
    cluster.receive_from_all("started", step="0")
    cluster.receive("node2", "started", step="0")
    assert "node2: ignored the message started, from a node that is started" in cluster.log.lines
    cluster.train()
    cluster.receive("node1", "gone")
    cluster.receive("node1", "exit", code=0)
    assert "node1: ignored the message exit, from a node that is gone" in cluster.log.lines
    assert cluster.controller.state.trainer_code is None


def test_a_node_that_is_gone_is_not_lost() -> None:
    job = state.JobState(["node1", "node2"], state.Requests())
    for kind in ("started", "checked", "joined", "joined", "unfit", "lost", "gone", "lost", "unfit"):
        job.advance(["node2"], kind)
    assert (job.nodes["node2"].progress, job.nodes["node2"].end) == (state.IN_RAY, state.GONE)
    assert [job.count(name) for name in (*state.NODE[1:], *state.ENDS[1:])] == [1] * 6
    job.advance(["node1"], "checked")
    assert job.nodes["node1"].progress == state.WAITING
    assert not job.have_all(state.STARTED)
