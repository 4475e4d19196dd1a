"""`slurmray render`: renders a job spec, options, or both as one sbatch script or dstack task."""

from __future__ import annotations

import json
import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import click

from slurmray.cli.flags import FILE, job_flags, sbatch_options
from slurmray.errors import ExitCode, UsageError

if TYPE_CHECKING:
    from slurmray.spec.job import JobSpec

# {target: file}
DEFAULT_OUTPUT = {"slurm": Path("generated.sh"), "dstack": Path("generated.dstack.yml")}
_STDOUT = Path("-")


@click.command(options_metavar="[JOB.yaml] [OPTIONS] [-- COMMAND ...]")
@click.argument("job", required=False, metavar="", type=FILE)
@job_flags
@sbatch_options
@click.option(
    "--mount", multiple=True, metavar="SRC[:DEST[:OPTS]]", help="Mount a file or folder.  [repeatable]"
)
@click.option(
    "--env",
    multiple=True,
    metavar="NAME[=VALUE]",
    help="Environment variable for Ray and the trainer. Without =VALUE, its value is taken from your "
    "environment at sbatch and is not in the script. The job's log shows VALUE as `...`.  [repeatable]",
)
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="PATH=VALUE",
    help="Any field of the job spec, e.g. container.shm_size=64g. PATH+=VALUE adds to a list.  [repeatable]",
)
@click.option(
    "--template",
    metavar="FILE",
    type=click.Path(readable=False),
    help="A site's template that extends job.sbatch.j2.",
)
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    type=FILE,
    help="File to write; - is standard output.  [default: generated.sh, or generated.dstack.yml]",
)
@click.option(
    "--target",
    type=click.Choice(list(DEFAULT_OUTPUT)),
    default="slurm",
    help="What to write: slurm, an sbatch script, or dstack, a dstack task.  [default: slurm]",
)
@click.option(
    "--force", is_flag=True, help="Overwrite FILE even if it was edited, or was not rendered by slurmray."
)
@click.pass_obj
def render(
    trainer: list[str],
    /,
    job: Path | None,
    settings: tuple[str, ...],
    output: Path | None,
    target: str,
    force: bool,
    **flags: str | tuple[str, ...] | None,
) -> None:
    """Write the sbatch script of a job, or a dstack task.

    JOB.yaml is a job spec; - reads it from standard input. Options override its fields. Those of sbatch that
    are not listed here are options, too, e.g. --qos high or -C h100. COMMAND, everything
    after the first --, runs the trainer. Without COMMAND and `run`, the job checks every node and GPU.

    The script is all that the cluster needs of slurmray; the nodes need Python 3.6 or later. It contains the
    job as JSON, commands in bash, and the agent, which calls them. slurmray verify shows whether it
    was edited.

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
      slurmray render job.yaml --template site.sbatch.j2
          adds the blocks of your site's template
      slurmray render job.yaml --target dstack
          the same job as a dstack task; submit it with dstack apply -f generated.dstack.yml
    """
    from slurmray.loading.remarks import secrets_by_value
    from slurmray.rendering.output import write_script

    output = output or DEFAULT_OUTPUT[target]
    before = _job_file_of(output)
    spec, text = render_job(job, given(settings, flags), trainer, output, target)
    if output == _STDOUT:
        click.echo(text.encode(), nl=False)
    else:
        write_script(output, text, force, is_private=bool(secrets_by_value(spec)))
        click.echo(f"wrote {output}: {_summary(spec, target)}", err=True)
    warn_of_unset(spec, target)
    for line in _remarks(spec, target):
        click.echo(line, err=True)
    if output == _STDOUT:
        return
    if before and before != (job and _from_here(job)):
        click.echo(f"{output} was the script of {before} before; with -o FILE both are kept", err=True)
    file = shlex.quote(str(output))
    if target == "dstack":
        click.echo(f"run it with: dstack apply -f {file}", err=True)
        return
    click.echo(f"submit it with: sbatch {file}", err=True)
    click.echo(f"or try it on this machine: slurmray rehearse {file}", err=True)


def render_job(
    job: Path | None,
    settings: list[tuple[str, str]],
    trainer: list[str],
    output: Path = DEFAULT_OUTPUT["slurm"],
    target: str = "slurm",
) -> tuple[JobSpec, str]:
    """Return the job spec and its sealed script or task. First three arguments: as in load_spec."""
    from slurmray.loading.load import load_spec
    from slurmray.rendering.output import seal

    if target == "dstack":
        from slurmray.rendering.dstack.task import refusals, render_task

        spec = load_spec(job, settings, trainer, refusals)
        return spec, seal(render_task(spec))
    from slurmray.rendering.script import render_script

    spec = load_spec(job, settings, trainer)
    return spec, seal(render_script(spec, _render_command(job, settings, trainer, output)))


