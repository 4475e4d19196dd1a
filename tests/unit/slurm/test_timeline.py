"""The bring-up of nodes, from events; durations."""

from __future__ import annotations

from typing import Any

import pytest

from slurmray.slurm.states import Event
from slurmray.slurm.timeline import Count, StepProgress, Timeline, duration, make_timeline

T0 = 1000.0


def event(name: str, after: float, **fields: Any) -> Event:
    return {"v": 1, "time": T0 + after, "event": name, **fields}


def start(*nodes: str, ray_nodes: int) -> Event:
    return event("start", 0, nodes=list(nodes), ray_nodes=ray_nodes)


def done(step: str, after: float, *nodes: str, gpus: int = 0) -> Event:
    return event("nodes", after, step=step, nodes=list(nodes), gpus=gpus)


def timeline(events: list[Event], now: float) -> Timeline:
    made = make_timeline(events, T0 + now)
    assert made
    return made


FOUR = [
    start("a", "b", "c", "d", ray_nodes=3),
    done("agent", 1, "a", "b"),
    done("agent", 2, "c", "d"),
    done("checks", 3, "a", "b", "c", "d"),
    done("image", 4, "a", "d"),
    done("image", 9, "b"),
    done("container", 10, "a"),
    done("ray", 11, "a"),
    done("ray", 12, "b", gpus=8),
]


def test_a_start_on_fewer_nodes() -> None:
    """The last node is not in Ray in either start."""
    restart = event("restart", 100, restart=1, nodes=["a", "b", "c"], spares=[], text="")
    ready = [done("checks", 103, "a", "b", "c"), done("ray", 105, "a", "b")]
    bring_up = timeline([*FOUR, restart, *ready], 120)
    assert [(step.done, step.nodes) for step in bring_up.steps[-2:]] == [(2, 2), (2, 2)]


def test_a_restart_with_fewer_nodes_than_ray_can_have_lost() -> None:
    """A program of the job can write such an event."""
    restart = event("restart", 5, restart=1, nodes=["a"], spares=[], text="x")
    bring_up = timeline([start("a", "b", ray_nodes=1), restart], 20)
    assert [(step.done, step.nodes) for step in bring_up.steps[-2:]] == [(0, 0), (0, 0)]


def test_who_is_done_and_who_is_missing() -> None:
    """d is not in Ray. The container of b is not recorded: it was done when Ray was."""
    bring_up = timeline(FOUR, 20)
    assert bring_up.steps == [
        StepProgress("agent", 4, 4, 1, "d", 2, []),
        StepProgress("checks", 4, 4, 3, "d", 3, []),
        StepProgress("image", 3, 4, 4, "b", 9, ["c"]),
        StepProgress("container", 2, 3, 12, "b", 12, ["c"]),
        StepProgress("ray", 2, 3, 12, "b", 12, ["c"]),
    ]
    assert [(node.name, node.is_ready) for node in bring_up.nodes] == [
        ("a", True),
        ("b", True),
        ("c", False),
        ("d", True),
    ]
    assert bring_up.nodes[1].done == {"agent": 1, "checks": 3, "image": 9, "container": 12, "ray": 12}
    assert bring_up.nodes[3].done == {"agent": 2, "checks": 3, "image": 4}
    assert (bring_up.began, bring_up.seconds) == (T0, 20)
    none = timeline(FOUR[:1], 5).steps[0]
    assert none == StepProgress("agent", 0, 4, None, "", None, ["a", "b", "c", "d"])


def test_how_long_the_bring_up_took() -> None:
    """Until now, until the end of a job that did not come up, or until the last node was ready."""
    end = event("end", 15)
    assert timeline([*FOUR, end], 20).seconds == 15
    ready = [*FOUR, done("image", 12.5, "c"), done("ray", 14, "c", gpus=8)]
    assert timeline([*ready, end], 20).seconds == 14


def test_times_do_not_go_back() -> None:
    """Recorded late, for example, as the events of many nodes are collected."""
    bring_up = timeline([start("a", ray_nodes=1), done("ray", 5, "a"), done("image", 6, "a")], 20)
    assert bring_up.nodes[0].done == dict.fromkeys(("agent", "checks", "image", "container", "ray"), 5)


def test_nodes_and_gpus_over_time() -> None:
    losses = [event("node_loss", 50, node="b", text=""), event("node_loss", 51, node="c", text="")]
    assert timeline([*FOUR, *losses], 60).counts == [
        Count(0, 0, 0),
        Count(11, 1, 0),
        Count(12, 2, 8),
        Count(50, 1, 0),
    ]
    replacements = [
        event("replacement", 52, node="e", lost="b"),
        event("replacement", 53, node="f", lost="c"),
        event("node_loss", 54, node="e", text=""),
    ]
    assert timeline([*FOUR, *losses, *replacements], 60).counts[-2:] == [Count(52, 2, 8), Count(54, 1, 0)]


def test_jobs_without_these_events() -> None:
    """It has not started, or starts no Ray; a later version has more steps."""
    assert make_timeline([], T0) is None
    assert timeline([start("a", ray_nodes=1), done("later", 1, "a")], 2).nodes[0].done == {}
    assert make_timeline([start("a", ray_nodes=0), done("checks", 1, "a")], T0) is None  # slurmray clean


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        (0, "0.0 s"),
        (3.14, "3.1 s"),
        (59.9, "59.9 s"),
        (60, "1 min"),
        (3599, "1 h 0 min"),
        (7800, "2 h 10 min"),
        (86400, "1 d 0 h"),
        (100000, "1 d 3 h"),
    ],
)
def test_durations(seconds: float, expected: str) -> None:
    assert duration(seconds) == expected


@pytest.mark.attack("a damaged events.jsonl", inputs=1)
def test_very_many_nodes_one_by_one() -> None:
    joined = [done("ray", number, f"n{number}", gpus=2) for number in range(100_000)]
    lost = event("node_loss", 100_000, node="n7", text="gone")
    counts = timeline([start("n0", ray_nodes=1), *joined, joined[0], lost], 100_001).counts
    assert [count[1:] for count in counts[-3:]] == [
        (100_000, 200_000),
        (100_000, 200_000),
        (99_999, 199_998),
    ]
