"""How the nodes of a job came up, and how many were in Ray at what time, from its events. No I/O."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from slurmray.slurm.states import Event, last_start

# Step of a node's bring-up, in their order -> what the node is doing until it is done with it.
STEPS = {
    "agent": "Slurm starts the node agent",
    "checks": "preflight checks outside the container",
    "image": "image: pulled, built or found",
    "container": "container starts, container.setup, import of Ray, wait for the head node",
    "ray": "Ray starts, and the node joins with its GPUs",
}
# Those of a node that has services only and is not in Ray.
_STEPS_WITHOUT_RAY = ("agent", "checks", "image")


class NodeTimes(NamedTuple):
    """How a node came up.

    done: step -> seconds from the job's start until the node was done with it; without steps that it has not
    done. is_ready: whether it is done with all of them.
    """

    name: str
    done: Mapping[str, float]
    is_ready: bool


class StepProgress(NamedTuple):
    """How many nodes are done with a step of their bring-up."""

    step: str
    done: int
    nodes: int  # how many are to do it
    half: float | None  # seconds from the job's start until half of them were done; None until then
    last: str  # the last one that was done so far; "" before the first one
    seconds: float | None  # when it was
    missing: Sequence[str]  # names of those that are not done


class Count(NamedTuple):
    """Nodes in Ray with all their GPUs, and the number of these GPUs. seconds: from the job's start."""

    seconds: float
    nodes: int
    gpus: int


class Timeline(NamedTuple):
    """The bring-up of an attempt."""

    began: float  # the event `start`, seconds since 1970
    seconds: float  # until all nodes were ready, else until the end or now
    nodes: Sequence[NodeTimes]  # the head node first
    steps: Sequence[StepProgress]
    counts: Sequence[Count]  # the first one is zero


def make_timeline(events: Sequence[Event], now: float) -> Timeline | None:
    """Return the timeline of the last start in an attempt; None before it, or if it starts no Ray.

    now: seconds since 1970.
    """
    start = next((event for event in events if event["event"] == "start"), None)
    if start is None or not start.get("ray_nodes"):
        return None
    names, events = last_start(events)
    began = events[0]["time"]
    done = _times(events, began)
    count = max(0, start["ray_nodes"] - len(start["nodes"]) + len(names))
    nodes = [_node(name, done.get(name, {}), rank < count) for rank, name in enumerate(names)]
    end = next((event["time"] for event in events if event["event"] == "end"), now)
    latest = max((seconds for node in nodes for seconds in node.done.values()), default=0.0)
    seconds = latest if all(node.is_ready for node in nodes) else max(latest, end - began)
    steps = [_progress(step, nodes if step in _STEPS_WITHOUT_RAY else nodes[:count]) for step in STEPS]
    return Timeline(began, seconds, nodes, steps, list(_counts(events, began)))


def duration(seconds: float) -> str:
    """A duration with one or two units, e.g. `3.1 s`, `4 min`, `2 h 10 min`, `1 d 3 h`."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes = round(seconds / 60)
    hours, days = minutes // 60, minutes // 1440
    if days:
        return f"{days} d {hours % 24} h"
    return f"{hours} h {minutes % 60} min" if hours else f"{minutes} min"


def exact_duration(seconds: float | None) -> str:
    """A duration for tables; "" for None."""
    return "" if seconds is None else f"{seconds:.1f} s"


def clock(seconds: float) -> str:
    """A time in seconds since 1970, for people."""
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(seconds))


def _times(events: Sequence[Event], began: float) -> dict[str, dict[str, float]]:
    """{node: {step: seconds since `began`}}, as they were recorded."""
    times: dict[str, dict[str, float]] = {}
    for event in events:
        if event["event"] == "nodes" and event["step"] in STEPS:
            for name in event["nodes"]:
                times.setdefault(name, {})[event["step"]] = event["time"] - began
    return times


def _node(name: str, recorded: Mapping[str, float], is_in_ray: bool) -> NodeTimes:
    """The times of a node. A step that is not recorded is done when the next one is."""
    steps = tuple(STEPS) if is_in_ray else _STEPS_WITHOUT_RAY
    done: dict[str, float] = {}
    for number, step in enumerate(steps):
        times = [recorded[later] for later in steps[number:] if later in recorded]
        if times:
            done[step] = min(times)
    return NodeTimes(name, done, steps[-1] in done)


def _progress(step: str, nodes: Sequence[NodeTimes]) -> StepProgress:
    times = sorted((node.done[step], place) for place, node in enumerate(nodes) if step in node.done)
    missing = [node.name for node in nodes if step not in node.done]
    middle = (len(nodes) - 1) // 2
    half = times[middle][0] if times and len(times) > middle else None
    seconds, place = times[-1] if times else (None, 0)
    last = nodes[place].name if times else ""
    return StepProgress(step, len(times), len(nodes), half, last, seconds, missing)


def _counts(events: Sequence[Event], began: float) -> Iterator[Count]:
    """The nodes in Ray: more with each event of the step `ray`, fewer with each lost node.

    A spare node that takes the place of a lost one counts from then on; it joins Ray after its prepare steps.
    """
    gpus: dict[str, int] = {}
    lost: dict[str, int] = {}
    total = 0
    yield Count(0.0, 0, 0)
    for event in events:
        if event["event"] == "nodes" and event["step"] == "ray":
            joined = dict.fromkeys(event["nodes"], int(event["gpus"]))
        elif event["event"] == "node_loss" and event["node"] in gpus:
            lost[event["node"]] = gpus.pop(event["node"])
            total -= lost[event["node"]]
            joined = {}
        elif event["event"] == "replacement" and event["lost"] in lost:
            joined = {event["node"]: lost[event["lost"]]}
        else:
            continue
        total += sum(count - gpus.get(node, 0) for node, count in joined.items())
        gpus |= joined
        yield Count(event["time"] - began, len(gpus), total)
