"""Processes of tests: a time limit, and whether one runs."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import AnyStr


@contextmanager
def bounded(process: subprocess.Popen[AnyStr], seconds: float = 60) -> Iterator[subprocess.Popen[AnyStr]]:
    """Kill the process after `seconds`, so that a test which reads from it or waits for it cannot hang."""
    hang = threading.Timer(seconds, process.kill)
    hang.start()
    try:
        with process:
            yield process
    finally:
        hang.cancel()


def is_running(pid: int) -> bool:
    """Return whether a process runs; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:  # it ended before or after the file was opened
        return False
