"""Processes of tests, which end with them."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import AnyStr


@contextmanager
def bounded(process: subprocess.Popen[AnyStr], seconds: float = 60) -> Iterator[subprocess.Popen[AnyStr]]:
    """The process, killed after so long: who reads of it or waits for it does not hang."""
    hang = threading.Timer(seconds, process.kill)
    hang.start()
    try:
        with process:
            yield process
    finally:
        hang.cancel()
