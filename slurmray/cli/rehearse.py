"""`slurmray rehearse`: runs the job's script on a real Slurm that is started on this machine."""

from __future__ import annotations

from pathlib import Path

import click

from slurmray import files
from slurmray.cli.flags import FILE
from slurmray.errors import UsageError


@click.command(options_metavar="[JOB.yaml | SCRIPT.sh] [OPTIONS] [-- COMMAND ...]")
@click.argument("job", required=False, metavar="", type=FILE)
@click.option("--nodes", metavar="N", help="Number of nodes.")
@click.option(
    "--gpus-per-node", metavar="G", help="GPUs on each node; Slurm and Ray count them, there are none."
)
@click.option(
    "--runtime", type=click.Choice(["podman", "docker", "none"]), help="Container runtime of the nodes."
)
@click.option(
    "--set", "settings", multiple=True, metavar="PATH=VALUE", help="Any field of the job spec.  [repeatable]"
)
@click.option(
    "--build-image",
    is_flag=True,
    help="Build a small image with Ray on this machine, and use it for the job.",
)
@click.option("--suite", metavar="NAME", help="Use Slurm and Podman of a Debian suite, e.g. trixie.")
@click.option("--keep", is_flag=True, help="Keep the cluster running after the job.")
@click.option(
    "--shell", is_flag=True, help="Open a shell on the login host of the kept cluster, or run COMMAND there."
)
@click.option("--down", is_flag=True, help="Stop the kept cluster.")
@click.pass_obj
def rehearse(
    command: list[str],
    /,
    *,
    job: Path | None,
    nodes: str | None,
    gpus_per_node: str | None,
    runtime: str | None,
    settings: tuple[str, ...],
    build_image: bool,
    suite: str | None,
    keep: bool,
    shell: bool,
    down: bool,
) -> int:
    """Run a job's unchanged script on a real Slurm with several hosts, all on this machine; CPU only.

    The cluster has the nodes that the script's #SBATCH lines ask for. The job's log goes to stdout; the exit
    code is the job's. What the job writes to the current folder stays, as do images and root filesystems in
    ~/.cache/slurmray; everything else is removed. Only Docker needs root.

    \b
    Examples:
      slurmray rehearse job.yaml --nodes 2
      slurmray rehearse --nodes 2 --build-image         the built-in check; no registry is needed
      slurmray rehearse generated.sh --suite trixie     a rendered script, on another version of Slurm
      slurmray rehearse job.yaml --keep
      slurmray rehearse --shell -- sinfo                also sbatch, squeue ...; without COMMAND, a shell
      slurmray rehearse --down
    """
    from slurmray.rehearsal import session

    if shell:
        _refuse_more("shell")
        return session.enter(command)
    if down:
        _refuse_more("down", *command)
        session.down()
        return 0
    options = session.Options(Path.cwd(), build_image, suite, keep)
    flags: dict[str, str | tuple[str, ...] | None] = {
        "nodes": nodes,
        "gpus_per_node": gpus_per_node,
        "runtime": runtime,
    }
    return session.rehearse(_script(job, flags, settings, command), options)


def _refuse_more(flag: str, *command: str) -> None:
    """Refuse other arguments: --shell and --down run no job."""
    parameters = click.get_current_context().params.items()
    if command or any(value for name, value in parameters if name != flag):
        takes = "only a command after --" if flag == "shell" else "no other arguments"
        raise UsageError(f"slurmray rehearse --{flag}: takes {takes}")


def _script(
    job: Path | None,
    flags: dict[str, str | tuple[str, ...] | None],
    settings: tuple[str, ...],
    trainer: list[str],
) -> str:
    if job and _is_script(job):
        if any(flags.values()) or settings or trainer:
            raise UsageError(f"{job}: is a rendered script; change the job spec instead and render it again")
        from slurmray.yaml_source import decode

        try:
            return decode(str(job), files.read_given(job))  # keeps \r\n, which sbatch refuses
        except OSError as error:
            raise UsageError(f"{job}: {error.strerror}") from error
    from slurmray.cli.rendered import given, render_job

    rendered = render_job(job, given(settings, flags), trainer)
    rendered.require_variables()
    return rendered.text


def _is_script(path: Path) -> bool:
    """Whether the file is a script, by its first two bytes; a missing file, by its name."""
    try:
        with path.open("rb") as file:
            return file.read(2) == b"#!"
    except OSError:
        return path.suffix == ".sh"
