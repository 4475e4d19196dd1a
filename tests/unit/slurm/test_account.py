"""What GPU hours of a job were used for: the rows add up to those of its allocations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from slurmray.slurm.account import Account, Period, list_allocations, list_periods, make_account, measure_idle
from slurmray.slurm.job_status import make_status
from slurmray.slurm.states import Event
from slurmray.slurm.usage import Sample

from .test_starts import REPLACED, T0, end, event, in_ray, restart, start, trainer

HOUR = 3600


def account(
    *attempts: Sequence[Event],
    state: str = "COMPLETED",
    after: float = 20 * HOUR,
    samples: Mapping[str, Sequence[Sample]] | None = None,
    **record: str,
) -> Account:
    """Of a job at a time. samples: of nodes in the last attempt."""
    now = T0 + after
    status = make_status(7, state, record, attempts[-1], now)
    allocations = list_allocations(status, attempts, now)
    idle: dict[Period, float] = {}
    for period in list_periods(allocations):
        if period.attempt == len(attempts) - 1:
            idle |= measure_idle((samples or {}).get(period.node, []), [period])
    found = make_account(status, allocations, idle, now)
    assert found
    return found


def hours(found: Account) -> tuple[float, ...]:
    """Bring-up, training, idle, lost and spare; their sum is that of the allocations."""
    rows = found.bring_up, found.training, found.idle or 0.0, found.lost, found.spare
    assert all(row >= 0 for row in rows)
    assert sum(rows) == pytest.approx(found.total)
    return tuple(round(row, 3) for row in rows)


def sample(after: float, *gpus: float) -> Sample:
    return Sample(T0 + after, gpus)


SIMPLE = [start(0), in_ray(900, "node1", "node2", gpus=4), trainer(HOUR), end(5 * HOUR)]


def test_a_job_that_ran_through() -> None:
    found = account(SIMPLE)
    assert (found.unit, found.idle) == ("GPU hours", None)
    assert hours(found) == (8, 32, 0, 0, 0)


def test_a_node_that_was_replaced() -> None:
    """All nodes of the allocation count: also spare ones, and from then on the failed one."""
    found = account([*REPLACED, end(4060 + HOUR)])
    assert found.total == pytest.approx(32 * (4060 + HOUR) / HOUR)
    assert hours(found) == (round(32 * 460 / HOUR, 3), 16, 0, 32, 16)


def test_idle_gpus() -> None:
    """By node, and only while the trainer had it; others count as training."""
    samples = {
        "node1": [
            sample(HOUR - 1, 0, 0, 0, 0),
            sample(HOUR, 2, 2.5, 90, 100),
            sample(2 * HOUR, 0, 3, 50, 80),
            sample(5 * HOUR, 0, 0, 0, 0),
        ],
        "node3": [sample(2 * HOUR, 0)],
    }
    found = account(SIMPLE, samples=samples)
    assert hours(found) == (8, 28, 4, 0, 0)
    busy = account(SIMPLE, samples={"node2": [sample(2 * HOUR, 99)]})
    assert (busy.idle, busy.training) == (0, 32), "known to be none"


def test_gpus_of_a_trainer_that_was_cut_off_are_not_idle() -> None:
    found = account([*REPLACED, end(4060 + HOUR)], samples={"node2": [sample(1000, 0)]})
    assert (found.idle, found.lost) == (None, 32)


def test_a_trainer_that_continues_without_a_node() -> None:
    """The lost node is no longer the trainer's; the spare one is from then on, and was idle before."""
    events = [
        start(0, spares=("node3",)),
        in_ray(10, "node1", "node2", gpus=4),
        trainer(HOUR),
        event("node_loss", 2 * HOUR, node="node2", text="no heartbeat"),
        event("replacement", 4 * HOUR, node="node3", lost="node2"),
        end(5 * HOUR),
    ]
    samples = {"node3": [sample(2 * HOUR, 0, 0, 0, 0), sample(4.5 * HOUR, 0, 90, 90, 90)]}
    found = account(events, samples=samples)
    assert hours(found) == (12, 4 * (4 + 1 + 1) - 1, 1, 0, 4 * (3 + 3))


