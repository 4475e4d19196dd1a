"""`slurmray rehearse`: runs the job's script on a real Slurm that is started on this machine."""

from __future__ import annotations

import os
from pathlib import Path

import click

from slurmray import files
from slurmray.agent.script_parts import read_settings
from slurmray.cli.flags import FILE, flag, job_options
from slurmray.errors import UsageError
from slurmray.rehearsal import session


@click.command(options_metavar="[JOB.yaml | SCRIPT.sh] [OPTIONS] [-- COMMAND ...]")
@click.argument("job", required=False, metavar="", type=FILE)
@job_options
@flag("--build-image", help="Build a small image with Ray on this machine, and use it for the job.")
@click.option("--suite", metavar="NAME", help="Use Slurm and Podman of a Debian suite, e.g. trixie.")
@flag("--keep", help="Keep the cluster running after the job.")
@flag("--shell", help="Open a shell on the login host of the kept cluster, or run COMMAND there.")
@flag("--down", help="Stop the kept cluster.")
@click.pass_obj
def rehearse(
    command: list[str],
    /,
    *,
    job: Path | None,
    build_image: bool,
    suite: str | None,
    keep: bool,
    shell: bool,
    down: bool,
    **flags: str | tuple[str, ...] | None,
) -> int:
    """Run a job's unchanged script on a real Slurm with several hosts, all on this machine; CPU only.

    JOB.yaml, options and COMMAND are those of slurmray render; the runtime is podman, docker or none. The
    cluster has the nodes that the script's #SBATCH lines ask for, and the number of GPUs, but no GPUs. The
    job's log goes to stdout; the exit code is the job's. What the job writes to the current folder stays, as
    do images and root filesystems in ~/.cache/slurmray; everything else is removed. Only Docker needs root.

    \b
    Examples:
      slurmray rehearse job.yaml --nodes 2
      slurmray rehearse --nodes 2 --build-image         the built-in check; no registry is needed
      slurmray rehearse generated.sh --suite trixie     a rendered script, on another version of Slurm
      slurmray rehearse job.yaml --keep
      slurmray rehearse --shell -- sinfo                also sbatch, squeue ...; without COMMAND, a shell
      slurmray rehearse --down
    """
    if shell:
        _refuse_more("shell")
        return session.enter(command)
    if down:
        _refuse_more("down", *command)
        session.down()
        return 0
    script = _script(job, flags, command)
    return session.rehearse(script, build_image=build_image, suite=suite, keep=keep)


def _refuse_more(flag: str, *command: str) -> None:
    """Refuse other arguments: --shell and --down run no job."""
    parameters = click.get_current_context().params.items()
    if command or any(value for name, value in parameters if name != flag):
        takes = "only a command after --" if flag == "shell" else "no other arguments"
        raise UsageError(f"slurmray rehearse --{flag}: takes {takes}")


def _script(
    job: Path | None,
    flags: dict[str, str | tuple[str, ...] | None],
    trainer: list[str],
) -> str:
    if job and _is_script(job):
        if any(flags.values()) or trainer:
            raise UsageError(f"{job}: is a rendered script; change the job spec instead and render it again")
        from slurmray.yaml_source import decode

        try:
            script = decode(str(job), files.read_given(job))  # keeps \r\n, which sbatch refuses
        except OSError as error:
            raise UsageError(f"{job}: {error.strerror}") from error
        _require_variables(script)
        return script
    from slurmray.cli.rendered import given, render_job

    rendered = render_job(job, given(flags), trainer)
    rendered.require_variables()
    return rendered.text


def _require_variables(script: str) -> None:
    """UsageError if a script takes variables from here that are not set, and so would end at once."""
    from slurmray.cli.rendered import require_set

    try:
        names = [str(name) for name in read_settings(script)["env_from_submitter"]]
    except (ValueError, KeyError, TypeError):  # it is not slurmray's, which the rehearsal refuses
        return
    unset = (name for name in names if name not in os.environ and not name.startswith("SLURM_"))
    require_set([f"env.{name}" for name in unset])


def _is_script(path: Path) -> bool:
    """Whether the file is a script, by its first two bytes; a missing file, by its name."""
    try:
        with path.open("rb") as file:
            return file.read(2) == b"#!"
    except OSError:
        return path.suffix == ".sh"
