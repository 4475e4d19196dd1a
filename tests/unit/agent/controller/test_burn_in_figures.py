"""What the controller does with the figures of a burn-in."""

from __future__ import annotations

from typing import Any

import pytest

from slurmray.agent.controller.roster import Roster

from ..simulation import Cluster

GOOD: dict[str, Any] = {
    "kind": "NVIDIA H200",
    "products": [700, 690, 705],
    "copies": [3900, 3910, 3890],
    "within": 380,
    "pairs": 45,
    "all": 41,
    "problems": [],
}


def burn_in(changes: dict[str, dict[str, Any]], nodes: int = 4, **settings: Any) -> Cluster:
    """A job whose nodes have good figures, with some changes. A node without figures is not measured."""
    checks = {"paths": [], "same_commit": "", "bf16": False, "burn_in": 10}
    cluster = Cluster(nodes, checks=checks, **settings).check()
    cluster.receive("node1", "ready", burn_in_port=23456)
    assert cluster.sent[-1] == {"type": "ready", "burn_in_port": 23456}
    for node in cluster.job["nodes"]:
        figures = {**GOOD, **changes.get(node, {})}
        if figures["kind"]:
            cluster.receive(node, "burn_in", **figures)
        else:
            cluster.receive(node, "stage_done", stage="burn-in")
    return cluster


def findings(cluster: Cluster) -> list[tuple[str, ...]]:
    names = ("node", "kind", "check", "found", "wanted")
    return [tuple(event[name] for name in names) for event in cluster.events("finding")]


def test_nodes_that_are_alike() -> None:
    cluster = burn_in({"node1": {"kind": ""}})
    assert cluster.sent[-1] == {"type": "stage_done", "stage": "burn-in"}
    assert findings(cluster) == []
    assert not cluster.controller.state.failure
    assert "burn-in: all-reduce of all nodes: 41.0 GB/s" in cluster.log.lines
    recorded = cluster.events("burn_in")
    assert [fields["node"] for fields in recorded] == ["node2", "node3", "node4"]
    assert recorded[0]["products"] == [700, 690, 705]


@pytest.mark.parametrize(
    ("change", "check", "found", "wanted"),
    [
        ({"products": [700, 550, 700]}, "matrix products", "GPU 1: 550 TFLOP/s", "700 TFLOP/s, the median"),
        ({"copies": [3900, 3900, 3000]}, "memory", "GPU 2: 3000 GB/s", "3900 GB/s, the median"),
        ({"within": 200}, "all-reduce in the node", "200 GB/s", "380 GB/s, the median"),
        ({"pairs": 4.56}, "all-reduce with another node", "4.56 GB/s", "45 GB/s, the median"),
        (
            {"products": [700, -1, 700], "problems": [["matrix products", "GPU 1: wrong result"]]},
            "matrix products",
            "GPU 1: wrong result",
            "a result",
        ),
    ],
)
def test_a_spare_node_replaces_a_slow_one(
    change: dict[str, Any], check: str, found: str, wanted: str
) -> None:
    """The measured value names the GPU. The next start has the spare node in its place."""
    cluster = burn_in({"node2": change}, spares=1)
    assert findings(cluster) == [("node2", "preflight", check, found, wanted)]
    assert cluster.controller.may_end(cluster.now)
    assert "stage_done" not in cluster.types()
    outcome = cluster.outcome(0)
    assert (outcome.code, outcome.node) == (65, "node2")
    assert "slurm.exclude" in outcome.text
    roster = Roster(cluster.settings, cluster.job)
    assert roster.restart(cluster.controller, outcome, cluster.now)
    assert roster.nodes == ["node1", "node3", "node4", "node5"]


def test_preflight_warn_goes_on() -> None:
    cluster = burn_in({"node2": {"within": 100}}, preflight="warn")
    assert [row[:2] for row in findings(cluster)] == [("node2", "warn")]
    assert cluster.sent[-1] == {"type": "stage_done", "stage": "burn-in"}


def test_only_gpus_of_the_same_kind_are_compared() -> None:
    other = {"kind": "NVIDIA A100", "products": [250, 250, 250], "copies": [1500] * 3, "within": 200}
    cluster = burn_in({"node3": other, "node4": other})
    assert findings(cluster) == []


def test_slow_cpus_are_no_finding() -> None:
    cpu = {"kind": "CPU", "products": [0.05], "copies": [9.0], "within": 0}
    slow = {**cpu, "products": [0.02]}
    cluster = burn_in({"node1": cpu, "node2": slow, "node3": cpu, "node4": {**cpu, "pairs": 1}})
    assert findings(cluster) == []
    wrong = {**cpu, "problems": [["matrix products", "wrong result: 1 of 65536 numbers"]]}
    assert len(findings(burn_in({"node1": cpu, "node2": wrong, "node3": cpu, "node4": cpu}))) == 1


def test_a_broken_node_is_to_blame_for_the_all_reduce_of_all() -> None:
    hangs = {"all": -1, "problems": [["all-reduce of all nodes", "no end after 41 s"]]}
    broken = {"pairs": -1, "problems": [["all-reduce with another node", "no end after 41 s"]]}
    cluster = burn_in({"node1": hangs, "node2": hangs, "node3": {**hangs, **broken}, "node4": hangs})
    assert [row[0] for row in findings(cluster)] == ["node3"]
    slow = burn_in({"node1": hangs, "node2": hangs, "node3": {**hangs, "within": 100}, "node4": hangs})
    assert [row[0] for row in findings(slow)] == ["node3"]
    alone = burn_in(dict.fromkeys(["node1", "node2", "node3", "node4"], hangs))
    assert [row[0] for row in findings(alone)] == ["node1", "node2", "node3", "node4"]


def test_the_table_has_the_slowest_nodes_first() -> None:
    cluster = burn_in({"node7": {"products": [690, 600, 700]}, "node30": {"pairs": 44}}, nodes=40)
    first = next(number for number, line in enumerate(cluster.log.lines) if line.startswith("burn-in, the"))
    table = cluster.log.lines[first + 1 :]
    assert table[1].split()[0] == "node7"
    assert "600 to 700" in table[1]
    assert table[1].endswith("85 % of the median")
    assert table[2].split()[0] == "node30"
    assert table[17].startswith("24 more nodes")
