"""A file system of a few pages, and what threads write about their errors."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from slurmray.agent import background_io

from .users import mounted


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system with 1 MiB. Only root can mount it."""
    with mounted(tmp_path / "disk", "size=1m") as folder:
        yield folder


@pytest.fixture
def thread_errors(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the errors of threads have written."""
    written: list[str] = []
    errors = background_io.Errors()
    errors.write = written.append
    monkeypatch.setattr(background_io, "errors", errors)
    return written
