"""Starts of Ray and trainer in the same allocation, and nodes that a job lost or set aside. No I/O."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import NamedTuple

from slurmray.slurm.states import Event

_HOST_LIST = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.,\[\]-]*")  # no option of Slurm's commands


class Restart(NamedTuple):
    """A start of Ray and trainer in the same allocation, after the first one.

    number: how often a trainer was started again; 0 before one has run. time: seconds since 1970. nodes: of
    the job from then on, without spare ones, the head node first. left: nodes, spare ones too, that take no
    part any more. reason: why, and which node takes whose place.
    """

    number: int
    time: float
    nodes: Sequence[str]
    left: Sequence[str]
    reason: str


def find_restarts(events: Iterable[Event]) -> list[Restart]:
    """Return the starts in an attempt after the first one."""
    restarts: list[Restart] = []
    before: dict[str, None] = {}
    for event in events:
        if event["event"] not in ("start", "restart"):
            continue
        now = dict.fromkeys([*event["nodes"], *event.get("spares", [])])
        if event["event"] == "restart":
            left = [node for node in before if node not in now]
            restarts.append(Restart(event["restart"], event["time"], event["nodes"], left, event["text"]))
        before = now
    return restarts


def find_bad_nodes(events: Sequence[Event], expand: Callable[[str], Collection[str]]) -> dict[str, str]:
    """Return {node: why} of the nodes that an attempt lost or set aside.

    expand: returns the names in a host list.
    """
    bad = {node: restart.reason for restart in find_restarts(events) for node in restart.left}
    starts = [event for event in events if event["event"] in ("start", "restart")]
    known = {node for event in starts for node in event["nodes"]}
    for event in events:
        name = event["event"]
        if name in ("node_loss", "set_aside"):
            bad[event["node"]] = event["text"]
        elif name == "finding" and event["kind"] != "warn" and event["node"] in bad:
            bad[event["node"]] = f"{event['check']}: {event['found']}; {event['fix']}"
        elif name == "end" and event["kind"] == "node_lost" and _HOST_LIST.fullmatch(event["node"]):
            lost = [event["node"]] if event["node"] in known else expand(event["node"])
            # The text is `failed (71 node lost): NODES: WHY`.
            why = event["text"].split(": ", 2)[-1]
            bad |= {node: why for node in lost if node in known and node not in bad}
    return bad
