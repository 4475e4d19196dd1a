"""Threads that write to pipes and files, so that a loop that sends heartbeats never blocks."""

import errno
import os
import queue
import threading

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, Optional, Set, Tuple

FINAL = (errno.EBADF, errno.EPIPE)  # errno of a target that no later write can reach
PAUSE = 0.2  # seconds between two tries to write
MAX_ERROR = 500  # characters


class Errors:
    """Errors in this process's threads. The first one of each type in each thread is a line of the log.

    write: writes it, from any thread. It is standard error until the program has a log.
    """

    def __init__(self) -> None:
        self.write: "Callable[[str], None]" = lambda text: write_all(2, ("slurmray: %s\n" % text).encode())
        self._known: "Set[Tuple[str, str]]" = set()

    def note(self, thread: str, error: Exception) -> None:
        """Write an error, unless it is known. Raises nothing."""
        kind = type(error).__name__
        if (thread, kind) in self._known:
            return
        self._known.add((thread, kind))
        try:
            # Without a path: each node may have its own.
            why = getattr(error, "strerror", None) or error
            text = "error in the thread for %s: %s: %s" % (thread, kind, why)
            self.write("".join(letter if letter.isprintable() else " " for letter in text)[:MAX_ERROR])
        except Exception:  # nothing is left to say it with
            pass


errors = Errors()


def start(name: str, function: "Callable[[], None]") -> threading.Thread:
    """Call a function in a thread that does not outlive the process. name: what it is for, for `errors`."""

    def run() -> None:
        try:
            function()
        except Exception as error:
            errors.note(name, error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread


class CallQueue:
    """Calls functions one after another in a thread, e.g. to write to a file system that may stall.

    name: as of `start`. The next one is called whatever a function raises. A closed pipe is not an error: the
    end of its reader is noticed elsewhere.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._queue: "queue.Queue[Optional[Callable[[], None]]]" = queue.Queue()
        self._thread = start(name, self._run)

    def submit(self, function: "Callable[[], None]") -> None:
        """Queue a call."""
        self._queue.put(function)

    def finish(self, seconds: float) -> None:
        """Wait until all queued calls have run, but at most `seconds`."""
        self._queue.put(None)
        self._thread.join(seconds)

    def _run(self) -> None:
        for function in iter(self._queue.get, None):
            try:
                function()
            except BrokenPipeError:
                pass
            except Exception as error:  # e.g. a full disk: heartbeats and the exit code still have to arrive
                errors.note(self._name, error)


def call(name: str, function: "Callable[[], None]", seconds: float) -> None:
    """Call a function that a file system may stall, and wait at most so many seconds. name: as of `start`."""
    start(name, function).join(seconds)


class PipeWriter:
    """Writes to a descriptor in a thread, in the order of `send`."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._calls = CallQueue("messages")

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
