"""Clock and heartbeats."""

from __future__ import annotations

import time

from slurmray.agent.heartbeat import Clock, Monitor, Timer


def test_clock_stops_while_the_job_is_suspended() -> None:
    times = iter([100.0, 101.0, 105.0, 905.0, 906.0])
    clock = Clock(lambda: next(times))
    assert [clock.now() for _ in range(4)] == [1.0, 5.0, 5.0, 6.0]


def test_a_heartbeat_is_due_every_five_seconds() -> None:
    sender = Timer()
    assert [now for now in range(20) if sender.is_due(now)] == [0, 5, 10, 15]


def test_lost_nodes() -> None:
    monitor = Monitor(25)
    monitor.record("a", 0)
    monitor.record("b", 1)
    monitor.record("a", 2)
    assert monitor.nodes() == ["b", "a"]
    assert monitor.lost(26) == []
    assert monitor.lost(26.5) == ["b"]
    assert monitor.lost(28) == ["b", "a"]
    monitor.forget("b")
    assert monitor.lost(28) == ["a"]
    assert monitor.seconds_since("a", 28) == 26


def test_latest_message_of_all_other_nodes() -> None:
    monitor = Monitor(25)
    assert monitor.latest("a") is None
    monitor.record("a", 3)
    assert monitor.latest("a") is None
    monitor.record("b", 4)
    monitor.record("a", 5)
    assert monitor.latest("a") == 4
    assert monitor.latest("c") == 5


def test_a_message_costs_the_same_at_any_number_of_nodes() -> None:
    def cost(nodes: int) -> float:
        monitor = Monitor(25)
        names = [f"node{number}" for number in range(nodes)]
        for name in names:
            monitor.record(name, 0)
        best = 1.0
        for _ in range(5):
            begin = time.perf_counter()
            for turn in range(2000):
                monitor.record(names[turn % nodes], turn / 1000)
                monitor.lost(turn / 1000)
                monitor.latest(names[0])
            best = min(best, time.perf_counter() - begin)
        return best

    assert cost(20_000) < 20 * cost(20)  # 1,000 times if each message looked at all nodes
