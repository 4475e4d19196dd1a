"""Starts of Ray and trainer in a job, the nodes it lost or set aside, and what that cost, from its events.

No I/O.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

from slurmray.agent.controller.findings import normalize
from slurmray.agent.controller.host_list import host_list
from slurmray.slurm.states import Event, head_loss, last_start
from slurmray.slurm.syntax import expand_host_list


class Start(NamedTuple):
    """A start of Ray and trainer in an attempt. Times are seconds since 1970."""

    restart: int  # how often a trainer was started again before, in this attempt
    began: float
    trainer: float | None  # None if it did not start
    ended: float  # now, for a job that runs
    nodes: Sequence[str]  # the head node first
    spares: Sequence[str]
    # Of the whole allocation, with spare nodes: each is taken to have as many as another one of its group has
    # in Ray; 0 if no node was in Ray.
    gpus: int
    failed: str  # host list of the nodes whose failure ended it, "" if none did
    reason: str  # why it ended, in words; "" for the last one if no node has failed

    @property
    def idle(self) -> float:
        """Seconds without the trainer, from the begin on."""
        return max(0.0, (self.ended if self.trainer is None else self.trainer) - self.began)

    @property
    def trained(self) -> float:
        """Seconds with the trainer."""
        return 0.0 if self.trainer is None else max(0.0, self.ended - self.trainer)


class Restart(NamedTuple):
    """A start of Ray and trainer in the same allocation, after the first one."""

    number: int  # how often a trainer was started again; 0 before one has run
    time: float  # seconds since 1970
    nodes: Sequence[str]  # of the job from then on, without spare ones, the head node first
    failed: Sequence[str]  # nodes to blame; none if the trainer asked for it
    left: Sequence[str]  # nodes, spare ones too, that take no part any more
    reason: str  # with the node that takes another one's place


class Loss(NamedTuple):
    """What the failure of a node cost. GPU hours are those of the whole allocation."""

    time: float  # when the start that it ended was over, seconds since 1970
    node: str  # `failed` of this start
    reason: str
    # Seconds in which its trainer ran. They are lost but for what checkpoints have saved, which slurmray does
    # not know.
    trained: float
    # Seconds until the next trainer started, or the next failure came; without time in the queue.
    waiting: float
    lost_gpu_hours: float
    waiting_gpu_hours: float


def list_starts(events: Sequence[Event], now: float) -> list[Start]:
    """Return the starts in an attempt; [] before the first one.

    A start ends when slurmray has noticed a failure and has ended Ray and trainer on the other nodes. now:
    seconds since 1970; of an attempt that has recorded no end, its end.
    """
    parts = split_starts(events)
    gpus = sum(count_gpus(events).values())
    starts = []
    for part, following in itertools.zip_longest(parts, parts[1:]):
        first = part[0]
        trainer = next((event["time"] for event in part if event["event"] == "trainer"), None)
        if following:
            ended, reason = following[0]["time"], following[0].get("text", "")
            failed = host_list(following[0]["failed"]) if following[0]["event"] == "restart" else ""
        else:
            ended, failed, reason = _end_of_attempt(events, now)
        nodes, spares = first["nodes"], first.get("spares", [])
        number = first.get("restart", 0)
        starts.append(Start(number, first["time"], trainer, ended, nodes, spares, gpus, failed, reason))
    return starts


def list_losses(starts: Sequence[Start]) -> list[Loss]:
    """Return what the failures of nodes cost in a job. starts: of all its attempts."""
    most = max((start.gpus for start in starts), default=0)
    losses = []
    for start, following in itertools.zip_longest(starts, starts[1:]):
        if start.failed:
            waiting = following.idle if following else 0.0
            hours = [
                seconds * (spent.gpus or most) / 3600
                for seconds, spent in ((start.trained, start), (waiting, following or start))
            ]
            losses.append(Loss(start.ended, start.failed, start.reason, start.trained, waiting, *hours))
    return losses


def _end_of_attempt(events: Sequence[Event], now: float) -> tuple[float, str, str]:
    """End, failed nodes and reason of the last start of an attempt. events: of the attempt."""
    last = next((event for event in events if event["event"] == "end"), events[-1])
    is_lost = last is head_loss(events)
    if last["event"] != "end" and not is_lost:
        return now, "", ""
    if is_lost or last["kind"] == "node_lost":
        return last["time"], last["node"], last["text"]
    return last["time"], "", ""


def count_gpus(events: Sequence[Event]) -> dict[str, int]:
    """Return {node: its GPUs} of an attempt's allocation."""
    start = next((event for event in events if event["event"] == "start"), None)
    if start is None:
        return {}
    spares = start.get("spares", [])
    counts = [*enumerate(start.get("components", [])), *enumerate(start.get("spares_of_components", []))]
    groups = itertools.chain.from_iterable(itertools.repeat(number, count) for number, count in counts)
    group_of = dict(zip([*start["nodes"], *spares], groups, strict=False))
    most: dict[int, int] = {}
    for event in events:
        if event["event"] == "nodes" and event["step"] == "ray":
            for node in event["nodes"]:
                group = group_of.get(node, 0)
                most[group] = max(most.get(group, 0), event["gpus"])
    return {node: most.get(group_of.get(node, 0), 0) for node in [*start["nodes"], *spares]}


