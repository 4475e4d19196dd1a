"""Waits for a command of the node agent and collects its output."""

import os
import select
import signal
import subprocess
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, Dict

READ_SIZE = 65536
PAUSE = 0.1  # seconds between two looks whether it has ended
TERM_WAIT = 5.0  # seconds between SIGTERM and SIGKILL
REST = 1 << 20  # bytes of output read at most after its end: what a pipe may hold


def collect(
    process: "subprocess.Popen[bytes]",
    streams: "Dict[int, Callable[[bytes], None]]",
    due: float,
    is_interrupted: "Callable[[], bool]",
) -> bool:
    """Pass the output of a process on until it has ended; return whether it was ended because it was late.

    The end of the process counts, not that of its output, which a daemon of it may hold open. It leads a
    session, which gets SIGTERM, on which a runtime cleans up, and SIGKILL when it is late or interrupted.

    streams: descriptor -> function for its data. due: time.monotonic().
    """
    signals = [signal.SIGTERM, signal.SIGKILL]
    is_late, wait_until, rest = False, 0.0, REST
    while True:
        has_ended = process.poll() is not None  # before reading: then all that it wrote is there
        now = time.monotonic()
        if not has_ended and (now > due or is_interrupted()) and now > wait_until:
            if not signals:
                return True  # not even SIGKILL ends it: it waits for a device
            is_late, wait_until = now > due, now + TERM_WAIT
            try:
                os.killpg(process.pid, signals.pop(0))
            except ProcessLookupError:
                pass
        ready = select.select(list(streams), [], [], 0 if has_ended else PAUSE)[0] if streams else []
        if not (streams or has_ended):
            try:
                process.wait(PAUSE)
            except subprocess.TimeoutExpired:
                pass
        for descriptor in ready:
            data = os.read(descriptor, READ_SIZE)
            if data:
                streams[descriptor](data)
            else:
                del streams[descriptor]
            rest -= len(data) if has_ended else 0
        if has_ended and not (ready and rest > 0):
            return is_late
