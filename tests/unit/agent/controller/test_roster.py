"""Which nodes take part in the next start in the same allocation, with simulated nodes."""

from __future__ import annotations

from typing import Any

import pytest

from slurmray.agent.controller.roster import Roster

from ..simulation import FOLDER, Cluster


def with_spares(spares: int = 1, **settings: Any) -> tuple[Cluster, Roster]:
    cluster = Cluster(nodes=3, spares=spares, **settings)
    return cluster, Roster(cluster.controller.settings, cluster.controller.job)


def restarts(cluster: Cluster, roster: Roster) -> bool:
    return roster.restart(cluster.controller, cluster.end())


def test_a_node_that_is_lost_while_training() -> None:
    cluster, roster = with_spares(on_node_loss="restart")
    cluster.train()
    cluster.lost = {"node3"}
    assert cluster.wait(60)
    assert restarts(cluster, roster)
    assert (roster.nodes, roster.spares, roster.restarts) == (["node1", "node2", "node4"], [], 1)
    text = roster.describe(cluster.controller, cluster.job["nodes"])
    assert text.startswith("restart 1 of 3: node3: no heartbeat for 25 s")
    assert text.endswith("; node4 takes the place of node3")


@pytest.mark.parametrize(
    ("spares", "settings", "lost"),
    [
        (1, {"on_node_loss": "fail"}, {"node3"}),
        (0, {"on_node_loss": "restart"}, {"node3"}),
        (1, {"on_node_loss": "restart"}, {"node2", "node3"}),
        (1, {"on_node_loss": "restart"}, {"node3", "node4"}),
    ],
)
def test_too_few_nodes_or_no_wish(spares: int, settings: dict[str, Any], lost: set[str]) -> None:
    cluster, roster = with_spares(spares, **settings)
    cluster.train()
    cluster.lost = lost
    assert cluster.wait(60)
    assert not restarts(cluster, roster)
    assert roster.nodes == ["node1", "node2", "node3"]


@pytest.mark.parametrize(
    ("fewer", "spares", "lost", "nodes", "left"),
    [
        ([2], 0, "3", "12", ""),
        ([1, 2], 0, "3", "12", ""),
        ([1], 0, "3", "1", "2"),  # the placement does not fit two nodes
        ([1, 2], 0, "23", "1", ""),
        ([2], 1, "34", "12", ""),
        ([2], 1, "3", "124", ""),
        ([2], 0, "23", None, ""),
    ],
)
def test_fewer_nodes(fewer: list[int], spares: int, lost: str, nodes: str | None, left: str) -> None:
    settings = {str(number): {"ray.nodes": number} for number in fewer}
    cluster, roster = with_spares(spares, on_node_loss="restart", fewer_nodes=settings)
    cluster.train()
    cluster.lost = {f"node{number}" for number in lost}
    assert cluster.wait(60)
    assert restarts(cluster, roster) == (nodes is not None)
    if nodes:
        assert roster.nodes == [f"node{number}" for number in nodes]
        assert roster.spares == [f"node{number}" for number in left]


@pytest.mark.parametrize(
    ("spares", "lost", "text"),
    [
        (0, {"node3"}, "; on 2 of 3 nodes, without node3"),
        (1, {"node2", "node3"}, "; on 2 of 3 nodes, without node2 and node3, with node4"),
    ],
)
def test_log_of_a_start_on_fewer_nodes(spares: int, lost: set[str], text: str) -> None:
    cluster, roster = with_spares(spares, on_node_loss="restart", fewer_nodes={"2": {}})
    cluster.train()
    cluster.lost = lost
    assert cluster.wait(60)
    assert restarts(cluster, roster)
    assert roster.describe(cluster.controller, cluster.job["nodes"]).endswith(text)


def test_a_finding_before_the_first_start_on_fewer_nodes() -> None:
    cluster, roster = with_spares(0, on_node_loss="restart", fewer_nodes={"2": {}})
    cluster.receive_from_all("started", step="0")
    row = {"check": "GPUs", "found": "7", "wanted": "8", "fix": "none"}
    cluster.receive("node1", "finding", kind="preflight", **row)
    cluster.receive("node1", "unfit")
    for other in ("node2", "node3"):
        cluster.receive(other, "checked", addresses=["10.0.0.1"], proxy=False, folder=FOLDER)
    assert cluster.wait(20)
    assert restarts(cluster, roster)
    assert (roster.nodes, roster.restarts) == (["node2", "node3"], 0)


def test_restarts_are_limited() -> None:
    cluster, roster = with_spares(2, on_node_loss="restart", restart={"max": 1})
    cluster.train()
    cluster.lost = {"node3"}
    assert cluster.wait(60)
    assert restarts(cluster, roster)
    assert not restarts(cluster, roster)


def test_the_trainer_s_own_end_is_no_reason() -> None:
    cluster, roster = with_spares(on_node_loss="restart")
    cluster.train()
    cluster.receive("node1", "exit", code=1)
    cluster.receive_from_all("healthy")
    assert cluster.wait(10)
    assert not restarts(cluster, roster)


@pytest.mark.parametrize("node", ["node2", "node3"])
def test_a_finding_before_ray_starts(node: str) -> None:
    cluster, roster = with_spares()
    cluster.receive_from_all("started", step="0")
    row = {"check": "GPUs", "found": "7", "wanted": "8", "fix": "none"}
    cluster.receive(node, "finding", kind="preflight", **row)
    cluster.receive(node, "unfit")
    for other in {*cluster.nodes} - {node}:
        cluster.receive(other, "checked", addresses=["10.0.0.1"], proxy=False, folder=FOLDER)
    assert cluster.wait(20)
    assert restarts(cluster, roster)
    assert roster.nodes == ["node1", *sorted({"node2", "node3", "node4"} - {node})]
    assert roster.restarts == 0, "no trainer had started"


def test_a_spare_node_that_fails_ends_nothing() -> None:
    cluster, _ = with_spares()
    cluster.receive_from_all("started", step="0")
    for node in cluster.nodes[:3]:
        cluster.receive(node, "checked", addresses=["10.0.0.1"], proxy=False, folder=FOLDER)
    assert cluster.types() == [], "the spare node is still being checked"
    row = {"check": "GPUs", "found": "7", "wanted": "8", "fix": "none"}
    cluster.receive("node4", "finding", kind="preflight", **row)
    assert not cluster.wait(2)
    assert cluster.types() == ["start_ray"]
    assert [fields["node"] for name, fields in cluster.log.events if name == "set_aside"] == ["node4"]
    assert not cluster.controller.state.failure


def test_a_job_that_is_being_cancelled() -> None:
    cluster, roster = with_spares(on_node_loss="restart")
    cluster.train()
    cluster.lost = {"node3"}
    cluster.wait(60)
    cluster.controller.requests.is_stopping = True
    assert not restarts(cluster, roster)


def test_another_head_node() -> None:
    cluster, roster = with_spares(on_node_loss="restart")
    cluster.train()
    cluster.receive("node1", "failed", kind="ray", message="the container process was killed")
    assert cluster.wait(20)
    assert restarts(cluster, roster)
    assert roster.nodes == ["node2", "node3", "node4"]
