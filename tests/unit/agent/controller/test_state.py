"""The tables of states: what no state allows has no effect, whoever sends it."""

from __future__ import annotations

from typing import Any

import pytest

from slurmray.agent.controller import protocol, state
from slurmray.agent.controller.failure import Failure
from tests.attacks import tried

from ..simulation import Cluster
from .test_protocol import RIGHT


def at(progress: str) -> Cluster:
    """A job that has come so far."""
    cluster = Cluster().start()
    steps: list[tuple[str, Any]] = [
        (protocol.STARTING_RAY, cluster.check),
        (protocol.READY, lambda: cluster.receive("node1", "ready")),
        (protocol.TRAINING, lambda: cluster.receive("node1", "trainer", command="python3 train.py")),
        (protocol.TRAINED, lambda: cluster.exit(1)),
    ]
    for name, step in steps:
        if protocol.JOB.index(name) <= protocol.JOB.index(progress):
            step()
    assert cluster.controller.state.progress == progress
    return cluster


def effects(cluster: Cluster) -> Any:
    job = cluster.controller.state
    nodes = [(node.progress, node.end, node.is_healthy, node.addresses) for node in job.nodes.values()]
    return cluster.sent, cluster.log.events, cluster.done, job.progress, job.trainer_code, job.failure, nodes


RAY, READY, TRAINING = "starting Ray", "ready", "training"
# Message -> while the job is: where it comes in a job. A node that replaces a lost one prepares in training.
ALLOWED = {
    **dict.fromkeys(["leftover_jobs", "checked"], ("checking",)),
    **dict.fromkeys(["versions", "reachable_at", "join", "joined", "ready"], (RAY,)),
    **dict.fromkeys(["stage_done", "prepared"], (RAY, READY, TRAINING)),
    **dict.fromkeys(["burn_in", "attach", "trainer"], (READY,)),
    **dict.fromkeys(["exit", "stacks"], (TRAINING,)),
    **dict.fromkeys(["healthy", "gpus"], ("trained",)),
}


MESSAGES = {kind: RIGHT[kind] for kind in ALLOWED}  # each changes something where it is expected


def test_each_message_of_the_table_is_tried() -> None:
    limited = {name for name, kind in protocol.KINDS.items() if kind.during != protocol.JOB}
    assert limited == ALLOWED.keys()


def test_the_messages_of_a_job_are_allowed() -> None:
    for progress in protocol.JOB:
        job = at(progress).controller.state
        refused = {kind for kind in ALLOWED if job.refusal("node1", kind).endswith(f"the job is {progress}")}
        assert refused == {kind for kind in ALLOWED if progress not in ALLOWED[kind]}


@pytest.mark.parametrize(
    ("kind", "fields", "has_effect"),
    [
        ("started", {"step": "0"}, True),
        ("phase", {"phase": "end", "text": "logs are kept"}, True),
        ("gone", {}, True),
        ("checked", MESSAGES["checked"], False),
        ("failed", {"kind": "ray", "message": "the raylet was killed"}, False),
        ("tether_lost", {}, False),
        ("prepared", {"name": "data"}, False),
        ("stop_requested", {}, False),
    ],
)
def test_messages_while_the_step_is_being_ended(kind: str, fields: dict[str, Any], has_effect: bool) -> None:
    cluster = Cluster()
    if kind != "started":
        cluster.receive("node2", "started", step="0")
    cluster.controller.begin_end()
    before = repr(effects(cluster))
    cluster.receive("node2", kind, **fields)
    assert (repr(effects(cluster)) != before) == has_effect
    assert not cluster.controller.requests.is_end_requested
    assert not [line for line in cluster.log.lines if "ignored" in line]


def test_a_finding_while_the_step_is_being_ended() -> None:
    cluster = Cluster()
    cluster.receive("node2", "started", step="0")
    cluster.controller.begin_end()
    cluster.report("node2")
    cluster.controller.findings.show()
    assert [event["node"] for event in cluster.events("finding")] == ["node2"]


@pytest.mark.attack("messages that no state of the job allows")
@pytest.mark.parametrize("progress", protocol.JOB)
def test_a_message_that_the_job_does_not_expect(progress: str) -> None:
    unexpected = [kind for kind in MESSAGES if progress not in protocol.KINDS[kind].during]
    for kind in tried(unexpected):
        cluster = at(progress)
        before = repr(effects(cluster))
        for _ in range(2):
            cluster.receive("node1", kind, **MESSAGES[kind])
        assert repr(effects(cluster)) == before, kind
        line = f"node1: ignored the message {kind}, while the job is {progress}"
        assert cluster.log.lines.count(line) == 1


FROM_HEAD = ["versions", "join", "joined", "ready", "attach", "trainer", "exit"]


@pytest.mark.attack("messages that no state of the job allows")
def test_a_message_of_the_head_node_from_a_worker() -> None:
    for kind in tried(FROM_HEAD):
        cluster = at(protocol.KINDS[kind].during[0])
        before = repr(effects(cluster))
        cluster.receive("node2", kind, **MESSAGES[kind])
        assert repr(effects(cluster)) == before, kind
        assert f"node2: ignored the message {kind}, from a worker node" in cluster.log.lines


@pytest.mark.attack("messages that no state of the job allows", inputs=2)
def test_a_dashboard_and_a_signal_of_a_worker() -> None:
    """These may come at any time, but from the head node."""
    cluster = at(protocol.TRAINING)
    before = repr(effects(cluster))
    cluster.receive("node2", "dashboard", address="10.0.0.2", port=8265)
    cluster.receive("node2", "signal", name="USR1")
    assert repr(effects(cluster)) == before


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
    cluster.exit(0)
    assert "node1: ignored the message exit, from a node that is gone" in cluster.log.lines
    assert cluster.controller.state.trainer_code is None


