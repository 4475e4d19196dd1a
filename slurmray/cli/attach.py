"""`slurmray attach`: a shell or a command in a container of a running job."""

from __future__ import annotations

import sys

import click

from slurmray.cli.terminal import complete_job, complete_node, job_argument


@click.command()
@click.argument("job", required=False, shell_complete=complete_job)
@click.option(
    "--node",
    metavar="NODE",
    help="In the container of this node.  [default: the head node]",
    shell_complete=complete_node,
)
@click.pass_obj
def attach(command: list[str], /, *, job: str | None, node: str | None) -> None:
    """Open a shell in a container of a running job, or run a command there: slurmray attach JOB -- COMMAND.

    It has address and token of the job's Ray cluster, and `env` of the job spec. JOB is an id or a name;
    without it, the newest one. The exit code is the command's.

    \b
    Examples:
      slurmray attach
      slurmray attach 1234 -- ray status
      slurmray attach verl --node gpu-7 -- nvidia-smi
    """
    from slurmray.slurm import commands

    found, _ = job_argument(job)
    is_terminal = sys.stdin.isatty() and sys.stdout.isatty()
    argv = found.attach_argv(command, node=node, is_terminal=is_terminal)
    sys.stdout.flush()
    commands.replace_process(argv, found.host, is_terminal=is_terminal)
