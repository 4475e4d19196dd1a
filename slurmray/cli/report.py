"""`slurmray report`: a page about a job."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from slurmray.cli.flags import FILE
from slurmray.cli.terminal import complete_job
from slurmray.errors import UsageError

if TYPE_CHECKING:
    from slurmray.slurm.submitted_job import Job

_STDOUT = Path("-")
_BEGIN = 1000  # bytes of a page, in which it names slurmray


@click.command()
@click.argument("job", required=False, shell_complete=complete_job)
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    type=FILE,
    help="File to write; - is standard output.  [default: slurmray-JOBID.html]",
)
def report(*, job: str | None, output: Path | None) -> None:
    """Write a page about a job, in one HTML file: how each node came up, and how the job ended.

    It has the steps of the job, what its GPU hours were used for, the bring-up of each node, nodes and GPUs
    over time, findings, failures, starts of the trainer, what failures of nodes cost, and settings, without
    values of variables. Only you can read it. It overwrites an earlier page, but no other file. JOB is an id
    or a name. Without JOB it is the newest one.

    \b
    Examples:
      slurmray report
      slurmray report verl -o verl.html
    """
    from slurmray.cli.terminal import job_argument

    chosen_job, _ = job_argument(job)
    if output == _STDOUT:
        click.echo(chosen_job.report(), nl=False)
        return
    click.echo(f"wrote {write_report(chosen_job, output)}", err=True)


def write_report(job: Job, output: Path | None = None) -> Path:
    """Write the page about a job, and return its path. output: None is slurmray-JOBID.html."""
    from slurmray.rendering.output import write_files

    path = output or Path(f"slurmray-{job.name}.html")
    # It has the commands of the job spec.
    write_files({path: job.report()}, _refuse_overwriting, is_private=True)
    return path


def _refuse_overwriting(path: Path) -> None:
    from slurmray.slurm.report_page import GENERATOR

    with path.open("rb") as file:
        begin = file.read(_BEGIN)
    if GENERATOR.encode() not in begin:
        raise UsageError(f"{path}: was not written by slurmray report; choose another name with -o")
