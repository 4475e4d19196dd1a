"""`slurmray list`: the jobs that were submitted with slurmray."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import click

from slurmray import history
from slurmray.cli.terminal import print_json, printable, show
from slurmray.errors import SlurmError
from slurmray.slurm import slurm_commands
from slurmray.slurm.host import Host, get_host
from slurmray.slurm.job_status import current_phase
from slurmray.slurm.run_directories import last_attempts
from slurmray.slurm.states import FINAL, Event, parse_events, recorded_end
from slurmray.slurm.timeline import duration

_States = dict[int, str]


@click.command("list")
@click.option("-a", "--all", "with_ended", is_flag=True, help="With jobs that have ended.")
@click.option("--json", "is_json", is_flag=True, help="Print a JSON list.")
def list_jobs(*, with_ended: bool, is_json: bool) -> None:
    """List your jobs that were submitted with slurmray, the newest first.

    PHASE is the step that a running job is in. slurmray status shows all steps. STATE is Slurm's. If Slurm
    has forgotten the job, it comes from the run directory, or is UNKNOWN without one.

    \b
    Examples:
      slurmray list
      slurmray list --all --json | jq '.[] | select(.state == "FAILED") | .id'
    """
    known = history.runs()
    states = _states({(run.host, run.cluster) for run in known})
    pairs = [(run, states.get((run.host, run.cluster), {}).get(run.id, "")) for run in known]
    pairs = [(run, state) for run, state in pairs if with_ended or state not in ("", *FINAL)]
    rows = _rows(pairs)
    if is_json:
        print_json(rows)
        return
    if not rows:
        click.echo(
            "no jobs" if with_ended else "no jobs in Slurm; slurmray list --all shows ended ones", err=True
        )
        return
    now = time.time()
    columns = ["id", "name", "state", "phase", "nodes", "gpus"]
    columns += ["host"] if any(row["host"] for row in rows) else []
    table = [["JOB", *(column.upper() for column in columns[1:]), "SUBMITTED"]]
    for row in rows:
        ago = f"{duration(max(0, now - row['submitted']))} ago"
        cells = ["" if row[column] is None else printable(str(row[column])) for column in columns]
        table.append([*cells, ago])
    widths = [max(len(cells[column]) for cells in table) for column in range(len(table[0]))]
    for cells in table:
        click.echo("  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip())


def _states(places: Iterable[tuple[str | None, str | None]]) -> dict[tuple[str | None, str | None], _States]:
    """Return the states of jobs on each host and cluster. SlurmError if none answers."""
    states = {}
    errors = []
    for host, cluster in places:
        try:
            states[host, cluster] = slurm_commands.squeue(get_host(host), cluster)
        except SlurmError as error:
            errors.append(error)
    if errors and not states:
        raise errors[0]
    for failure in errors:
        show(str(failure), err=True)
    return states


def _rows(pairs: Sequence[tuple[history.Run, str]]) -> list[dict[str, Any]]:
    """One row for each job and its state: Slurm's; "" if it has forgotten the job."""
    events: dict[history.Run, list[Event]] = {}
    started = [run for run, state in pairs if state != "PENDING"]
    for name in dict.fromkeys(run.host for run in started):
        events |= _events(get_host(name), [run for run in started if run.host == name])
    return [_row(run, state, events.get(run, [])) for run, state in pairs]


def _events(host: Host, runs: Sequence[history.Run]) -> dict[history.Run, list[Event]]:
    """Return the events of the last attempt of each job, of those that can be read."""
    places = {run: Path(run.folder, host.expand(run.run_dir)) for run in runs}
    attempts = {place: last_attempts(place, host) for place in set(places.values())}
    paths = {
        run: place / f"{run.id}-{attempts[place].get(str(run.id), 0)}/events.jsonl"
        for run, place in places.items()
    }
    texts = host.read_all(list(paths.values()))
    return {run: parse_events(texts.get(path, b"").decode(errors="replace")) for run, path in paths.items()}


def _row(run: history.Run, state: str, events: Sequence[Event]) -> dict[str, Any]:
    end = recorded_end(events)
    state = state or (end.state if end else "UNKNOWN")
    phase = "" if state in (*FINAL, "UNKNOWN") else current_phase(events)
    return {**run._asdict(), "state": state, "phase": phase}
