"""Starts of Ray and trainer in the same allocation, and nodes that a job lost or set aside. No I/O."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple

from slurmray.slurm.states import Event, last_start

_HOST_LIST = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.,\[\]-]*")  # no option of Slurm's commands


class Restart(NamedTuple):
    """A start of Ray and trainer in the same allocation, after the first one.

    number: how often a trainer was started again; 0 before one has run. time: seconds since 1970. nodes: of
    the job from then on, without spare ones, the head node first. failed: nodes to blame; none if the trainer
    asked for it. left: nodes, spare ones too, that take no part any more. reason: why, and which node takes
    whose place.
    """

    number: int
    time: float
    nodes: Sequence[str]
    failed: Sequence[str]
    left: Sequence[str]
    reason: str


def split_starts(events: Sequence[Event]) -> list[Sequence[Event]]:
    """Return the events of each start of Ray and trainer in an attempt; [] before the first one."""
    places = [at for at, event in enumerate(events) if event["event"] in ("start", "restart")]
    return [events[at:end] for at, end in itertools.pairwise([*places, len(events)])]


def find_restarts(events: Sequence[Event]) -> list[Restart]:
    """Return the starts in an attempt after the first one."""
    restarts: list[Restart] = []
    for before, (event, *_) in itertools.pairwise(split_starts(events)):
        if event["event"] == "restart":
            failed, left = list_failed(before, event), _list_left(before[0], event)
            number, time, nodes = event["restart"], event["time"], event["nodes"]
            restarts.append(Restart(number, time, nodes, failed, left, event["text"]))
    return restarts


def list_failed(before: Sequence[Event], restart: Event) -> Sequence[str]:
    """Return the nodes to blame for a start in the same allocation. before: the events of the one that ended.

    Of a job of an older version, which has not recorded them: the nodes that have left.
    """
    if restart["event"] == "restart" and "failed" in restart:
        failed: Sequence[str] = restart["failed"]
        return failed
    earlier = {event["node"] for event in before if event["event"] in ("set_aside", "node_loss")}
    return [node for node in _list_left(before[0], restart) if node not in earlier]


def _list_left(before: Event, after: Event) -> list[str]:
    """The nodes, spare ones too, of a start that are not in the next one."""
    then, now = (dict.fromkeys([*event["nodes"], *event.get("spares", [])]) for event in (before, after))
    return [node for node in then if node not in now]


def find_bad_nodes(events: Sequence[Event], expand: Callable[[str], Collection[str]]) -> dict[str, str]:
    """Return {node: why} of the nodes that an attempt lost or set aside, or whose findings ended it.

    Findings of all nodes of the last start are left out: they are mistakes of the job spec. expand: returns
    the names in a host list.
    """
    nodes, last = last_start(events)
    findings = _group_findings(last)
    of_some = [event for row in findings if not row.keys() >= {*nodes} for event in row.values()]
    of_all = [event for row in findings if row.keys() >= {*nodes} for event in row.values()]
    misled = {event["node"] for event in of_all} - {event["node"] for event in of_some}
    restarts = find_restarts(events)
    bad = {node: each.reason for each in restarts for node in [*each.failed, *each.left]}
    starts = [event for event in events if event["event"] in ("start", "restart")]
    known = {node for event in starts for node in event["nodes"]}
    for event in events:
        name = event["event"]
        if name == "node_loss" or (name == "set_aside" and not (event["node"] in misled and event in last)):
            bad[event["node"]] = event["text"]
        elif name == "finding" and event["kind"] != "warn" and event["node"] in bad and event not in of_all:
            bad[event["node"]] = _describe(event)
        elif name == "end" and event["kind"] == "node_lost" and _HOST_LIST.fullmatch(event["node"]):
            lost = [event["node"]] if event["node"] in known else expand(event["node"])
            # The text is `failed (71 node lost): NODES: WHY`.
            why = event["text"].split(": ", 2)[-1]
            bad |= {node: why for node in lost if node in known and node not in bad}
    is_ended = any(event["event"] == "end" and event["kind"] in ("preflight", "image") for event in last)
    return bad | {event["node"]: _describe(event) for event in of_some if is_ended}


def _group_findings(events: Sequence[Event]) -> list[dict[str, Event]]:
    """{node: event} of each finding that is no warning."""
    found: dict[tuple[str, ...], dict[str, Event]] = {}
    for event in events:
        if event["event"] == "finding" and event["kind"] != "warn":
            row = event["check"], event["found"], event["wanted"]
            found.setdefault(row, {})[event["node"]] = event
    return list(found.values())


def _describe(finding: Event) -> str:
    return f"{finding['check']}: {finding['found']}; {finding['fix']}"
