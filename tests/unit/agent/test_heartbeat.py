"""Clock and heartbeats."""

from __future__ import annotations

import threading
import time

import pytest

from slurmray.agent.heartbeat import LONGEST, Clock, Monitor, Timer, answer_wait, interval


def test_clock_stops_while_the_job_is_suspended() -> None:
    times = iter([100.0, 101.0, 105.0, 905.0, 906.0])
    clock = Clock(lambda: next(times))
    assert [clock.now() for _ in range(4)] == [1.0, 5.0, 5.0 + LONGEST, 6.0 + LONGEST]


@pytest.mark.parametrize("pause", [11, 60, 3000])
def test_a_process_that_is_often_stopped(pause: int) -> None:
    """It sends a heartbeat after each pause, blames no node whose messages it then reads, and others it does.

    As on a host that swaps, or in a cgroup that is frozen again and again.
    """
    time = 0
    clock, sender, monitor = Clock(lambda: float(time)), Timer(), Monitor(25)
    monitor.record("silent", clock.now())
    sent, lost = 0, []
    for _ in range(20):
        time += pause
        monitor.record("healthy", clock.now())
        sent += sender.is_due(clock.now())
        lost += monitor.lost(clock.now())
        time += 1
    assert sent == 20
    assert {*lost} == {"silent"}


def test_two_threads_that_look_after_a_pause() -> None:
    """The pause counts once: a clock that goes back would send no heartbeat for that long."""
    threads: list[threading.Thread] = []
    times: list[float] = []

    class AfterPause(float):
        """While one thread finds out how long the pause was, the other one looks."""

        def __sub__(self, other: float) -> float:
            if not threads:
                threads.append(threading.Thread(target=lambda: times.append(clock.now())))
                threads[0].start()
                threads[0].join(0.2)
            return float(self).__sub__(other)

    reads = iter([0.0, AfterPause(900.0), AfterPause(900.0)])
    clock = Clock(lambda: next(reads))
    times.append(clock.now())
    threads[0].join()
    assert times == [LONGEST, LONGEST]


def test_a_heartbeat_is_due_after_each_interval() -> None:
    sender = Timer(5)
    assert [now for now in range(20) if sender.is_due(now)] == [0, 5, 10, 15]


def test_nodes_without_heartbeats() -> None:
    monitor = Monitor(25)
    monitor.record("a", 0)
    monitor.record("b", 1)
    monitor.record("a", 2)
    assert monitor.nodes() == ["b", "a"]
    assert monitor.overdue(26) == []
    assert monitor.overdue(26.5) == ["b"]
    assert monitor.overdue(28) == ["b", "a"]
    monitor.forget("b")
    assert monitor.overdue(28) == ["a"]
    assert monitor.seconds_since("a", 28) == 26


def test_a_host_that_does_not_answer_is_lost() -> None:
    monitor = Monitor(25)
    monitor.record("a", 0)
    assert next(now for now in range(40) if monitor.lost(now)) == 29


@pytest.mark.parametrize("timeout", [10, 25, 300])
@pytest.mark.parametrize("phase", [0.0, 0.5, 1.0])
def test_a_cut_two_seconds_shorter_than_the_timeout(timeout: int, phase: float) -> None:
    """It begins at some time between two heartbeats, and what got lost arrives after as long again."""
    monitor = Monitor(timeout)
    monitor.record("a", 0)
    begin = phase * interval(timeout)
    end = begin + timeout - 2
    arrives = end + timeout - 2
    for now in (0.5 * turn for turn in range(int(2 * arrives))):
        if now >= end + 1.5:  # asked twice a second, and each turn of a loop takes as long
            monitor.host_answers("a", now)
        assert not monitor.lost(now)


def test_nodes_that_have_missed_heartbeats() -> None:
    monitor = Monitor(10)
    monitor.record("a", 0)
    monitor.record("b", 1)
    assert monitor.late(1.5) == []
    assert monitor.late(2.5) == ["a"]
    assert monitor.late(2.5, 2) == []
    assert monitor.late(3.5, 2) == ["a"]


def test_a_host_that_answers_gets_the_time_that_tcp_needs() -> None:
    monitor = Monitor(25)
    monitor.record("a", 0)
    for now in range(40):
        if 27 <= now <= 32:
            monitor.host_answers("a", now)
        assert not monitor.lost(now) or now > 32 + answer_wait(25)
    assert monitor.lost(39) == ["a"], "it has not answered for long"
    monitor.record("a", 40)
    assert not monitor.lost(41)
    lost = []
    for now in range(66, 200):
        monitor.host_answers("a", now)
        lost += [now] * bool(monitor.lost(now))
    assert lost[0] == 40 + 2 * (25 + LONGEST) + 1, "it runs, but its node agent does not"


def test_nodes_that_are_lost_at_the_same_moment() -> None:
    """The heartbeats of one ended 2 s before those of the other."""
    monitor = Monitor(25)
    monitor.record("a", 0)
    monitor.record("b", 2)
    monitor.record("c", 60)
    assert next(monitor.lost(now) for now in range(40) if monitor.lost(now)) == ["a", "b"]


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
            best = min(best, time.perf_counter() - begin)
        return best

    assert cost(20_000) < 20 * cost(20)  # 1,000 times if each message looked at all nodes
