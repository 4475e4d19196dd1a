"""Events about the nodes' bring-up, with simulated nodes."""

from __future__ import annotations

from typing import Any

from slurmray.slurm.timeline import STEPS

from ..simulation import Cluster


def recorded(cluster: Cluster) -> list[tuple[str, list[str], int]]:
    """The events `nodes` since the last call: step, nodes, GPUs."""
    steps = [(event["step"], event["nodes"], event["gpus"]) for event in cluster.events("nodes")]
    cluster.log.events.clear()
    return steps


def tick(cluster: Cluster) -> list[tuple[str, list[str], int]]:
    cluster.now += 1
    cluster.controller.tick(cluster.now)
    return recorded(cluster)


def phase(cluster: Cluster, node: str, text: str) -> None:
    cluster.receive(node, "phase", phase="container", text=text)


def test_the_steps_of_all_nodes() -> None:
    """Nodes that send the same message in one turn are one event; the job's log gets no line."""
    cluster = Cluster(3)
    steps = []
    cluster.receive_from_all("started", step="0")
    steps += tick(cluster)
    phase(cluster, "node2", "podman leaves the job's cgroup")
    cluster.pass_checks(*cluster.nodes)
    steps += tick(cluster)
    lines = list(cluster.log.lines)
    phase(cluster, "node3", "podman run image")
    phase(cluster, "node1", "podman run image")
    phase(cluster, "node2", "podman run image")
    phase(cluster, "node2", "container.setup runs")
    steps += tick(cluster)
    cluster.receive("node1", "versions", text="Ray 2.60.0")
    for node in ("node3", "node2"):
        cluster.receive(node, "reachable_at", address="10.0.0.2", ports=[9])
    steps += tick(cluster)
    cluster.receive("node1", "joined", nodes=["node1"], gpus=0)
    cluster.receive("node1", "joined", nodes=["node3", "node2"], gpus=8)
    steps += tick(cluster)
    assert steps == [
        ("agent", ["node1", "node2", "node3"], 0),
        ("checks", ["node1", "node2", "node3"], 0),
        ("image", ["node3", "node1", "node2"], 0),
        ("container", ["node1", "node3", "node2"], 0),
        ("ray", ["node1"], 0),
        ("ray", ["node3", "node2"], 8),
    ]
    assert list(dict.fromkeys(step for step, _, _ in steps)) == list(STEPS)
    assert [line for line in cluster.log.lines if line not in lines] == [
        "container: podman run image",
        "container: container.setup runs",
    ]
    assert tick(cluster) == []


def test_an_event_is_recorded_in_the_turn_of_its_message() -> None:
    cluster = Cluster(2)
    cluster.now = 7.0
    for node in cluster.nodes:
        cluster.receive(node, "started", step="0")
        cluster.controller.tick(cluster.now)
        cluster.now += 0.01
        assert recorded(cluster) == [("agent", [node], 0)]


def test_many_nodes_make_few_events() -> None:
    """Even if each message wakes the controller: 1,024 of them in a second."""
    cluster = Cluster(1024)
    steps = []
    for node in cluster.nodes:
        cluster.receive(node, "started", step="0")
        cluster.now += 1 / 1024
        cluster.controller.tick(cluster.now)
        steps += recorded(cluster)
    steps += tick(cluster)
    assert len(steps) <= 4
    assert [node for _, nodes, _ in steps for node in nodes] == cluster.nodes


def test_nothing_is_left_unrecorded_when_the_cluster_is_ready() -> None:
    cluster = Cluster(1024).check()
    cluster.controller.tick(cluster.now)
    recorded(cluster)
    cluster.receive("node1", "joined", nodes=["node1", "node2"], gpus=8)
    cluster.controller.tick(cluster.now)
    assert recorded(cluster) == [], "too early"
    cluster.receive("node1", "ready")
    assert recorded(cluster)[-1] == ("ray", ["node1", "node2"], 8)


def test_nothing_is_left_unrecorded_when_the_job_ends() -> None:
    cluster = Cluster(1024)
    for node in cluster.nodes[:2]:
        cluster.receive(node, "started", step="0")
        cluster.controller.tick(cluster.now)
    assert recorded(cluster) == [("agent", ["node1"], 0)]
    events: Any = cluster.log.events
    cluster.controller.begin_end()
    assert [fields["nodes"] for name, fields in events if name == "nodes"] == [["node2"]]


def test_the_connection_test_begins_while_workers_still_report() -> None:
    """Their addresses are collected, but a worker that comes late does not delay the test of the others."""
    cluster = Cluster(9).start()
    cluster.pass_checks(*cluster.nodes)
    for number, node in enumerate(cluster.nodes[1:8]):  # one every 0.2 s; node9 has not reported
        cluster.receive(node, "reachable_at", address="10.0.0.2", ports=[number])
        cluster.now += 0.2
        cluster.controller.tick(cluster.now)
    sent = [message["targets"] for message in cluster.sent if message["type"] == "check_reachable"]
    assert [len(targets) for targets in sent] == [3, 3]
