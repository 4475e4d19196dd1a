"""`slurmray render`: from a job spec, flags, or both, to one sbatch script."""

from __future__ import annotations

import json
import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import click

from slurmray.errors import ExitCode, UsageError

if TYPE_CHECKING:
    from slurmray.spec import JobSpec

DEFAULT_OUTPUT = Path("generated.sh")
_STDOUT = Path("-")


@click.command(options_metavar="[JOB.yaml] [OPTIONS] [-- COMMAND ...]")
@click.argument("job", required=False, metavar="", type=click.Path(path_type=Path))
@click.option("--nodes", metavar="N", help="Number of nodes.")
@click.option("--gpus-per-node", metavar="G", help="GPUs on each node, as 8 or h100:8.")
@click.option("--cpus-per-task", metavar="C", help="CPUs on each node.")
@click.option("--mem", metavar="M", help="Memory on each node, as 200G.")
@click.option("--time", metavar="T", help="Time limit, as 12:00:00 or 1-00:00:00.")
@click.option("--partition", metavar="P", help="Partition (queue).")
@click.option("--account", metavar="A", help="Account to charge.")
@click.option("--image", metavar="I", help="Container image with Python and Ray.")
@click.option("--runtime", metavar="R", help="docker, podman or auto.")
@click.option("--mount", multiple=True, metavar="SRC[:DEST[:OPTS]]", help="One more mount.  [repeatable]")
@click.option(
    "--env",
    multiple=True,
    metavar="NAME[=VALUE]",
    help="A variable for Ray and the trainer. Without =VALUE the job takes your own value when you submit "
    "it, and the script does not contain it.  [repeatable]",
)
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="PATH=VALUE",
    help="Any field of the job spec, as container.shm_size=64g.  [repeatable]",
)
@click.option(
    "-o",
    "--output",
    default=DEFAULT_OUTPUT,
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="The script to write; - is standard output.  [default: generated.sh]",
)
@click.option("--force", is_flag=True, help="Overwrite FILE even if it was edited, or is not slurmray's.")
@click.pass_obj
def render(
    entrypoint: list[str],
    /,
    job: Path | None,
    settings: tuple[str, ...],
    output: Path,
    force: bool,
    **flags: str | tuple[str, ...] | None,
) -> None:
    """Write the sbatch script of a job.

    JOB.yaml is a job spec (- reads it from standard input); without one, flags and defaults make the job.
    Flags win over the file. COMMAND, all that follows the first --, is the trainer; without any, the job runs
    a built-in check of every node and GPU.

    \b
    Examples:
      slurmray render --nodes 2 --gpus-per-node 8
          check two nodes with 8 GPUs each; then: sbatch generated.sh
      slurmray render job.yaml --nodes 4 -o four.sh
          the job of job.yaml, on four nodes
      slurmray render --nodes 2 --image my/image:1 --env WANDB_API_KEY \\
          --mount ~/data:/data:ro -- python train.py --lr 1e-6
          no file at all
      slurmray render job.yaml --set container.shm_size=64g -o - | less
          look at the script
    """
    from slurmray.output import write_script

    spec, text = render_job(job, given(settings, flags), entrypoint, output)
    if output == _STDOUT:
        click.echo(text.encode(), nl=False)
    else:
        write_script(output, text, force)
        click.echo(f"wrote {output}: {_summary(spec)}", err=True)
    for name in _not_exported(spec):
        click.echo(
            f"env.{name} is not set here: export it before sbatch, or the job ends with {ExitCode.CONFIG}",
            err=True,
        )
    if output == _STDOUT:
        return
    click.echo(f"submit it with: sbatch {shlex.quote(str(output))}", err=True)
    click.echo(f"or try it on this machine: slurmray rehearse {shlex.quote(str(output))}", err=True)


def render_job(
    job: Path | None, settings: list[tuple[str, str]], entrypoint: list[str], output: Path = DEFAULT_OUTPUT
) -> tuple[JobSpec, str]:
    """Return the job spec and its sealed script; the arguments are those of load_spec."""
    from slurmray.load import load_spec
    from slurmray.output import seal
    from slurmray.render import render as render_script

    spec = load_spec(job, settings, entrypoint)
    return spec, seal(render_script(spec, _render_command(job, settings, entrypoint, output)))


def given(settings: tuple[str, ...], flags: dict[str, str | tuple[str, ...] | None]) -> list[tuple[str, str]]:
    """Return (name, value) as load_spec takes them, --set first, so that the other flags win."""
    pairs = []
    for setting in settings:
        path, equals, value = setting.partition("=")
        if not equals:
            raise UsageError(f"--set {setting}: expected PATH=VALUE, as --set container.shm_size=64g")
        pairs.append((path, value))
    for name, values in flags.items():
        for value in (values,) if isinstance(values, str) else values or ():
            pairs.append((f"--{name.replace('_', '-')}", value))
    return pairs


def _render_command(
    job: Path | None, settings: list[tuple[str, str]], entrypoint: list[str], output: Path
) -> str:
    """Return the command that renders the same script anew; more options can be added to its end.

    So the entrypoint is in it as a setting. No absolute path, which would differ from machine to machine.
    """
    words = ["slurmray", "render"]
    if job is not None:
        words.append(_relative(job))
    for name, value in settings:
        words += [name, value] if name.startswith("--") else ["--set", f"{name}={value}"]
    if entrypoint:
        words += ["--set", f"run={json.dumps(entrypoint, ensure_ascii=False)}"]
    if output not in (DEFAULT_OUTPUT, _STDOUT):
        words += ["-o", _relative(output)]
    return shlex.join(words)


def _relative(path: Path) -> str:
    return path.name if path.is_absolute() else str(path)


def _not_exported(spec: JobSpec) -> list[str]:
    """Return the variables that the job is to take from the submitter, and that are not there to be taken."""
    return [name for name, value in spec.env.items() if value is None and name not in os.environ]


def _summary(spec: JobSpec) -> str:
    nodes = spec.slurm.nodes
    parts = ["1 node" if nodes == 1 else f"{nodes} nodes"]
    parts.append(f"{spec.gpus} GPUs each" if spec.gpus else "no GPUs (ask for them with --gpus-per-node 8)")
    if not spec.slurm.cpus_per_task:
        parts.append("as many CPUs as Slurm gives, often 1 (ask for more with --cpus-per-task 8)")
    parts.append("the built-in check" if spec.run is None else "your command")
    return ", ".join(parts)