def come(job: state.JobState, node: str, kind: str) -> None:
    """Send a message of a node, or lose it."""
    if kind == "lost":
        job.lose_task(node)
    else:
        fields = {"nodes": [node]} if kind == "joined" else MESSAGES.get(kind, {})
        job.receive({"type": kind, "node": node, **fields})


def test_a_node_that_is_gone_is_not_lost() -> None:
    job = state.JobState(["node1", "node2"], state.Requests())
    for kind in ("started", "checked", "joined", "joined", "unfit", "lost", "gone", "lost", "unfit"):
        come(job, "node2", kind)
    assert (job.nodes["node2"].progress, job.nodes["node2"].end) == (protocol.IN_RAY, protocol.GONE)
    assert [job.count(name) for name in (*protocol.NODE[1:], *protocol.ENDS[1:])] == [1] * 6
    come(job, "node1", "checked")
    assert job.nodes["node1"].progress == protocol.WAITING
    assert not job.have_all(protocol.STARTED)


@pytest.mark.parametrize("steps", range(len(protocol.NODE)))
def test_a_node_that_is_left_out_is_counted_once(steps: int) -> None:
    """Whether it goes on or not. steps: how far it has come."""
    kinds = ["started", "checked", "joined"]
    job = state.JobState(["node1", "node2"], state.Requests())
    for kind in kinds[:steps]:
        come(job, "node2", kind)
    assert job.leave_out("node2")
    assert not job.leave_out("node2"), "it is not new"
    assert job.nodes["node2"].progress == protocol.NODE[steps], "it comes to nothing by that"
    for kind in kinds:
        assert not job.have_all(protocol.KINDS[kind].node)
        come(job, "node1", kind)
        come(job, "node2", kind)
        assert job.have_all(protocol.KINDS[kind].node)
        assert job.count(protocol.KINDS[kind].node) == 2
    assert [job.count(name) for name in protocol.ENDS[1:]] == [0, 0, 0]
    assert job.nodes["node2"].end == protocol.UP


def test_a_spare_node_that_comes_back() -> None:
    """It was set aside without heartbeats; Ray starts once the others are checked."""
    cluster = Cluster(nodes=2, spares=1)
    for node in cluster.nodes:
        cluster.receive(node, "started", step="0")
    cluster.lost = {"node3"}
    assert not cluster.wait(60)
    assert [event["node"] for event in cluster.events("set_aside")] == ["node3"]
    cluster.lost = set()
    assert cluster.types() == []
    for node in ("node3", "node1", "node2"):
        assert cluster.types() == []
        cluster.receive(node, "checked", **MESSAGES["checked"])
    assert cluster.types() == ["start_ray"]


def test_a_node_only_goes_on() -> None:
    """From one state to the next, and from one end to a later one."""
    job = state.JobState(["node1"], state.Requests())
    node = job.nodes["node1"]
    seen = []
    for kind in ("joined", "checked", "started", "joined", "started", "checked", "checked", "joined"):
        come(job, "node1", kind)
        seen.append((node.progress, node.has_been_checked))
    assert seen == [
        *[(protocol.WAITING, False)] * 2,
        *[(protocol.STARTED, False)] * 3,
        *[(protocol.CHECKED, True)] * 2,
        (protocol.IN_RAY, True),
    ]
    assert [job.count(name) for name in protocol.NODE[1:]] == [1, 1, 1]
    ends = []
    for kind in ("unfit", "unfit", "gone", "lost"):
        assert node.has_ended == (kind == "lost")
        come(job, "node1", kind)
        ends.append(node.end)
    assert ends == [protocol.UNFIT, protocol.UNFIT, protocol.GONE, protocol.GONE]
    assert [job.count(name) for name in protocol.ENDS[1:]] == [1, 0, 1]
    lost = state.JobState(["node1"], state.Requests())
    come(lost, "node1", "lost")
    assert lost.nodes["node1"].has_ended


def test_a_new_job() -> None:
    """Nothing has happened, nobody has asked for anything."""
    requests = state.Requests()
    assert not (requests.is_end_requested or requests.is_grace_over or requests.signals)
    job = state.JobState(["node1", "node2"], requests)
    assert (job.head, job.progress, [*job.nodes]) == ("node1", protocol.CHECKING, ["node1", "node2"])
    assert not (job.is_ending or job.failure or job.later or job.blamed or job.has_trained)
    assert job.trainer_code is None
    for node in job.nodes.values():
        assert (node.progress, node.end, node.field) == (protocol.WAITING, protocol.UP, "")
        assert not (node.is_healthy or node.is_signalled or node.has_finding or node.has_unknown_gpus)
        assert not (node.is_lost or node.is_left_out or node.has_ended or node.addresses)
    for name in ("is_time_up", "is_stopping"):
        asked = state.Requests()
        setattr(asked, name, True)
        assert asked.is_end_requested
    over = state.Requests()
    over.is_grace_over = True
    assert not over.is_end_requested, "it only shortens what was requested"


@pytest.mark.parametrize("progress", protocol.JOB)
def test_whether_the_trainer_has_been_started(progress: str) -> None:
    assert at(progress).controller.state.has_trained == (progress in (protocol.TRAINING, protocol.TRAINED))


def test_the_nodes_to_blame_for_the_end_of_a_start() -> None:
    job = state.JobState(["node1"], state.Requests())
    assert job.fail(Failure(["node3", "node2"], "ray", "the raylet was killed"))
    assert not job.fail(Failure(["node2", "node5"], "node_lost", "no heartbeat"))
    assert not job.fail(Failure([], "stalled", "no output"))
    assert job.blamed == ["node3", "node2", "node5"]
