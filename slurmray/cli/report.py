"""`slurmray report`: a page about a job."""

from __future__ import annotations

from pathlib import Path

import click

from slurmray.cli.flags import flag, output_option
from slurmray.cli.jobs import complete_job, job_argument
from slurmray.cli.terminal import print_json
from slurmray.errors import UsageError
from slurmray.rendering.output import write_files

_STDOUT = Path("-")
_BEGIN = 1000  # bytes of a page, in which it names slurmray


@click.command()
@click.argument("job", required=False, shell_complete=complete_job)
@output_option("File to write; - is standard output.  [default: slurmray-JOBID.html]")
@flag("--json", "is_json", help="Print a JSON object: id, task and path.")
def report(*, job: str | None, output: Path | None, is_json: bool) -> None:
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
    if is_json and output == _STDOUT:
        raise UsageError("-o -: prints the page, so leave --json out")
    chosen_job, _ = job_argument(job)
    if output == _STDOUT:
        click.echo(chosen_job.report(), nl=False)
        return
    path = output or Path(f"slurmray-{chosen_job.name}.html")
    # It has the commands of the job spec.
    write_files({path: chosen_job.report()}, _refuse_overwriting, max_mode=0o700)
    if is_json:
        print_json({"id": chosen_job.id, "task": chosen_job.task, "path": str(path.absolute())})
    else:
        click.echo(f"wrote {path}", err=True)


def _refuse_overwriting(path: Path) -> None:
    from slurmray.slurm.report_page import GENERATOR

    with path.open("rb") as file:
        begin = file.read(_BEGIN)
    if GENERATOR.encode() not in begin:
        raise UsageError(f"{path}: was not written by slurmray report; choose another name with -o")
