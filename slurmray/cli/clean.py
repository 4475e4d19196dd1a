"""`slurmray clean`: removes old run directories."""

from __future__ import annotations

import sys
import time

import click

from slurmray.errors import UsageError

_DAY = 86400.0  # seconds


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
    from slurmray import history
    from slurmray.slurm import commands, old_runs
    from slurmray.slurm.states import FINAL

    busy = [number for number, state in commands.squeue().items() if state not in FINAL]
    found = list(old_runs.old_run_directories(history.runs(), busy, time.time() - days * _DAY))
    for path in found:
        click.echo(f"{path}  {old_runs.size(path) / 1e6:.1f} MB")
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
            is_gone = old_runs.remove(path)
        except OSError as error:
            click.echo(f"{path}: cannot be removed: {error.strerror}", err=True)
            continue
        if not is_gone:
            click.echo(f"{path}: has files that the job's programs wrote: these stay", err=True)
