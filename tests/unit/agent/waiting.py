"""Waits of tests that have real processes or threads, which bound a hang."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path


def wait_until(
    holds: Callable[[], object], shown: Callable[[], object] = lambda: "", seconds: float = 60
) -> None:
    """Wait until something holds. shown: what is printed where it does not within some seconds."""
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, shown()
        time.sleep(0.02)


def wait_for_text(path: Path, text: str = "\n") -> str:
    """Return the content of a file, once it is there and contains the text."""
    wait_until(lambda: path.exists() and text in path.read_text(), lambda: path.exists() and path.read_text())
    return path.read_text()
