"""Threads that write to pipes and files, so that a loop that sends heartbeats never blocks."""

import os
import queue
import threading

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, Optional


class CallQueue:
    """Calls functions one after another in a thread, e.g. to write to a file system that may stall."""

    def __init__(self) -> None:
        self._queue: "queue.Queue[Optional[Callable[[], None]]]" = queue.Queue()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def submit(self, function: "Callable[[], None]") -> None:
        """Queue a call. An OSError that it raises is ignored."""
        self._queue.put(function)

    def finish(self, seconds: float) -> None:
        """Wait until all queued calls have run, but at most `seconds`."""
        self._queue.put(None)
        self._thread.join(seconds)

    def _run(self) -> None:
        for function in iter(self._queue.get, None):
            try:
                function()
            except OSError:  # a full disk: the exit code still has to arrive
                pass


def call(function: "Callable[[], None]", seconds: float) -> None:
    """Call a function that a file system may stall, and wait at most so many seconds. OSError is ignored."""
    calls = CallQueue()
    calls.submit(function)
    calls.finish(seconds)


class PipeWriter:
    """Writes to a descriptor in a thread, in the order of `send`.

    A closed pipe is not an error: the end of the reader is noticed elsewhere.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._calls = CallQueue()

    def send(self, data: bytes) -> None:
        """Queue data for writing."""
        self._calls.submit(lambda: write_all(self._descriptor, data))

    def close(self, seconds: float = 0.0) -> None:
        """Close the descriptor after the queued data is written; wait for that, but at most `seconds`."""
        self._calls.submit(lambda: os.close(self._descriptor))
        self._calls.finish(seconds)


def write_all(descriptor: int, data: bytes) -> None:
    """Write all data to a descriptor."""
    while data:
        data = data[os.write(descriptor, data) :]
