"""Heartbeats between controller and nodes, lost nodes, and a clock that stops while a job is suspended."""

import collections
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, List, Optional

INTERVAL = 5.0  # seconds between two heartbeats, in both directions
FILE = "heartbeat"  # in the job's folder: the container process changes its time
# A pause this long between two looks at the clock means that the job was suspended (scontrol suspend, gang
# scheduling): each loop looks once a second or more often.
_SUSPENDED = 10.0


class Clock:
    """Seconds since the start, without those during which the job was suspended."""

    def __init__(self, read: "Callable[[], float]" = time.monotonic) -> None:
        self._read = read
        self._last = read()
        self._start = self._last
        self._suspended = 0.0

    def now(self) -> float:
        """The time in seconds; it never goes back."""
        read = self._read()
        if read - self._last > _SUSPENDED:
            self._suspended += read - self._last
        self._last = read
        return read - self._start - self._suspended


class Timer:
    """Schedules the heartbeats that this process sends."""

    def __init__(self) -> None:
        self._due = 0.0

    def is_due(self, now: float) -> bool:
        """Whether to send a heartbeat now. After True, the next is due INTERVAL seconds later."""
        if now < self._due:
            return False
        self._due = now + INTERVAL
        return True


class Monitor:
    """Times of the nodes' last messages, the oldest first. A message costs O(1) at any number of nodes.

    timeout: the heartbeat timeout in seconds.
    """

    def __init__(self, timeout: float) -> None:
        self.timeout = timeout
        self._latest: "collections.OrderedDict[str, float]" = collections.OrderedDict()

    def __len__(self) -> int:
        return len(self._latest)

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

    def lost(self, now: float) -> "List[str]":
        """Nodes without a message for more than `timeout` seconds."""
        found = []
        for node, latest in self._latest.items():
            if now - latest <= self.timeout:
                break
            found.append(node)
        return found

    def latest(self, except_for: str) -> "Optional[float]":
        """Time of the last message of any other node; None where there is none."""
        for node in reversed(self._latest):
            if node != except_for:
                return self._latest[node]
        return None
