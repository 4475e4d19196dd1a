"""`slurmray cancel`: cancels a job."""

from __future__ import annotations

import contextlib
import time

import click

from slurmray import history
from slurmray.cli.flags import flag
from slurmray.cli.jobs import complete_job, job_argument
from slurmray.cli.terminal import print_json, show
from slurmray.slurm.states import FINAL
from slurmray.slurm.submitted_job import Job


@click.command()
@click.argument("jobs", nargs=-1, required=True, metavar="JOB ...", shell_complete=complete_job)
@flag("--now", "is_now", help="Without grace period; also for jobs cancelled before.")
@flag("--json", "is_json", help="Print a JSON object for each job.")
def cancel(*, jobs: tuple[str, ...], is_now: bool, is_json: bool) -> None:
    """Cancel jobs, by id or name. The trainer of each gets its grace period (stop.grace).

    The id of a sweep, or another array, means all its tasks; 1234_0 is one of them.

    With --now, it gets SIGKILL at once. Either way the job removes its containers and files from the nodes.

    With --json it prints id, task, is_cancelled (not if the job had ended already) and states: Slurm's,
    before that; of an array those of its tasks.

    \b
    Examples:
      slurmray cancel 1234
      slurmray cancel verl evaluate
      slurmray cancel verl --now
    """
    for name in jobs:
        job, run = job_argument(name)
        label = f"job {job.name}" + (f", {run.name}" if run.name else "")
        states = sorted({task.state for task in job.tasks()} or {job.state()})
        is_over = {*states} <= {*FINAL}
        has_ended_grace_period = is_over or cancel_job(job, is_now=is_now)
        if is_json:
            print_json({"id": job.id, "task": job.task, "is_cancelled": not is_over, "states": states})
        elif is_over:
            show(f"{label}: has ended already, {', '.join(states)}", err=True)
        else:
            show(f"cancelled {label}", err=True)
        if is_now and not has_ended_grace_period:
            reason = "an older slurmray rendered the job, or its run directory cannot be written here"
            show(f"{label}: its trainer has its grace period: {reason}", err=True)


def cancel_job(job: Job, *, is_now: bool = False) -> bool:
    """Cancel a job as Job.cancel does, and remember that for `slurmray why`."""
    has_ended_grace_period = job.cancel(now=is_now)
    with contextlib.suppress(OSError):  # a full disk must not look like a refusal
        history.remember_cancel(job.id, job.task, job.cluster, job.host.name, time.time())
    return has_ended_grace_period
