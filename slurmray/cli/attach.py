"""`slurmray attach`: a shell or a command in a container of a running job."""

from __future__ import annotations

import sys

import click

from slurmray.cli.jobs import complete_job, job_argument, node_option
from slurmray.cli.terminal import can_ask
from slurmray.errors import SlurmError
from slurmray.slurm import slurm_commands
from slurmray.slurm.submitted_job import Job

# Exit codes of a command whose container has ended: of Podman 4.3 137, 5.4 255, before the command starts
# 125; of a step that Slurm ends 137 or 143. A command may have them, too.
_CODES_WITHOUT_CONTAINER = (125, 137, 143, 255)


@click.command()
@click.argument("job", required=False, shell_complete=complete_job)
@node_option("In the container of this node.  [default: the head node]")
@click.pass_obj
def attach(command: list[str], /, *, job: str | None, node: str | None) -> int:
    """Open a shell in a container of a running job, or run a command there: slurmray attach JOB -- COMMAND.

    The command has address and token of the job's Ray cluster, and `env` of the job spec. JOB is an id or a
    name. Without JOB it is the newest one. The exit code is the command's.

    \b
    Examples:
      slurmray attach
      slurmray attach 1234 -- ray status
      slurmray attach verl --node gpu-7 -- nvidia-smi
    """
    chosen_job, _ = job_argument(job)
    is_terminal = can_ask() and sys.stdout.isatty()
    argv = chosen_job.attach_argv(command, node=node, is_terminal=is_terminal)
    sys.stdout.flush()
    code = slurm_commands.run_in_foreground(argv, chosen_job.host, is_terminal=is_terminal)
    if code in _CODES_WITHOUT_CONTAINER and not _stays(chosen_job, node):
        cause = (
            f"its container has ended or cannot be reached; slurmray status {chosen_job.name} shows the job"
        )
        click.echo(f"job {chosen_job.name}: {cause}", err=True)
    return code


def _stays(job: Job, node: str | None) -> bool:
    """Whether a container of a job can be attached to, and runs on."""
    # At the end of a job other processes in the container are killed a moment before it ends. What is printed
    # counts, not the exit code: a step that Slurm ends with its job may have 0.
    command = ["sh", "-c", "sleep 3; echo runs"]
    try:
        argv = job.attach_argv(command, node=node)
        return slurm_commands.call(argv, host=job.host).stdout == "runs\n"
    except SlurmError:
        return False
