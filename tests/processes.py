"""Child processes of tests, with a time limit."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
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