def given(settings: tuple[str, ...], flags: dict[str, str | tuple[str, ...] | None]) -> list[tuple[str, str]]:
    """Return (name, value) pairs for load_spec: --set first, so that the other options override it."""
    pairs = []
    for setting in settings:
        path, equals, value = setting.partition("=")
        if not equals:
            raise UsageError(f"--set {setting}: expected PATH=VALUE, e.g. --set container.shm_size=64g")
        pairs.append((path, value))
    for name, values in flags.items():
        for value in (values,) if isinstance(values, str) else values or ():
            pairs.append((f"--{name.replace('_', '-')}", value))
    return pairs


def _render_command(
    job: Path | None, settings: list[tuple[str, str]], trainer: list[str], output: Path
) -> str:
    """Return the command that renders the same script again, without the values of `env`: the log shows it.

    The trainer's command becomes --set run=..., so that users can append options.
    """
    from slurmray.loading.load import hide_env, is_switch

    argv = ["slurmray", "render"]
    if job is not None:
        argv.append(_from_here(job))
    for name, given_value in settings:
        value = hide_env(name, given_value)
        option = ["--set", f"{name}={value}"]
        if name.startswith("--"):
            option = [name] if is_switch(name) else [name, value]
        argv += option
    if trainer:
        argv += ["--set", f"run={json.dumps(trainer, ensure_ascii=False)}"]
    if output not in (DEFAULT_OUTPUT["slurm"], _STDOUT):
        argv += ["-o", _from_here(output)]
    return shlex.join(argv)


def _job_file_of(script: Path) -> str:
    """Return the job spec's file of a script that slurmray wrote before; "" if it is not known."""
    from slurmray.rendering.script import settings_of_text

    try:
        again = json.loads(settings_of_text(script.read_text(errors="replace")))["render_again"]
        argv = shlex.split(again)
    except (OSError, ValueError, KeyError):
        return ""
    return argv[2] if len(argv) > 2 and argv[:2] == ["slurmray", "render"] and argv[2][0] != "-" else ""


def _from_here(path: Path) -> str:
    """Return a path, relative if it is below the current folder, so that machines render the same script."""
    place, here = Path(os.path.realpath(path.parent), path.name), Path.cwd()
    inside = path.is_absolute() and place.is_relative_to(here)
    return str(place.relative_to(here) if inside else path)


def _remarks(spec: JobSpec, target: str) -> list[str]:
    """Return hints for the user who submits the job."""
    if target == "dstack":
        from slurmray.rendering.dstack.task import remarks

        return remarks(spec)
    from slurmray.loading.remarks import remarks
    from slurmray.presets import advise

    return remarks(spec) + advise(spec).notes


def warn_of_unset(spec: JobSpec, target: str = "slurm") -> None:
    """Warn about variables that the job takes from the submitter and that are not set."""
    what = {"slurm": f"sbatch, or the job ends with {ExitCode.CONFIG}", "dstack": "dstack apply"}[target]
    for name in spec.env_from_submitter:
        is_of_job = target == "slurm" and name.startswith("SLURM_")  # Slurm sets it in the job
        if name not in os.environ and not is_of_job:
            click.echo(f"env.{name} is not set in your environment; export it before {what}", err=True)


def _summary(spec: JobSpec, target: str) -> str:
    nodes = spec.slurm.nodes
    parts = ["1 node" if nodes == 1 else f"{nodes} nodes"]
    parts.append(f"{spec.gpus} GPUs each" if spec.gpus else "no GPUs (request them with --gpus-per-node 8)")
    if spec.trainer_nodes < nodes:
        total = spec.trainer_nodes * spec.ray_gpus
        parts.append(f"{total} GPUs for the trainer, as the head node offers {spec.head_gpus}")
    if not spec.slurm.cpus_per_task:
        default = "Slurm's default, often 1" if target == "slurm" else "2 or more, as the instance has"
        parts.append(f"CPUs: {default} (request more with --cpus-per-task 8)")
    parts.append("the built-in check" if spec.run is None else "your command")
    return ", ".join(parts)