def test_nodes_without_gpus() -> None:
    events = [start(0, spares=("node3",)), in_ray(10, "node1", gpus=0), trainer(HOUR), end(3 * HOUR)]
    found = account(events)
    assert found.unit == "node hours"
    assert hours(found) == (3, 4, 0, 0, 2)


def test_the_time_in_the_queue() -> None:
    """Slurm has when the job could start, of the last attempt; others count from the end of that before."""
    eligible = str(round(T0 - 2 * HOUR))
    assert account(SIMPLE).queue is None, "Slurm has forgotten the job"
    assert account(SIMPLE, EligibleTime=eligible).queue == 16
    lost = [
        start(0),
        trainer(10),
        end(100, "node_lost", "node2"),
    ]
    again = [{**each, "time": each["time"] + 100 + HOUR} for each in SIMPLE]
    again[0] = {**again[0], "attempt": 1}
    second = account(lost, again, EligibleTime=eligible)
    assert second.queue == 8, "with the GPUs of the other attempt"
    assert second.lost == pytest.approx(90 * 8 / HOUR)
    assert account([], again).queue is None, "its first attempt is not recorded"
    waits = account(SIMPLE, state="PENDING", after=8 * HOUR, EligibleTime=str(round(T0 + 6 * HOUR)))
    assert waits.queue == 24


def test_a_requeued_job_trains_only_until_its_last_event() -> None:
    """As its node's host failed, it has recorded no end."""
    found = account([*SIMPLE[:-1], event("phase", 2 * HOUR, phase="prepare", text="x")], state="PENDING")
    assert hours(found) == (8, 8, 0, 0, 0)


def test_a_job_that_runs() -> None:
    found = account(SIMPLE[:-1], state="RUNNING", after=2 * HOUR)
    assert hours(found) == (8, 8, 0, 0, 0)
    first = account([start(0)], state="RUNNING", after=HOUR)
    assert (first.unit, hours(first)) == ("node hours", (2, 0, 0, 0, 0))
    assert hours(account(SIMPLE[:-1], state="RUNNING", after=0)) == (8, 0, 0, 0, 0), "a late clock"
    status = make_status(7, "PENDING", {}, [], T0)
    assert make_account(status, list_allocations(status, [[]], T0), {}, T0) is None
    before = make_status(7, "RUNNING", {}, [], T0)
    since = make_account(before, list_allocations(before, [[start(0)]], T0 + HOUR), {}, T0 + HOUR)
    assert since is not None, "it has started since"
    assert hours(since) == (2, 0, 0, 0, 0)


@pytest.mark.attack("a damaged events.jsonl", inputs=1)
@pytest.mark.parametrize(
    "events",
    [
        [restart(10, 1, ("node1",)), trainer(20), end(HOUR)],
        [start(0, ("node1", "node1")), in_ray(5, "node1"), trainer(9), end(HOUR)],
        [*SIMPLE[:3], restart(2 * HOUR, 1, ("node8", "node9"), failed=[]), trainer(3 * HOUR), end(4 * HOUR)],
        [*SIMPLE[:3], event("replacement", 0, node="node9", lost="node1"), end(HOUR + 1)],
        [
            *SIMPLE[:3],
            event("node_loss", 2, node="node2", text="x"),
            event("replacement", 9 * HOUR, node="node2", lost="node1"),
            event("node_loss", 3, node="node2", text="x"),
            end(2 * HOUR),
        ],
    ],
)
def test_events_that_no_job_writes(events: list[Event]) -> None:
    """No row is negative, nor a time, and they add up."""
    allocations = list_allocations(make_status(7, "COMPLETED", {}, events, T0), [events], T0)
    assert all(period.ended >= period.began for period in list_periods(allocations))
    hours(account(events, samples={"node1": [sample(2 * HOUR, *[0] * 1000)]}))
