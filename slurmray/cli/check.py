"""`slurmray check`: what can be known of a job before it is submitted."""

from __future__ import annotations

import shutil
from pathlib import Path

import click

from slurmray.cli.flags import FILE, job_options


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
    from slurmray.slurm import slurm_commands

    rendered = render_job(job, given(settings, flags), trainer)
    host = rendered.host
    click.echo(f"{rendered.spec.name}: {rendered.summary}")
    rendered.require_variables()
    rendered.show_remarks()
    if host.name or shutil.which("sbatch"):
        rendered.check_submission()
        click.echo(f"Slurm: {slurm_commands.test_only(text=rendered.text, host=host)}")
    else:
        click.echo("Slurm was not asked: there is no sbatch here", err=True)
