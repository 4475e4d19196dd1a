"""`slurmray rehearse`: the job's own script on a real Slurm, booted on this one machine."""

from __future__ import annotations

from pathlib import Path

import click

from slurmray.cli.flags import FILE
from slurmray.errors import UsageError


@click.command(options_metavar="[JOB.yaml | SCRIPT.sh] [OPTIONS] [-- COMMAND ...]")
@click.argument("job", required=False, metavar="", type=FILE)
@click.option("--nodes", metavar="N", help="Number of nodes.")
@click.option(
    "--runtime", type=click.Choice(["podman", "docker", "none"]), help="Container runtime of the nodes."
)
@click.option(
    "--set", "settings", multiple=True, metavar="PATH=VALUE", help="Any field of the spec.  [repeatable]"
)
@click.option(
    "--build-image", is_flag=True, help="Build a small image with Ray here, and use it as the job's."
)
@click.option("--suite", metavar="NAME", help="Use Slurm and Podman of a Debian suite, for example trixie.")
@click.option("--keep", is_flag=True, help="Keep the cluster up after the job.")
@click.option("--shell", is_flag=True, help="Enter the login host of the kept cluster, or run COMMAND there.")
@click.option("--down", is_flag=True, help="End the kept cluster.")
@click.pass_obj
def rehearse(
    command: list[str],
    /,
    *,
    job: Path | None,
    nodes: str | None,
    runtime: str | None,
    settings: tuple[str, ...],
    build_image: bool,
    suite: str | None,
    keep: bool,
    shell: bool,
    down: bool,
) -> int:
    """Run a job's script, byte for byte, on a real Slurm with several hosts on this machine; CPU only.

    The cluster has the nodes that the script's #SBATCH lines ask for. The job's log goes to stdout, the exit
    code is the job's. Nothing stays on the machine but images and root filesystems in ~/.cache/slurmray. Root
    is needed for Docker only.

    \b
    Examples:
      slurmray rehearse job.yaml --nodes 2
      slurmray rehearse --nodes 2 --build-image         the built-in check; no registry is needed
      slurmray rehearse generated.sh --suite trixie     what you are about to submit, on another Slurm
      slurmray rehearse job.yaml --keep
      slurmray rehearse --shell -- sinfo                then sbatch, squeue, scancel; --shell alone is a shell
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
    choices = session.Choices(Path.cwd(), build_image, suite, keep)
    return session.rehearse(_script(job, nodes, runtime, settings, command), choices)


def _refuse_more(flag: str, *command: str) -> None:
    """Refuse other arguments: with this flag there is no job."""
    given = click.get_current_context().params.items()
    if command or any(value for name, value in given if name != flag):
        takes = "a command after -- and nothing else" if flag == "shell" else "nothing else"
        raise UsageError(f"slurmray rehearse --{flag}: takes {takes}; leave out the rest")


def _script(
    job: Path | None, nodes: str | None, runtime: str | None, settings: tuple[str, ...], entrypoint: list[str]
) -> str:
    if job and _is_script(job):
        if nodes or runtime or settings or entrypoint:
            raise UsageError(f"{job} is rendered: set nodes, runtime, fields and command in its job spec")
        from slurmray.yaml_source import decode

        try:
            return decode(str(job), job.read_bytes())  # line ends stay: sbatch refuses others than \n
        except OSError as error:
            raise UsageError(f"{job}: {error.strerror}") from error
    from slurmray.cli.render import given, render_job, warn_of_unset

    spec, script = render_job(job, given(settings, {"nodes": nodes, "runtime": runtime}), entrypoint)
    warn_of_unset(spec)
    return script


def _is_script(path: Path) -> bool:
    """Whether the file is a script and not a job spec, whatever its name."""
    try:
        with path.open("rb") as file:
            return file.read(2) == b"#!"
    except OSError:
        return path.suffix == ".sh"
