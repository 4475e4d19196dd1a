"""What a job's GPU hours were used for, from its events and its nodes' samples. No I/O."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from slurmray.agent.node.gpu_samples import IDLE
from slurmray.slurm.job_status import Status
from slurmray.slurm.starts import Start, count_gpus, list_starts, split_starts
from slurmray.slurm.states import Event
from slurmray.slurm.usage import Sample

GPU_HOURS = "GPU hours"
# Field of Account -> what it counts.
MEANINGS = {
    "bring_up": "all nodes, until the trainer starts, also before each restart",
    "training": "the trainer's nodes while it runs, without GPUs that are idle",
    "idle": f"the trainer's GPUs at {IDLE} % or less, by the samples; without samples they count as training",
    "lost": "all nodes, while a trainer ran that the failure of a node cut off; "
    "checkpoints may have saved a part",
    "spare": "other nodes while the trainer runs: spare ones, and those that were set aside or lost",
    "queue": "waiting, from when the job could have started; nothing is allocated, so it is not in the sum",
}


class Account(NamedTuple):
    """Hours of a job in all its attempts so far, as MEANINGS has them.

    All but `queue` add up to `total`. unit: GPU hours, or node hours of a job without GPUs in Ray. idle: None
    without samples. queue: hours that are known, times the GPUs that the job then got; None if none are.
    """

    unit: str
    bring_up: float
    training: float
    idle: float | None
    lost: float
    spare: float
    queue: float | None

    @property
    def total(self) -> float:
        """Hours of the allocations, each from the begin of the batch script to its end."""
        return self.bring_up + self.training + (self.idle or 0.0) + self.lost + self.spare


class Allocation(NamedTuple):
    """The nodes of an attempt. gpus: {node: how many}; 1 each in a job without GPUs. starts: at least one."""

    gpus: Mapping[str, float]
    starts: Sequence[Start]
    events: Sequence[Event]

    @property
    def size(self) -> float:
        """GPUs of all nodes."""
        return sum(self.gpus.values())


class Period(NamedTuple):
    """When a trainer that no failure cut off had a node, seconds since 1970. gpus: of the node."""

    attempt: int
    node: str
    began: float
    ended: float
    gpus: float

    @property
    def hours(self) -> float:
        """GPU hours of the node."""
        return (self.ended - self.began) * self.gpus / 3600


def list_allocations(
    status: Status, attempts: Sequence[Sequence[Event]], now: float
) -> dict[int, Allocation]:
    """Return {attempt: its allocation}. attempts: events of each, the last one is that of `status`.

    Those that have recorded no start are left out. now: seconds since 1970.
    """
    end = status.steps[-1].began + status.steps[-1].seconds if status.steps else now
    starts, counts = {}, {}
    for number, events in enumerate(attempts):
        # While the job is in the queue again, its last attempt is over, too.
        has_ended = number < len(attempts) - 1 or status.state == "PENDING"
        if attempt := list_starts(events, events[-1]["time"] if events and has_ended else end):
            starts[number], counts[number] = attempt, count_gpus(events)
    most = max((sum(gpus.values()) for gpus in counts.values()), default=0)
    allocations = {}
    for number, gpus in counts.items():
        # An attempt that ended before its nodes were in Ray had as many as another one.
        each = most / max(1, len(gpus)) if most else 1.0
        known: Mapping[str, float] = gpus if any(gpus.values()) else dict.fromkeys(gpus, each)
        allocations[number] = Allocation(known, starts[number], attempts[number])
    return allocations


def list_periods(allocations: Mapping[int, Allocation]) -> list[Period]:
    """Return when which node was a trainer's."""
    return [
        Period(number, node, began, ended, allocation.gpus.get(node, 0.0))
        for number, allocation in allocations.items()
        for start, events in zip(allocation.starts, split_starts(allocation.events), strict=True)
        if start.trained and not start.failed
        for node, began, ended in _nodes_of_trainer(start, events)
    ]


def _nodes_of_trainer(start: Start, events: Sequence[Event]) -> Iterator[tuple[str, float, float]]:
    """Node, and when it was the trainer's: with on_node_loss: continue some are lost, or replaced."""
    trainer = start.ended - start.trained
    since = dict.fromkeys(start.nodes, trainer)
    for event in events:
        time = min(max(event["time"], trainer), start.ended)
        if event["event"] == "node_loss" and event["node"] in since:
            began = since.pop(event["node"])
            yield event["node"], began, max(began, time)
        elif event["event"] == "replacement":
            since.setdefault(event["node"], time)
    yield from ((node, began, start.ended) for node, began in since.items())


def measure_idle(samples: Sequence[Sample], periods: Iterable[Period]) -> dict[Period, float]:
    """Return {period: share of a node's GPUs that were idle}, of the periods in which it has samples."""
    shares = {}
    for period in periods:
        values = [
            value
            for sample in samples
            if period.began <= sample.time < period.ended
            for value in sample.utilization
        ]
        if values:
            shares[period] = sum(value <= IDLE for value in values) / len(values)
    return shares


def make_account(
    status: Status,
    allocations: Mapping[int, Allocation],
    idle: Mapping[Period, float],
    now: float,
) -> Account | None:
    """Return the account; None before the first start. idle: by measure_idle. now: seconds since 1970."""
    if not allocations:
        return None
    starts = [(start, each.size / 3600) for each in allocations.values() for start in each.starts]
    trained = sum(start.trained * size for start, size in starts if not start.failed)
    of_trainer = min(trained, sum(period.hours for period in list_periods(allocations)))
    idle_hours = min(of_trainer, sum(share * period.hours for period, share in idle.items()))
    return Account(
        unit=GPU_HOURS if any(start.gpus for start, _ in starts) else "node hours",
        bring_up=sum(start.idle * size for start, size in starts),
        training=of_trainer - idle_hours,
        idle=idle_hours if idle else None,
        lost=sum(start.trained * size for start, size in starts if start.failed),
        spare=trained - of_trainer,
        queue=_queue(status, allocations, now),
    )


def _queue(status: Status, allocations: Mapping[int, Allocation], now: float) -> float | None:
    """GPU hours in the queue, of attempts of which this is known; None if there are none.

    Slurm keeps the submit time of the last attempt only, as a requeue resets it (sacct(1), --duplicates). So
    later ones count from the end of the attempt before.
    """
    last, is_pending = max(allocations), status.state == "PENDING"
    seconds = []
    for number, after in allocations.items():
        if before := allocations.get(number - 1):
            seconds.append((after.starts[0].began - before.starts[-1].ended, after))
    if is_pending:
        seconds.append((now - allocations[last].starts[-1].ended, allocations[last]))
    elif status.attempt == 0 and status.steps and status.steps[0].name == "queued":
        seconds.append((allocations[0].starts[0].began - status.steps[0].began, allocations[0]))
    return sum(max(0.0, each) * after.size for each, after in seconds) / 3600 if seconds else None
