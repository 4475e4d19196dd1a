"""Starts in the same allocation, and nodes that a job lost or set aside, from its events."""

from __future__ import annotations

import json

import pytest

from slurmray.agent.controller.failure import Failure
from slurmray.agent.controller.outcome import Outcome
from slurmray.slurm.starts import Restart, find_bad_nodes, find_restarts
from slurmray.slurm.states import parse_events

from ..test_events import event_line

TEXT = "restart 1 of 3: a: no heartbeat for 25 s; d takes the place of a"
START = event_line("start", nodes=["a", "b"], spares=["c", "d"])
ASIDE = event_line("set_aside", node="c", text="container exited")
RESTART = event_line("restart", restart=1, nodes=["b", "d"], spares=[], failed=["a"], text=TEXT)


def find(text: str) -> dict[str, str]:
    return find_bad_nodes(parse_events(text))


def test_restarts() -> None:
    assert find_restarts([]) == []
    asked = {"restart": 2, "nodes": ["b", "d"], "spares": [], "text": "restart 2 of 3: exited with 3"}
    events = parse_events(START + ASIDE + RESTART + event_line("restart", failed=[], **asked))
    times = [event["time"] for event in events]
    assert find_restarts(events) == [
        Restart(1, times[2], ["b", "d"], ["a"], ["a", "c"], TEXT),
        Restart(2, times[3], ["b", "d"], [], [], "restart 2 of 3: exited with 3"),
    ]


def test_nodes_that_left() -> None:
    assert find("") == find(START) == find(START + event_line("finding", node="b", kind="warn")) == {}
    assert find(START + ASIDE) == {"c": "container exited"}
    assert find(START + ASIDE + RESTART) == {"a": TEXT, "c": "container exited"}
    finding = event_line("finding", node="a", kind="preflight", check="GPUs", found="7", fix="drain it")
    assert find(START + finding + RESTART) == {"a": "GPUs: 7; drain it", "c": TEXT}
    assert find(START + event_line("node_loss", node="b", text="no heartbeat")) == {"b": "no heartbeat"}


def test_a_node_that_takes_part_again() -> None:
    text = "restart 1 of 3: a: the raylet was killed; on the same nodes"
    again = {"nodes": ["a", "b"], "spares": ["c", "d"], "failed": ["a"], "text": text}
    line = event_line("restart", restart=1, **again)
    (restart,) = find_restarts(parse_events(START + line))
    assert (restart.failed, restart.left) == (["a"], [])
    assert find(START + line) == {"a": text}


def finding(node: str, kind: str = "preflight", found: str = "7") -> str:
    return event_line("finding", node=node, kind=kind, check="GPUs", found=found, wanted="8", fix="drain it")


@pytest.mark.parametrize(
    ("found", "bad"),
    [
        (finding("b"), "b"),
        (finding("b") + finding("d", found="6"), "bd"),
        (finding("b", kind="warn"), ""),
        (finding("b") + finding("d"), ""),  # a mistake of the job spec
        (finding("b", found="port 1 is shut") + finding("d", found="port 2 is shut"), ""),
        (finding("b") + finding("d") + finding("b", found="6"), "b"),
    ],
)
@pytest.mark.parametrize("kind", ["preflight", "image", "config"])
def test_nodes_with_findings_that_ended_the_attempt(found: str, bad: str, kind: str) -> None:
    earlier = finding("a") + RESTART
    nodes = find(START + earlier + found + end("b", why="x", kind=kind))
    assert nodes.keys() - {"a", "c"} == ({*bad} if kind != "config" else set())
    assert not bad or kind == "config" or nodes["b"].startswith("GPUs: ")


def aside(node: str) -> str:
    return event_line("set_aside", node=node, text="preflight findings")


def test_a_spare_node_with_a_finding_of_all_nodes() -> None:
    ended = end("a", why="GPUs", kind="preflight")
    of_all = finding("a") + finding("b") + finding("c") + aside("c")
    assert find(START + of_all + ended) == {}
    assert find(START + of_all + finding("c", found="6") + ended) == {"c": "GPUs: 6; drain it"}
    assert find(START + finding("a") + finding("c") + aside("c") + ended).keys() == {"a", "c"}
    restart = event_line("restart", restart=1, nodes=["a", "b"], spares=["c"], failed=["a"], text=TEXT)
    assert find(START + restart + of_all + ended) == {"a": TEXT, "d": TEXT}


def end(*nodes: str, why: str = "no power: since 9:00", kind: str = "node_lost") -> str:
    failure = Failure([*nodes], kind, why)
    outcome = Outcome.failed(kind, failure.node, str(failure))
    return event_line("end", exit_code=outcome.code, kind=kind, node=outcome.node, text=outcome.text)


def test_nodes_whose_loss_ended_the_attempt() -> None:
    assert find(START + end("b")) == {"b": "no power: since 9:00"}
    assert find(START + end("a", "b")) == {"a": "no power: since 9:00", "b": "no power: since 9:00"}
    assert find(START + end("b", why="GPUs: 7", kind="preflight")) == {}
    assert find(START + RESTART + end("a")) == {"a": TEXT, "c": TEXT}, "of the batch script, on an ex-node"
    assert find(START + RESTART + end("d")) == {"a": TEXT, "c": TEXT, "d": "no power: since 9:00"}


@pytest.mark.parametrize("lost", [["n8"], ["n8", "n9", "n10", "n12"], ["n008", "n009", "n010", "m", "n-1.x"]])
def test_many_nodes_whose_loss_ended_the_attempt(lost: list[str]) -> None:
    start = event_line("start", nodes=[*lost, "n7", "n11"], spares=[])
    assert find(start + end(*lost)) == dict.fromkeys(lost, "no power: since 9:00")


@pytest.mark.attack("a damaged events.jsonl", inputs=1)
@pytest.mark.parametrize(
    "nodes",
    [",".join(["a[1-65536]"] * 5000), f"b[1-{'9' * 254}]", f"b[{'9' * 5000}]", "a" * 65536, "a,[", "b[2-1]"],
)
def test_a_host_list_of_more_nodes_than_the_job_has(nodes: str) -> None:
    ended = {"exit_code": 71, "source": "slurmray", "kind": "node_lost", "node": nodes, "text": "x"}
    assert find(START + event_line("end", **ended)) == {}


@pytest.mark.attack("a damaged events.jsonl", inputs=1)
def test_nodes_outside_of_the_allocation() -> None:
    others = {"nodes": ["x", "y"], "spares": ["z"], "failed": ["b", "v"], "text": TEXT}
    lines = event_line("restart", restart=1, **others) + event_line("node_loss", node="w", text="gone")
    assert find(START + lines).keys() == {"a", "b", "c", "d"}


@pytest.mark.attack("a damaged events.jsonl", inputs=1)
def test_very_many_findings() -> None:
    finding = json.loads(event_line("finding", node="a", kind="preflight"))
    loss = {"v": 1, "time": 1, "event": "node_loss", "node": "a", "text": "gone"}
    findings = [{**finding, "time": number, "check": str(number)} for number in range(100_000)]
    start = {"v": 1, "time": 1, "event": "start", "nodes": ["a"], "spares": []}
    assert find_bad_nodes([start, loss, *findings]) == {"a": "gone"}


@pytest.mark.attack("a damaged events.jsonl")
@pytest.mark.parametrize("node", ["-a", "--help", "a b", "a\nb"])
def test_hostile_names(node: str) -> None:
    assert find(START + end(node)) == {}
    assert parse_events(event_line("node_loss", node=node) + event_line("set_aside", node=node)) == []
