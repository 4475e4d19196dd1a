"""The starts of Ray and trainer in a job, and what failures of nodes cost, from its events."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from slurmray.agent.controller.restarts import next_start
from slurmray.agent.controller.roster import Roster
from slurmray.events import fits
from slurmray.slurm.starts import list_losses, list_starts
from slurmray.slurm.states import Event

from ..agent.simulation import Cluster

T0 = 1764120000.0
TEXT = "restart 1 of 3: node2: no heartbeat for 25 s; node4 takes the place of node2"


def event(name: str, after: float, **fields: Any) -> Event:
    line = {"v": 1, "time": T0 + after, "event": name, **fields}
    assert fits(line), line
    return line


def start(
    after: float, nodes: tuple[str, ...] = ("node1", "node2"), spares: tuple[str, ...] = (), **fields: Any
) -> Event:
    values: dict[str, Any] = {"job": "7", "attempt": 0, "nodes_text": "nodes", "run_dir": "/r/7-0"}
    values |= {"nodes": [*nodes], "spares": [*spares], "components": [len(nodes)], "ray_nodes": len(nodes)}
    values["spares_of_components"] = [len(spares)]
    return event("start", after, head=nodes[0], **{**values, **fields})


def in_ray(after: float, *nodes: str, gpus: int = 8) -> Event:
    return event("nodes", after, step="ray", nodes=[*nodes], gpus=gpus)


def trainer(after: float) -> Event:
    return event("trainer", after, command="python3 train.py")


def restart(after: float, number: int, nodes: tuple[str, ...], **fields: Any) -> Event:
    values = {"nodes": [*nodes], "spares": [], "failed": ["node2"], "text": TEXT, **fields}
    return event("restart", after, restart=number, **values)


def end(after: float, kind: str = "", node: str = "") -> Event:
    source = "slurmray" if kind else "trainer"
    code = 71 if kind else 0
    return event("end", after, exit_code=code, source=source, kind=kind, node=node, text=f"ended {node}")


REPLACED = [
    start(0, spares=("node3", "node4")),
    in_ray(50, "node1", "node2"),
    trainer(100),
    event("set_aside", 900, node="node3", text="no heartbeat for 25 s"),
    restart(3700, 1, ("node1", "node4")),
    in_ray(3750, "node1", "node4"),
    trainer(4060),
]


def test_a_node_that_was_replaced() -> None:
    first, second = list_starts([*REPLACED, end(5000)], T0 + 9000)
    assert (first.began, first.trainer, first.ended) == (T0, T0 + 100, T0 + 3700)
    assert (first.idle, first.trained) == (100, 3600)
    assert (first.restart, first.nodes, first.spares) == (0, ["node1", "node2"], ["node3", "node4"])
    assert (first.failed, first.reason) == ("node2", TEXT), "node3 was set aside before, with its own reason"
    assert (second.restart, second.nodes, second.spares) == (1, ["node1", "node4"], [])
    assert (second.idle, second.trained, second.failed, second.reason) == (360, 940, "", "")


def test_nodes_to_blame_as_the_job_has_recorded_them() -> None:
    """Whether they take part again, or others are missing."""
    same = restart(3700, 1, ("node1", "node2"), failed=["node2"])
    asked = restart(7300, 2, ("node1", "node3"), failed=[])
    events = [start(0), trainer(100), same, trainer(3800), asked, trainer(7400), end(9000)]
    first, second, _ = starts = list_starts(events, T0 + 9000)
    assert (first.failed, second.failed) == ("node2", "")
    (loss,) = list_losses(starts)
    assert (loss.node, loss.trained, loss.waiting) == ("node2", 3600, 100)


@pytest.mark.attack("a damaged events.jsonl")
def test_a_second_start_has_no_such_field() -> None:
    first, _ = list_starts([start(0), {**start(9), "failed": [7]}], T0 + 10)
    assert first.failed == ""


def test_gpu_hours_are_those_of_the_allocation() -> None:
    """Spare nodes, failed ones and those without Ray have as many GPUs as the others."""
    starts = list_starts([*REPLACED, end(5000)], T0 + 9000)
    assert [each.gpus for each in starts] == [32, 32]
    (loss,) = list_losses(starts)
    assert (loss.time, loss.node, loss.reason) == (T0 + 3700, "node2", TEXT)
    assert (loss.trained, loss.waiting) == (3600, 360)
    assert (loss.lost_gpu_hours, loss.waiting_gpu_hours) == pytest.approx((32, 3.2))


def test_nodes_of_several_groups() -> None:
    nodes = ("cpu1", "gpu1", "gpu2", "gpu3")
    begin = start(0, nodes, components=[1, 3])
    events = [begin, in_ray(5, "cpu1", gpus=0), in_ray(6, "gpu2", gpus=4)]
    assert list_starts(events, T0 + 10)[0].gpus == 12
    more = start(0, nodes, spares=("cpu2", "gpu4"), components=[1, 3], spares_of_components=[1, 1])
    assert list_starts([more, *events[1:]], T0 + 10)[0].gpus == 16
    huge = [start(0, nodes, components=[0, 2**31 - 1]), in_ray(5, "gpu1", gpus=4)]
    assert list_starts(huge, T0 + 10)[0].gpus == 16


def test_a_job_that_runs() -> None:
    assert list_starts([], T0) == []
    (only,) = list_starts([start(0)], T0 + 30)
    assert (only.trainer, only.idle, only.trained, only.gpus) == (None, 30, 0, 0)
    assert list_starts(REPLACED, T0 + 5060)[-1].trained == 1000
    assert list_starts(REPLACED, T0)[-1].trained == 0, "this host's clock is late"


def test_a_start_without_trainer_waits_until_it_fails() -> None:
    """No second counts twice."""
    events = [*REPLACED[:-1], restart(3800, 1, ("node1", "node5")), trainer(3900), end(5000)]
    losses = list_losses(list_starts(events, T0 + 9000))
    assert [(loss.trained, loss.waiting) for loss in losses] == [(3600, 100), (0, 100)]


def test_the_last_failure() -> None:
    """The job ends with it: nothing waits. Other ends of slurmray are no failures of nodes."""
    last = list_starts([*REPLACED, end(5000, "node_lost", "node4")], T0 + 9000)
    assert (last[-1].failed, last[-1].reason) == ("node4", "ended node4")
    assert [(loss.node, loss.trained, loss.waiting) for loss in list_losses(last)][1:] == [("node4", 940, 0)]
    assert list_starts([start(0), trainer(5), end(9, "service", "node1")], T0 + 10)[0].failed == ""


def test_a_lost_head_node() -> None:
    """A worker has written the last event; a lost worker that the job does without ends nothing."""
    loss = event("node_loss", 5000, node="node1", text="node2: no heartbeat from the head node")
    last = list_starts([*REPLACED, loss], T0 + 9000)[-1]
    assert (last.failed, last.reason, last.ended) == ("node1", loss["text"], T0 + 5000)
    without = list_starts([start(0), trainer(5), event("node_loss", 9, node="node2", text="x")], T0 + 10)[0]
    assert (without.failed, without.ended) == ("", T0 + 10)


def test_the_next_attempt() -> None:
    """While the job is in the queue it has no GPUs."""
    first = list_starts([start(0), in_ray(5, "node1"), trainer(10), end(3610, "node_lost", "node2")], T0)
    second = list_starts([start(9000), in_ray(9005, "node1", gpus=8), trainer(9360)], T0 + 9400)
    (loss,) = list_losses([*first, *second])
    assert loss.node == "node2"
    assert (loss.lost_gpu_hours, loss.waiting_gpu_hours) == pytest.approx((16, 1.6))


def test_the_gpus_of_a_start_that_had_no_time_for_ray() -> None:
    first = list_starts([start(0), in_ray(5, "node1"), trainer(10), end(3610, "node_lost", "node2")], T0)
    second = list_starts([start(9000)], T0 + 9360)
    assert list_losses([*first, *second])[0].waiting_gpu_hours == pytest.approx(1.6)


def test_events_of_the_controller() -> None:
    cluster = Cluster(nodes=3, spares=2, on_node_loss="restart")
    roster = Roster(cluster.controller.settings, cluster.job)
    cluster.train()
    cluster.receive("node4", "failed", kind="ray", message="the container process was killed")
    cluster.lost = {"node3"}
    outcome = cluster.end(60)
    assert roster.restart(cluster.controller, outcome, 0)
    run = cast(Any, SimpleNamespace(controller=cluster.controller))
    run.job, run.log = dict(cluster.job, run_dir="/r/7-0"), cluster.log
    next_start(run, roster, outcome)
    nodes, spares = ("node1", "node2", "node3"), ("node4", "node5")
    recorded = [event(name, 10.0 * at, **fields) for at, (name, fields) in enumerate(cluster.log.events, 1)]
    events = [start(0, nodes, spares), *recorded]
    first, second = list_starts(events, T0 + 900)
    assert recorded[-1]["failed"] == ["node3"]
    assert first.failed == "node3"
    assert first.reason.startswith("restart 1 of 3: node3: no heartbeat for 25 s")
    assert first.reason.endswith("; node5 takes the place of node3")
    assert (second.restart, second.nodes, second.spares) == (1, ["node1", "node2", "node5"], [])
    assert [each["node"] for each in events if each["event"] == "set_aside"] == ["node4"]
