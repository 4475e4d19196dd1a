"""`slurmray list`: the jobs that were submitted with slurmray."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import click

from slurmray import history
from slurmray.agent.combinations import combination, count, describe
from slurmray.agent.paths import USAGE
from slurmray.cli.flags import flag
from slurmray.cli.terminal import REFRESH, check_watch, print_json, printable, show
from slurmray.diagnosis import pending
from slurmray.errors import SlurmError
from slurmray.slurm import slurm_commands
from slurmray.slurm.host import Host, get_host
from slurmray.slurm.job_status import current_phase
from slurmray.slurm.run_directories import last_attempts
from slurmray.slurm.slurm_commands import Queued
from slurmray.slurm.states import FINAL, Event, parse_events, recorded_end
from slurmray.slurm.tasks import expand_tasks
from slurmray.slurm.timeline import duration
from slurmray.slurm.usage import Usage, mean_utilization, parse_usage

_Queue = dict[str, Queued]
_Record = tuple[list[Event], Usage | None]  # of an attempt: its events, and what its nodes use


class _Listed(NamedTuple):
    """A job, or a task of one, and its name. queued: as Slurm knows it; None if it has forgotten it."""

    name: str
    run: history.Run
    queued: Queued | None


@click.command("list")
@flag("-a", "--all", "with_ended", help="With jobs that have ended.")
@flag("-w", "--watch", help="Show them until Ctrl-C.")
@flag("--json", "is_json", help="Print a JSON list.")
def list_jobs(*, with_ended: bool, watch: bool, is_json: bool) -> None:
    """List your jobs that were submitted with slurmray, the newest first.

    PHASE is the step that a running job is in. slurmray status shows all steps. BUSY is the mean utilization
    of its GPUs, see `watch.interval` in the job spec. STATE is Slurm's. If Slurm has forgotten the job, it
    comes from the run directory, or is UNKNOWN without one. A sweep has a line for each task, and one for all
    that wait.

    \b
    Examples:
      slurmray list
      slurmray list --watch
      slurmray list --all --json | jq '.[] | select(.state == "FAILED") | .id'
    """
    check_watch("list", watch=watch, is_json=is_json)
    while True:
        rows = _list(with_ended=with_ended)
        if watch:
            click.clear()
        _show(rows, is_json=is_json)
        if not watch:
            return
        time.sleep(REFRESH)


def _list(*, with_ended: bool) -> list[dict[str, Any]]:
    """A row for each job or task, the newest first."""
    known = history.runs()
    queues = _queues({(run.host, run.cluster) for run in known})
    listed = []
    for run in known:
        queue = queues.get((run.host, run.cluster), {})
        listed += [_Listed(name, run, queue.get(name)) for name in _names(run, queue)]
    if not with_ended:
        listed = [row for row in listed if row.queued and row.queued.state not in FINAL]
    records: dict[int, _Record] = {}
    started = [n for n, row in enumerate(listed) if not row.queued or row.queued.state != "PENDING"]
    for name in dict.fromkeys(listed[n].run.host for n in started):
        of_host = [n for n in started if listed[n].run.host == name]
        records |= zip(of_host, _records(get_host(name), [listed[n] for n in of_host]), strict=True)
    return [_row(row, *records.get(n, ([], None))) for n, row in enumerate(listed)]


def _names(run: history.Run, queue: _Queue) -> list[str]:
    """The job, or the tasks of its sweep: those that wait may have one name, see slurm_commands.squeue."""
    if not run.sweep:
        return [str(run.id)]
    of_several = [name for name in queue if name.startswith(f"{run.id}_[")]
    try:
        waiting = {task for names in of_several for task in expand_tasks(run.id, names)}
    except ValueError:  # which ones wait is not known
        return [name for name in queue if name.startswith(f"{run.id}_")]
    tasks = [f"{run.id}_{number}" for number in range(count(run.sweep))]
    return [task for task in tasks if task not in waiting] + of_several


def _show(rows: list[dict[str, Any]], *, is_json: bool) -> None:
    if is_json:
        print_json(rows)
        return
    if not rows:
        none = "no job was submitted with slurmray submit yet"
        ended = "none of your jobs is in Slurm; slurmray list --all shows ended ones"
        click.echo(ended if history.runs() else none, err=True)
        return
    now = time.time()
    columns = ["job", "name", "state", "phase", "nodes", "gpus"]
    columns += ["sweep"] if any(row["sweep"] for row in rows) else []
    columns += ["busy"] if any(row["busy"] is not None for row in rows) else []
    columns += ["host"] if any(row["host"] for row in rows) else []
    table = [[*(column.upper() for column in columns), "SUBMITTED"]]
    for row in rows:
        ago = f"{duration(max(0, now - row['submitted']))} ago"
        shown = {
            **row,
            "sweep": describe(row["sweep"]),
            "busy": None if row["busy"] is None else f"{row['busy']:.0f} %",
        }
        cells = ["" if shown[column] is None else printable(str(shown[column])) for column in columns]
        table.append([*cells, ago])
    widths = [max(len(cells[column]) for cells in table) for column in range(len(table[0]))]
    for cells in table:
        click.echo("  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip())


def _queues(places: Iterable[tuple[str | None, str | None]]) -> dict[tuple[str | None, str | None], _Queue]:
    """Return the jobs on each host and cluster. SlurmError if none answers."""
    queues = {}
    errors = []
    for host, cluster in places:
        try:
            queues[host, cluster] = slurm_commands.squeue(get_host(host), cluster)
        except SlurmError as error:
            errors.append(error)
    if errors and not queues:
        raise errors[0]
    for failure in errors:
        show(str(failure), err=True)
    return queues


def _records(host: Host, listed: Sequence[_Listed]) -> list[_Record]:
    """What the last attempt of each job has recorded, as far as it can be read."""
    places = [Path(row.run.folder, host.expand(row.run.run_dir)) for row in listed]
    attempts = {place: last_attempts(place, host) for place in set(places)}
    folders = [
        place / f"{row.name}-{attempts[place].get(row.name, 0)}"
        for row, place in zip(listed, places, strict=True)
    ]
    names = ("events.jsonl", USAGE)
    texts = host.read_all([folder / name for folder in folders for name in names])
    records = []
    for folder in folders:
        events, usage = (texts.get(folder / name, b"") for name in names)
        records.append((parse_events(events.decode(errors="replace")), parse_usage(usage)))
    return records


def _row(listed: _Listed, events: Sequence[Event], usage: Usage | None) -> dict[str, Any]:
    run, queued, end = listed.run, listed.queued, recorded_end(events)
    state = queued.state if queued else end.state if end else "UNKNOWN"
    phase = "" if state in (*FINAL, "UNKNOWN") else current_phase(events)
    if queued and queued.reason == pending.NEVER:
        phase = pending.explain(*queued)
    busy = mean_utilization(usage) if usage and state == "RUNNING" else None
    task = listed.name.partition("_")[2]
    sweep = combination(run.sweep or {}, int(task)) if task.isdecimal() else {}
    return {**run._asdict(), "job": listed.name, "sweep": sweep, "state": state, "phase": phase, "busy": busy}
