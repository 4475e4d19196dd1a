"""`slurmray cancel`: cancels a job."""

from __future__ import annotations

import click

from slurmray.cli.terminal import complete_job, job_argument
from slurmray.slurm.states import FINAL


@click.command()
@click.argument("jobs", nargs=-1, required=True, metavar="JOB ...", shell_complete=complete_job)
def cancel(*, jobs: tuple[str, ...]) -> None:
    """Cancel jobs, by id or name. The trainer of each gets its grace period (stop.grace).

    \b
    Examples:
      slurmray cancel 1234
      slurmray cancel verl evaluate
    """
    for name in jobs:
        job, run = job_argument(name)
        what = f"job {job.id}" + (f", {run.name}" if run.name else "")
        if (state := job.state()) in FINAL:
            click.echo(f"{what}: has ended already, {state}", err=True)
            continue
        job.cancel()
        click.echo(f"cancelled {what}", err=True)
