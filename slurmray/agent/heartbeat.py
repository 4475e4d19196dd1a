"""Heartbeats between controller and nodes, lost nodes, and a clock that stops while a job is suspended."""

import collections
import threading
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, Dict, List

LONGEST = 2.5  # seconds between two heartbeats, in both directions: see `interval`
SHORTEST = 1.0  # with the shortest timeout
ASK_INTERVAL = 0.5  # seconds between two questions to hosts without heartbeats, and for an answer
FILE = "heartbeat"  # in the job's folder: the container process changes its time
# A pause this long between two looks at the clock means that this process was stopped: each loop looks once a
# second or more often. Either the job was suspended (scontrol suspend, gang scheduling), or it alone, e.g. by
# SIGSTOP, a frozen cgroup or a host that swaps. It cannot tell which, and neither says anything about others:
# their messages of that time are still to be read.
_STOPPED = 10.0


def interval(timeout: float) -> float:
    """Seconds between two heartbeats. timeout: the heartbeat timeout in seconds, as below."""
    return min(LONGEST, timeout / 10)


def answer_wait(timeout: float) -> float:
    """Seconds for the host of a node without heartbeats to answer.

    A cut begins up to an interval after the last heartbeat, and may be as long as the timeout. Heartbeats of
    nodes that are lost at the same moment end up to an interval apart.
    """
    return interval(timeout) + ASK_INTERVAL


class Clock:
    """Seconds since the start. Of a pause in which this process was stopped only LONGEST counts.

    So its next heartbeat is due at once, and where each look comes late, time goes on all the same.
    """

    def __init__(self, read: "Callable[[], float]" = time.monotonic) -> None:
        self._read = read
        self._last = read()
        self._now = 0.0
        self._lock = threading.Lock()  # after a pause all threads look at once

    def now(self) -> float:
        """The time in seconds; it never goes back."""
        with self._lock:
            read = self._read()
            passed, self._last = read - self._last, read
            self._now += passed if passed <= _STOPPED else LONGEST
            return self._now


class Timer:
    """Schedules what a process does again and again, e.g. its heartbeats. interval: seconds."""

    def __init__(self, interval: float = LONGEST) -> None:
        self._interval = interval
        self._due = 0.0

    def is_due(self, now: float) -> bool:
        """Whether to do it now. After True, it is due again an interval later."""
        if now < self._due:
            return False
        self._due = now + self._interval
        return True


class Monitor:
    """Times of the nodes' last messages, the oldest first. A message costs O(1) at any number of nodes.

    Once a node's heartbeats are overdue, its host is asked whether it answers to a new connection. A host
    that does not answer is lost. One that answers gets the time that TCP may need after a network cut: the
    kernel repeats what got lost after 0.2, 0.4, 0.8 ... s (RFC 6298), and so may stay silent for as long
    again as the cut took.

    timeout: the heartbeat timeout in seconds.
    """

    def __init__(self, timeout: float) -> None:
        self.timeout = timeout
        self._interval = interval(timeout)
        self._answer_wait = answer_wait(timeout)
        self._answers: "Dict[str, float]" = {}  # node -> when its host last answered
        self._latest: "collections.OrderedDict[str, float]" = collections.OrderedDict()

    def nodes(self) -> "List[str]":
        """Watched nodes, the one with the oldest message first."""
        return list(self._latest)

    def record(self, node: str, now: float) -> None:
        """Note a message of a node. A node is watched from its first message on."""
        self._latest[node] = now
        self._latest.move_to_end(node)

    def forget(self, node: str) -> None:
        """Stop watching a node."""
        self._latest.pop(node, None)

    def seconds_since(self, node: str, now: float) -> float:
        """Seconds since the last message of a watched node."""
        return now - self._latest[node]

    def host_answers(self, node: str, now: float) -> None:
        """Note that a node's host answers to a new connection."""
        self._answers[node] = now

    def lost(self, now: float) -> "List[str]":
        """Nodes that are lost; none while it is not known of others that may be lost with them."""
        lost, is_open = [], False
        for node in self.overdue(now):
            seconds = self.seconds_since(node, now)
            answer = self._answers.get(node)
            if answer is not None and now - answer <= self._answer_wait:
                is_lost = seconds > 2 * (self.timeout + self._interval)
            else:
                is_lost = seconds > self.timeout + self._answer_wait
                is_open = is_open or not is_lost
            lost += [node] * is_lost
        if lost and is_open and self.seconds_since(lost[0], now) <= self.timeout + 2 * self._answer_wait:
            return []
        return lost

    def late(self, now: float, heartbeats: int = 1) -> "List[str]":
        """Nodes that have missed so many heartbeats."""
        return self._silent(heartbeats * self._interval + 1, now)

    def overdue(self, now: float) -> "List[str]":
        """Nodes without a message for more than `timeout` seconds."""
        return self._silent(self.timeout, now)

    def _silent(self, seconds: float, now: float) -> "List[str]":
        silent = []
        for node, latest in self._latest.items():
            if now - latest <= seconds:
                break
            silent.append(node)
        return silent
