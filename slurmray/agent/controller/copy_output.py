"""Copies the trainer's output from a FIFO to the job's log: `python3 -c TEXT PATH SIGNAL...`.

A full disk is no reason for the trainer to wait or to end: output is kept for a while, then left out, and
what is written later says how much. It ignores the signals.
"""

import errno
import os
import select
import signal
import sys
import time

READ_SIZE = 65536
KEPT = 8 << 20  # bytes
PAUSE = 0.2  # seconds between two tries to write
FINAL = (errno.EBADF, errno.EPIPE)  # errno of a target that no later write can reach


def copy(source: int, target: int) -> None:
    """Copy until the source ends. OSError FINAL of the target."""
    waiting, lost = bytearray(), 0
    is_open, is_full, next_try = True, False, 0.0
    while is_open or waiting:
        ready = select.select([source] if is_open else [], [], [], PAUSE if is_full else None)[0]
        if ready:
            data = os.read(source, READ_SIZE)
            is_open = bool(data)
            room = KEPT - len(waiting)
            lost += max(0, len(data) - room)
            waiting += data[:room]
        if is_full and time.monotonic() < next_try:
            continue
        try:
            while waiting:
                del waiting[: os.write(target, waiting)]
            if lost:
                waiting += b"\nslurmray: %d bytes of output are lost: the log could not be written\n" % lost
                lost = 0
                continue
            is_full = False
        except OSError as error:
            if error.errno in FINAL:
                raise
            is_full, next_try = True, time.monotonic() + PAUSE


if __name__ == "__main__":
    for name in sys.argv[2:]:
        signal.signal(getattr(signal, "SIG" + name), signal.SIG_IGN)
    copy(os.open(sys.argv[1], os.O_RDONLY), 1)
