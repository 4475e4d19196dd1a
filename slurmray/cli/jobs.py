"""Jobs that arguments name: how they are found and completed, and the tasks of an array."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TypeVar

import click

from slurmray import history
from slurmray.agent.combinations import describe
from slurmray.agent.job_log import counted
from slurmray.api import job_of
from slurmray.cli.flags import completion
from slurmray.cli.terminal import print_json, show
from slurmray.errors import UsageError
from slurmray.slurm.states import FINAL
from slurmray.slurm.submitted_job import Job, Task

_F = TypeVar("_F", bound=Callable[..., object])


def show_tasks(
    job: Job, name: str, tasks: Sequence[Task], *, is_json: bool, only_failed: bool = False
) -> None:
    """Print the tasks of an array: how many are in each state, and all of them, or those that failed."""
    failed = {*FINAL} - {"COMPLETED"}
    shown = [task for task in tasks if not only_failed or task.state in failed]
    if is_json:
        print_json({"id": job.id, "name": name, "tasks": [task.as_dict() for task in shown]})
        return
    states = Counter(task.state for task in tasks)
    counts = ", ".join(f"{count} {state}" for state, count in states.items()) or "Slurm has forgotten it"
    show(f"job {job.id}{name and ' '}{name}: {counted(len(tasks), 'task')}: {counts}")
    rows = [[task.job.name, task.state, describe(task.parameters)] for task in shown]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for task, row in zip(shown, rows, strict=True):
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
        show(f"  {'  '.join([*cells, task.reason or task.text])}".rstrip())
    if shown:
        click.echo(
            f"one of them: slurmray {'why' if only_failed else 'status'} {shown[0].job.name}", err=True
        )


def job_argument(name: str | None) -> tuple[Job, history.Run]:
    """Return the job that an argument names: an id, a name, ARRAY_TASK, or None for the newest one."""
    of_task = re.fullmatch("([0-9]{1,10})_([0-9]{1,7})", name or "")
    job, task = (of_task[1], int(of_task[2])) if of_task else (name, None)
    run = history.find(job) or _unremembered_run(int(job or 0))
    return job_of(run, task), run


def _unremembered_run(number: int) -> history.Run:
    """A job, where jobs would be submitted from here."""
    from slurmray.loading import profile

    chosen = profile.choose(None)
    try:
        folder = profile.choose_folder(chosen)
    except OSError as error:
        raise UsageError(f"current folder: {error.strerror}; cd to a folder that exists") from None
    host = chosen.host if chosen else None
    return history.Run(number, "", None, str(folder), "", time.time(), 0, 0, host)


def _jobs(ctx: click.Context) -> dict[str, str]:
    """Ids and names of remembered jobs."""
    del ctx
    pairs = [
        pair for run in history.runs()[:200] for pair in ((str(run.id), run.name), (run.name, str(run.id)))
    ]
    return dict(reversed(pairs))


def _job_on_command_line(ctx: click.Context) -> Job:
    # While an option has no value yet, click leaves arguments before it unparsed.
    names = [*ctx.args, ctx.params.get("job")]
    return job_argument(names[0])[0]


def _nodes(ctx: click.Context) -> dict[str, str]:
    """Nodes in the run directory of the job on the command line."""
    starts = [event for event in _job_on_command_line(ctx).events() if event["event"] == "start"]
    return {node: "" for start in starts for node in [*start["nodes"], *start.get("spares", [])]}


complete_job = completion(_jobs)
complete_service = completion(lambda ctx: dict.fromkeys(_job_on_command_line(ctx).services(), ""))


def node_option(help_text: str) -> Callable[[_F], _F]:
    """Return the option for a node of the job."""
    return click.option("--node", metavar="NODE", help=help_text, shell_complete=completion(_nodes))
