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
    that does not fit, missing files, and what Slurm refuses. On a host without Slurm it leaves that out. To
    check the nodes, use slurmray doctor with the same options.

    \b
    Examples:
      slurmray check job.yaml
      slurmray check job.yaml --nodes 4 -- python train.py
    """
    from slurmray.cli.render import given, profile_of, render_job, summary, warn_of_unset
    from slurmray.loading.profile import host_of_jobs
    from slurmray.loading.remarks import remarks
    from slurmray.slurm import commands

    fields = given(settings, flags)
    plan, script = render_job(job, fields, trainer)
    spec = plan.spec
    profile = profile_of(fields)
    host = host_of_jobs(profile)
    click.echo(f"{spec.name}: {summary(spec, 'slurm')}")
    warn_of_unset(spec)
    for line in remarks(plan, is_submitted_here=not host.name):
        click.echo(line, err=True)
    if host.name or shutil.which("sbatch"):
        click.echo(f"Slurm: {commands.test_only(text=script, host=host)}")
    else:
        click.echo("Slurm was not asked: there is no sbatch here", err=True)
