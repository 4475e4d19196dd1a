"""`slurmray check`: what can be known of a job before it is submitted."""

from __future__ import annotations

import shutil
from pathlib import Path

import click

from slurmray.cli.flags import FILE, flag, job_options
from slurmray.cli.terminal import print_json, show
from slurmray.errors import SpecError
from slurmray.slurm import slurm_commands


@click.command(options_metavar="[JOB.yaml] [OPTIONS] [-- COMMAND ...]")
@click.argument("job", required=False, metavar="", type=FILE)
@job_options
@flag("--json", "is_json", help="Print a JSON object, also of a job with mistakes.")
@click.pass_obj
def check(
    trainer: list[str],
    /,
    job: Path | None,
    is_json: bool,
    **flags: str | tuple[str, ...] | None,
) -> int | None:
    """Check a job as slurmray submit does, ask Slurm when it could start, and submit nothing.

    JOB.yaml, options and COMMAND are those of slurmray render. It finds mistakes in the job spec, a placement
    that does not fit, missing files, a folder that cannot be written, more nodes than a partition has, and
    what Slurm refuses. On a host without Slurm it leaves out the last three. To check the nodes, use slurmray
    doctor with the same options.

    With --json it prints is_valid, mistakes (of each the file, line, column, path of the field, and message),
    name, summary, remarks, and slurm: what Slurm says, "" without it. Mistakes still end it with exit code 2.

    \b
    Examples:
      slurmray check job.yaml
      slurmray check job.yaml --nodes 4 -- python train.py
      slurmray check job.yaml --json | jq -r '.mistakes[] | "\\(.file):\\(.line): \\(.message)"'
    """
    from slurmray.cli.rendered import given, render_job, show_remarks

    facts = {"is_valid": True, "mistakes": [], "name": "", "summary": "", "remarks": [], "slurm": ""}
    try:
        rendered = render_job(job, given(flags), trainer)
    except SpecError as error:
        if not is_json:
            raise
        mistakes = [problem.as_dict() for problem in error.problems]
        print_json({**facts, "is_valid": False, "mistakes": mistakes})
        return error.exit_code
    if not is_json:
        show(f"{rendered.spec.name}: {rendered.summary}")
    rendered.require_variables()
    remarks: list[str] = []
    tell = remarks.extend if is_json else show_remarks
    tell(rendered.remarks)
    answer = ""
    if rendered.host.name or shutil.which("sbatch"):
        tell(rendered.check_submission())
        answer = slurm_commands.test_only(text=rendered.text, host=rendered.host)
    if is_json:
        name, summary = rendered.spec.name, rendered.summary
        print_json({**facts, "name": name, "summary": summary, "remarks": remarks, "slurm": answer})
    elif answer:
        show(f"Slurm: {answer}")
    else:
        click.echo("Slurm was not asked: there is no sbatch here", err=True)
    return None
