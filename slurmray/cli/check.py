"""`slurmray check`: what can be known of a job before it is submitted."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import click

from slurmray.cli.flags import FILE, job_options
from slurmray.cli.terminal import show

if TYPE_CHECKING:
    from slurmray.cli.rendered import Rendered


@click.command(options_metavar="[JOB.yaml] [OPTIONS] [-- COMMAND ...]")
@click.argument("job", required=False, metavar="", type=FILE)
@job_options
@click.pass_obj
def check(
    trainer: list[str],
    /,
    job: Path | None,
    settings: tuple[str, ...],
    **flags: str | tuple[str, ...] | None,
) -> None:
    """Check a job as slurmray submit does, ask Slurm when it could start, and submit nothing.

    JOB.yaml, options and COMMAND are those of slurmray render. It finds mistakes in the job spec, a placement
    that does not fit, missing files, a folder that cannot be written, more nodes than a partition has, and
    what Slurm refuses. On a host without Slurm it leaves out the last three. To check the nodes, use slurmray
    doctor with the same options.

    \b
    Examples:
      slurmray check job.yaml
      slurmray check job.yaml --nodes 4 -- python train.py
    """
    from slurmray.cli.rendered import given, render_job

    rendered = render_job(job, given(settings, flags), trainer)
    show(f"{rendered.spec.name}: {rendered.summary}")
    rendered.require_variables()
    rendered.show_remarks()
    if answer := ask_slurm(rendered):
        show(f"Slurm: {answer}")
    else:
        click.echo("Slurm was not asked: there is no sbatch here", err=True)


def ask_slurm(rendered: Rendered) -> str:
    """Return when and where a job could start, as Slurm says; "" on a host without sbatch."""
    from slurmray.slurm import slurm_commands

    if not (rendered.host.name or shutil.which("sbatch")):
        return ""
    rendered.check_submission()
    return slurm_commands.test_only(text=rendered.text, host=rendered.host)
