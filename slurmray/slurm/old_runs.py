"""Run directories of jobs that ended long ago."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path

from slurmray.history import Run

# What a job writes, see docs/inside/script.md#run-directory; all else is the user's.
_FILES = ("mark", "heartbeat", "requeue-requested", "prepared-*", "events.jsonl")


def old_run_directories(runs: Iterable[Run], busy: Iterable[int], before: float) -> Iterator[Path]:
    """Yield the run directories whose last event is older than `before`, seconds since 1970.

    busy: ids of jobs that have not ended. Jobs of other clusters are left out: they are not asked.
    """
    left_out = set(busy)
    ended = [run for run in runs if run.cluster is None and run.id not in left_out]
    for run in ended:
        for path in sorted(Path(run.folder, Path(run.run_dir).expanduser()).glob(f"{run.id}-*")):
            attempt = path.name.removeprefix(f"{run.id}-")
            with contextlib.suppress(OSError):
                is_old = (path / "events.jsonl").stat().st_mtime < before
                if is_old and attempt.isdecimal() and not path.is_symlink():
                    yield path


def size(path: Path) -> int:
    """Return the bytes that `remove` frees."""
    files = [file for file in (path / "logs").rglob("*") if file.is_file()]
    return sum(file.lstat().st_size for file in [*files, *_written(path)])


def remove(path: Path) -> bool:
    """Remove what the job wrote in a run directory; False if it has other files, which stay.

    OSError if something cannot be removed.
    """
    if (path / "logs").is_dir() and not (path / "logs").is_symlink():
        shutil.rmtree(path / "logs")
    for file in _written(path):
        file.unlink()
    try:
        path.rmdir()
    except OSError:
        return not path.exists()
    return True


def _written(path: Path) -> list[Path]:
    return [file for pattern in _FILES for file in path.glob(pattern) if file.is_file()]
