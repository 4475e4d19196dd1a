"""The loop of controller, node agent and container process: they wait for data, signals and time."""

import os
import select
import signal

from . import signals

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, Dict, Optional

READ_SIZE = 65536


class Loop:
    """Turns, each of which handles the data of descriptors. A signal begins one. Made in the main thread.

    on_signal: called with the name of each signal that may be passed on to the trainer. Like `note` of catch
    it may run between any two instructions of the main thread, so it only takes a note.
    """

    def __init__(self, on_signal: "Callable[[str], None]") -> None:
        self._readers: "Dict[int, Callable[[bytes], None]]" = {}
        self._wake, self._waker = os.pipe()
        for descriptor in (self._wake, self._waker):
            os.set_blocking(descriptor, False)
        signal.set_wakeup_fd(self._waker)
        signals.catch(on_signal)

    @staticmethod
    def catch(number: int, note: "Callable[[], object]") -> None:
        """Call `note` at a signal."""
        signal.signal(number, lambda *_: note())

    def add(self, descriptor: int, handle: "Callable[[bytes], None]") -> None:
        """Call `handle` with data of a descriptor, and with b"" at its end. Those added first go first."""
        self._readers[descriptor] = handle

    def wake(self) -> None:
        """Begin the next turn at once. For other threads."""
        os.write(self._waker, b"\0")

    def turn(self, seconds: "Optional[float]") -> bool:
        """Wait for data or a signal, at most `seconds` (None: no limit); return whether there was data."""
        ready = select.select([self._wake, *self._readers], [], [], seconds)[0]
        if self._wake in ready:
            ready.remove(self._wake)
            os.read(self._wake, READ_SIZE)
        for descriptor in ready:
            data = os.read(descriptor, READ_SIZE)
            handle = self._readers[descriptor] if data else self._readers.pop(descriptor)
            handle(data)
        return bool(ready)
