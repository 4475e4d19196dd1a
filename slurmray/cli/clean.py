"""`slurmray clean`: removes old run directories."""

from __future__ import annotations

import contextlib
import glob
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import click

from slurmray import history
from slurmray.errors import UsageError
from slurmray.slurm.job import events_in

_DAY = 86400.0  # seconds
# What a job writes, see docs/guides/paths.md and docs/inside/script.md#run-directory; all else is the user's.
_FILES = (
    *("mark", "heartbeat", "cancel-now", "requeue-requested", "prepared-*"),
    *("logs/service-*.log", "events.jsonl"),
)
_FILES_OF_NODE = ("logs/{}.log", "logs/{}-ray.tar.gz", "logs/.{}.env")


@click.command()
@click.option(
    "--older-than",
    "days",
    type=click.FloatRange(min=0),
    default=30,
    show_default=True,
    metavar="DAYS",
    help="Of jobs that ended so long ago.",
)
@click.option("--dry-run", is_flag=True, help="Only list them.")
@click.option("--yes", is_flag=True, help="Do not ask.")
def clean(*, days: float, dry_run: bool, yes: bool) -> None:
    """Remove the run directories of your ended jobs that were submitted with slurmray: logs and events.

    Files that a trainer wrote there stay, and so does the job's log, slurm-JOBID.out.

    \b
    Examples:
      slurmray clean --dry-run
      slurmray clean --older-than 7 --yes
    """
    from slurmray.slurm import commands
    from slurmray.slurm.states import FINAL

    busy = [number for number, state in commands.squeue().items() if state not in FINAL]
    found = list(_old_run_directories(history.runs(), busy, time.time() - days * _DAY))
    for path in found:
        click.echo(f"{path}  {_size(path) / 1e6:.1f} MB")
    if not found:
        click.echo(f"no run directory of a job that ended {days:g} days ago or earlier", err=True)
    if not found or dry_run:
        return
    if not yes:
        if not sys.stdin.isatty():
            raise UsageError("slurmray clean: would remove these; --yes does it")
        count = "this run directory" if len(found) == 1 else f"these {len(found)} run directories"
        click.confirm(f"Remove {count}?", abort=True, err=True)
    for path in found:
        try:
            is_gone = _remove(path)
        except OSError as error:
            click.echo(f"{path}: cannot be removed: {error.strerror}", err=True)
            continue
        if not is_gone:
            click.echo(f"{path}: has files that the job's programs wrote: these stay", err=True)


def _old_run_directories(runs: Iterable[history.Run], busy: Iterable[int], before: float) -> Iterator[Path]:
    """Yield the run directories whose last event is older than `before`, seconds since 1970.

    busy: ids of jobs that have not ended. Jobs of other clusters are left out: they are not asked.
    """
    left_out = set(busy)
    ended = [run for run in runs if run.cluster is None and run.id not in left_out]
    for run in ended:
        for path in sorted(Path(run.folder, Path(run.run_dir).expanduser()).glob(f"{run.id}-*")):
            attempt = path.name.removeprefix(f"{run.id}-")
            with contextlib.suppress(OSError):
                events = path / "events.jsonl"
                is_old = events.is_file() and events.stat().st_mtime < before
                if is_old and attempt.isdecimal() and not path.is_symlink():
                    yield path


def _size(path: Path) -> int:
    """Return the bytes that `_remove` frees."""
    return sum(file.lstat().st_size for file in _written(path))


def _remove(path: Path) -> bool:
    """Remove what the job wrote in a run directory; False if it has other files, which stay.

    OSError if something cannot be removed.
    """
    for file in _written(path):
        file.unlink()
    for folder in (path / "logs", path):
        with contextlib.suppress(OSError):  # not empty
            folder.rmdir()
    return not path.exists()


def _written(path: Path) -> list[Path]:
    """Return the files that the job wrote, events.jsonl last: it has the names of the nodes."""
    nodes = [node for event in events_in(path) if event["event"] == "start" for node in event["nodes"]]
    patterns = [pattern.format(glob.escape(node)) for node in nodes for pattern in _FILES_OF_NODE]
    found = [file for pattern in (*patterns, *_FILES) for file in path.glob(pattern) if file.is_file()]
    return [file for file in found if not file.parent.is_symlink()]
