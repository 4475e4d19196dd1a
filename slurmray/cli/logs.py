"""`slurmray logs`: the log of a job or of one of its nodes."""

from __future__ import annotations

import click

from slurmray.cli.terminal import complete_job, job_argument
from slurmray.errors import UsageError


@click.command()
@click.argument("job", required=False, shell_complete=complete_job)
@click.option("-f", "--follow", "is_followed", is_flag=True, help="Go on until the job ends.")
@click.option("--node", metavar="NODE", help="What setup, runtime, Ray and services printed on this node.")
@click.option("--attempt", type=int, metavar="N", help="With --node: of this attempt.  [default: the last]")
def logs(*, job: str | None, is_followed: bool, node: str | None, attempt: int | None) -> int | None:
    """Print the log of a job, progress and the trainer's output; or that of a node.

    JOB is an id or a name; without it, the newest one. With -f the exit code is the job's, and Ctrl-C asks
    whether to cancel it.

    \b
    Examples:
      slurmray logs -f
      slurmray logs 1234 --node gpu-7
      slurmray logs verl --node gpu-7 --attempt 0
    """
    from slurmray.cli.submit import follow_job

    found, _ = job_argument(job)
    if node is not None:
        if is_followed:
            raise UsageError("-f: follows the log of the job; for that of a node use tail -f")
        click.echo(found.node_log(node, attempt), nl=False)
        return 0
    if attempt is not None:
        raise UsageError("--attempt: the log of the job has all attempts; use it with --node")
    if is_followed:
        return follow_job(found)
    click.echo(found.logs(), nl=False)
    return 0