def split_starts(events: Sequence[Event]) -> list[Sequence[Event]]:
    """Return the events of each start of Ray and trainer in an attempt; [] before the first one."""
    places = [at for at, event in enumerate(events) if event["event"] in ("start", "restart")]
    return [events[at:end] for at, end in itertools.pairwise([*places, len(events)])]


def find_restarts(events: Sequence[Event]) -> list[Restart]:
    """Return the starts in an attempt after the first one."""
    restarts: list[Restart] = []
    for before, (event, *_) in itertools.pairwise(split_starts(events)):
        if event["event"] == "restart":
            number, time, nodes = event["restart"], event["time"], event["nodes"]
            then, now = ([*each["nodes"], *each.get("spares", [])] for each in (before[0], event))
            left = [node for node in dict.fromkeys(then) if node not in {*now}]
            restarts.append(Restart(number, time, nodes, event["failed"], left, event["text"]))
    return restarts


def find_bad_nodes(events: Sequence[Event]) -> dict[str, str]:
    """Return {node: why} of the nodes of an attempt that it lost or set aside, or whose findings ended it.

    Findings of all nodes of the last start are left out: they are mistakes of the job spec.
    """
    names, last = last_start(events)
    nodes, findings = {*names}, _group_findings(last)
    of_some = [event for row in findings if not row.keys() >= nodes for event in row.values()]
    of_all = [event for row in findings if row.keys() >= nodes for event in row.values()]
    misled = {event["node"] for event in of_all} - {event["node"] for event in of_some}
    left_out = {id(event) for event in of_all}
    left_out |= {id(event) for event in last if event["event"] == "set_aside" and event["node"] in misled}
    restarts = find_restarts(events)
    bad = {node: restart.reason for restart in restarts for node in [*restart.failed, *restart.left]}
    for event in events:
        name = event["event"]
        if id(event) in left_out:
            continue
        if name in ("node_loss", "set_aside"):
            bad[event["node"]] = event["text"]
        elif name == "finding" and event["kind"] != "warn" and event["node"] in bad:
            bad[event["node"]] = _describe(event)
    allocated = count_gpus(events).keys()
    end = next((event for event in reversed(events) if event["event"] == "end"), None)
    if end and end["kind"] == "node_lost":
        # The text is `failed (71 node lost): NODES: WHY`.
        why = end["text"].split(": ", 2)[-1]
        with suppress(ValueError):  # it is no host list
            bad |= {node: why for node in expand_host_list(end["node"], len(allocated)) if node not in bad}
    if end and end["kind"] in ("preflight", "image"):
        bad |= {event["node"]: _describe(event) for event in of_some}
    return {node: why for node, why in bad.items() if node in allocated}


def _group_findings(events: Sequence[Event]) -> list[dict[str, Event]]:
    """{node: event} of each finding that is no warning."""
    found: dict[tuple[str, ...], dict[str, Event]] = {}
    for event in events:
        if event["event"] == "finding" and event["kind"] != "warn":
            row = event["check"], normalize(event["found"]), event["wanted"]
            found.setdefault(row, {})[event["node"]] = event
    return list(found.values())


def _describe(finding: Event) -> str:
    return f"{finding['check']}: {finding['found']}; {finding['fix']}"
