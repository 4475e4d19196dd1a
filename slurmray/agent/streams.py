"""Writing to pipes and files from threads, so that no loop that sends heartbeats ever waits for one."""

import os
import queue
import threading

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, Optional


class Outbox:
    """Writes to a descriptor in the order of `send`, in a thread of its own; a reader that is gone is not an
    error.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._queue: "queue.Queue[Optional[bytes]]" = queue.Queue()
        self._thread = threading.Thread(target=self._write, daemon=True)
        self._thread.start()

    def send(self, data: bytes) -> None:
        """Write this after everything sent before."""
        self._queue.put(data)

    def close(self) -> None:
        """Close the descriptor once everything is written. Nothing may be sent afterwards."""
        self._queue.put(None)

    def join(self, seconds: float) -> None:
        """Wait until the descriptor is closed, at most so long."""
        self._thread.join(seconds)

    def _write(self) -> None:
        for data in iter(self._queue.get, None):
            try:
                written = 0
                while written < len(data):
                    written += os.write(self._descriptor, data[written:])
            except OSError:  # EPIPE: that the reader has ended is seen elsewhere
                pass
        os.close(self._descriptor)


class Worker:
    """Runs functions one after another in a thread of its own: writes to a file system that may stall."""

    def __init__(self) -> None:
        self._queue: "queue.Queue[Optional[Callable[[], None]]]" = queue.Queue()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def do(self, function: "Callable[[], None]") -> None:
        """Run this after everything given before; what it raises as an OSError is ignored."""
        self._queue.put(function)

    def finish(self, seconds: float) -> None:
        """Wait until everything given so far has run, at most so long."""
        self._queue.put(None)
        self._thread.join(seconds)

    def _run(self) -> None:
        for function in iter(self._queue.get, None):
            try:
                function()
            except OSError:  # a full disk: the exit code still has to arrive
                pass
