"""`slurmray render`: renders a job spec, options, or both as one sbatch script or dstack task."""

from __future__ import annotations

import fcntl
import os
import shlex
import stat
import termios
from pathlib import Path
from typing import TYPE_CHECKING

import click

from slurmray.agent.combinations import combination, count, describe
from slurmray.agent.script_parts import read_settings
from slurmray.cli.flags import FILE, flag, job_options, output_option
from slurmray.cli.terminal import print_json, show
from slurmray.errors import Problem, SpecError, UsageError
from slurmray.files import read as read_file
from slurmray.rendering.output import write_scripts

if TYPE_CHECKING:
    from slurmray.cli.rendered import Rendered

STDOUT = Path("-")
_TASKS_SHOWN = 20
_NAME = "{name}"  # in -o: the name of the job


@click.command(options_metavar="[JOB.yaml ...] [OPTIONS] [-- COMMAND ...]")
@click.argument("jobs", nargs=-1, metavar="", type=FILE)
@job_options
@output_option(
    "File to write; - is standard output, {name} the job's name.  [default: generated.sh, or "
    "generated.dstack.yml; {name}.sh for several job specs]"
)
@click.option(
    "--target",
    type=click.Choice(["slurm", "dstack"]),
    default="slurm",
    help="What to write: slurm, an sbatch script, or dstack, a dstack task.  [default: slurm]",
)
@flag("--force", help="Overwrite FILE even if it was edited, or was not rendered by slurmray.")
@flag("--json", "is_json", help="Print a JSON object for each script: path, name and summary.")
@click.pass_obj
def render(
    trainer: list[str],
    /,
    jobs: tuple[Path, ...],
    output: Path | None,
    target: str,
    force: bool,
    is_json: bool,
    **flags: str | tuple[str, ...] | None,
) -> None:
    """Write the sbatch script of a job, or a dstack task.

    JOB.yaml is a job spec; - reads it from standard input, and several make a script each. Options override
    their fields. You can also give every other option of sbatch, e.g. --qos high or -C h100. COMMAND,
    everything after the first --, runs the trainer. Without COMMAND and `run`, the job checks every node and
    GPU.

    The cluster needs only the script, and Python 3.6 or later on the nodes. It contains the job as JSON,
    commands in bash, and the agent, which calls them. slurmray verify shows whether it was edited.

    \b
    Examples:
      slurmray render --nodes 2 --gpus-per-node 8
          checks two nodes with 8 GPUs each; submit it with sbatch generated.sh
      slurmray render job.yaml --nodes 4 -o four.sh
          the job of job.yaml on four nodes
      slurmray render --nodes 2 --image my/image:1 --env WANDB_API_KEY \\
          --mount ~/data:/data:ro -- python train.py --lr 1e-6
          without a job spec
      slurmray render job.yaml --set container.shm_size=64g -o - | less
          shows the script
      slurmray render small.yaml large.yaml -o "scripts/{name}.sh"
          a script for each
      slurmray render job.yaml --template site.sbatch.j2
          adds the blocks of your site's template
      slurmray render job.yaml --target dstack
          the same job as a dstack task; submit it with dstack apply -f generated.dstack.yml
    """
    from slurmray.cli.rendered import given
    from slurmray.cli.targets import TARGETS

    if is_json and output == STDOUT:
        raise UsageError("-o -: prints the script, so leave --json out")
    output = output or Path(("generated" if len(jobs) < 2 else _NAME) + TARGETS[target].suffix)
    rendered = _render_all(jobs, given(flags), trainer, output, target)
    previous = {path: _recorded_job_file(path) for path in rendered}
    if output == STDOUT:
        click.echo(next(iter(rendered.values())).text.encode(), nl=False)
    else:
        write_scripts({path: job.text for path, job in rendered.items()}, force)
    for path, job in rendered.items():
        _report(path, job, previous[path], is_json=is_json)
    if not jobs and _has_unread_input():
        click.echo("standard input was not read; slurmray render - takes it as the job spec", err=True)


def _render_all(
    jobs: tuple[Path, ...], settings: list[tuple[str, str]], trainer: list[str], output: Path, target: str
) -> dict[Path, Rendered]:
    """Render all job specs, each for a file of its own. SpecError lists the mistakes in all of them."""
    from slurmray.cli.rendered import render_job

    is_one_file = len(jobs) > 1 and _NAME not in str(output)
    by_path: dict[Path, Rendered] = {}
    problems = []
    for job in jobs or (None,):
        try:
            rendered = render_job(job, settings, trainer, output, target)
        except SpecError as error:
            problems += error.problems
            continue
        name = rendered.spec.name
        if _NAME in str(output) and "/" in name:
            problems.append(Problem(str(job or "-o"), f"name: {name} has a /, and {_NAME} is in -o"))
        path = Path(str(output).replace(_NAME, name))
        if path in by_path and not is_one_file:
            message = f"name: {name} is also that of {by_path[path].file}; give each its own"
            problems.append(Problem(str(job), message))
        by_path[path] = rendered
    if problems:  # first, as they may be words of a command without --
        raise SpecError(problems)
    if "%" in str(output):  # what sbatch calls --output
        log = shlex.quote(f"slurm.output={output}")
        raise UsageError(
            f"-o {output}: is the script's file here; for that of the job's output use --set {log}"
        )
    if is_one_file:
        raise UsageError(f"-o {output}: is one file for {len(jobs)} job specs; use {_NAME} in it")
    return by_path


def _report(path: Path, rendered: Rendered, previous: str, *, is_json: bool) -> None:
    """Print what was written, hints about the job, and how to submit it. previous: see _recorded_job_file."""
    from slurmray.cli.rendered import path_from_here, show_remarks

    if path == STDOUT:
        show_remarks(rendered.remarks)
        return
    sweep = {} if is_json else rendered.spec.sweep
    if is_json:
        fields = {"path": str(path.absolute()), "name": rendered.spec.name, "summary": rendered.summary}
        print_json(fields)
    else:
        show(f"wrote {path}: {rendered.summary}", err=True)
    for number in range(min(count(sweep), _TASKS_SHOWN)):
        show(f"  task {number}: {describe(combination(sweep, number))}", err=True)
    if count(sweep) > _TASKS_SHOWN:
        click.echo(f"  and {count(sweep) - _TASKS_SHOWN} more", err=True)
    show_remarks(rendered.remarks)
    if previous and previous != (rendered.file and path_from_here(rendered.file)):
        show(f"{path} was the script of {previous} before; with -o FILE both are kept", err=True)
    for step in () if is_json else rendered.target.next_steps:
        show(step.format(shlex.quote(str(path))), err=True)


def _has_unread_input() -> bool:
    """Whether standard input is a file or pipe with data."""
    try:
        mode = os.fstat(0).st_mode
        if stat.S_ISREG(mode):
            return os.lseek(0, 0, os.SEEK_CUR) < os.fstat(0).st_size
        size = fcntl.ioctl(0, termios.FIONREAD, b"\0" * 4) if stat.S_ISFIFO(mode) else b"\0"
    except OSError:  # closed
        return False
    return any(size)


def _recorded_job_file(script: Path) -> str:
    """Return the job spec's file of a script that slurmray wrote before; "" if it is not known."""
    try:
        argv = shlex.split(read_settings(read_file(script).decode(errors="replace"))["render_again"])
    except (OSError, ValueError, KeyError):
        return ""
    return argv[2] if len(argv) > 2 and argv[:2] == ["slurmray", "render"] and argv[2][0] != "-" else ""
