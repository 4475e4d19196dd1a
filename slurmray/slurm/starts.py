"""The starts of Ray and trainer in a job, and what failures of nodes cost, from its events. No I/O."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import NamedTuple

from slurmray.agent.controller.host_list import host_list
from slurmray.slurm.restarts import list_failed, split_starts
from slurmray.slurm.states import Event, head_loss


class Start(NamedTuple):
    """A start of Ray and trainer in an attempt.

    restart: how often a trainer was started again before, in this attempt. began, trainer, ended: seconds
    since 1970; `trainer` is None if it did not start, `ended` is now for a job that runs. nodes: the head
    node first. gpus: of the whole allocation, with spare nodes: each is taken to have as many as another one
    of its group has in Ray; 0 if no node was in Ray. failed: host list of the nodes whose failure ended it,
    "" if none did. reason: why it ended, in words; "" for the last one if no node has failed.
    """

    restart: int
    began: float
    trainer: float | None
    ended: float
    nodes: Sequence[str]
    spares: Sequence[str]
    gpus: int
    failed: str
    reason: str

    @property
    def idle(self) -> float:
        """Seconds without the trainer, from the begin on."""
        return max(0.0, (self.ended if self.trainer is None else self.trainer) - self.began)

    @property
    def trained(self) -> float:
        """Seconds with the trainer."""
        return 0.0 if self.trainer is None else max(0.0, self.ended - self.trainer)


class Loss(NamedTuple):
    """What the failure of a node cost.

    time: when the start that it ended was over, seconds since 1970. node, reason: `failed` and `reason` of
    this start. trained: seconds in which its trainer ran. They are lost but for what checkpoints have saved,
    which slurmray does not know. waiting: seconds until the next trainer started, or the next failure came;
    without time in the queue. The GPU hours are those of the whole allocation in these times.
    """

    time: float
    node: str
    reason: str
    trained: float
    waiting: float
    lost_gpu_hours: float
    waiting_gpu_hours: float


def list_starts(events: Sequence[Event], now: float) -> list[Start]:
    """Return the starts in an attempt; [] before the first one.

    A start ends when slurmray has noticed a failure and has ended Ray and trainer on the other nodes. now:
    seconds since 1970; of an attempt that has recorded no end, its end.
    """
    parts = split_starts(events)
    gpus = _count_gpus(events)
    starts = []
    for part, following in itertools.zip_longest(parts, parts[1:]):
        first = part[0]
        trainer = next((event["time"] for event in part if event["event"] == "trainer"), None)
        if following:
            ended, reason = following[0]["time"], following[0].get("text", "")
            failed = host_list(list_failed(part, following[0]))
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


def gpu_hours(starts: Sequence[Start]) -> float:
    """Return the GPU hours that a job's allocations had so far. starts: of all its attempts."""
    most = max((start.gpus for start in starts), default=0)
    return sum((start.idle + start.trained) * (start.gpus or most) for start in starts) / 3600


def _end_of_attempt(events: Sequence[Event], now: float) -> tuple[float, str, str]:
    """End, failed nodes and reason of the last start of an attempt. events: of the attempt."""
    last = next((event for event in events if event["event"] == "end"), events[-1])
    is_lost = last is head_loss(events)
    if last["event"] != "end" and not is_lost:
        return now, "", ""
    if is_lost or last["kind"] == "node_lost":
        return last["time"], last["node"], last["text"]
    return last["time"], "", ""


def _count_gpus(events: Sequence[Event]) -> int:
    """The GPUs of an attempt's allocation."""
    start = next((event for event in events if event["event"] == "start"), None)
    if start is None:
        return 0
    groups = itertools.chain.from_iterable(
        itertools.repeat(number, count) for number, count in enumerate(start.get("components", []))
    )
    group_of = dict(zip(start["nodes"], groups, strict=False))
    most: dict[int, int] = {}
    for event in events:
        if event["event"] == "nodes" and event["step"] == "ray":
            for node in event["nodes"]:
                group = group_of.get(node, 0)
                most[group] = max(most.get(group, 0), event["gpus"])
    return sum(most.get(group_of.get(node, 0), 0) for node in [*start["nodes"], *start.get("spares", [])])
