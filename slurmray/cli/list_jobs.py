"""`slurmray list`: the jobs that were submitted with slurmray."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import click

from slurmray import history
from slurmray.agent.paths import USAGE
from slurmray.cli.terminal import REFRESH, check_watch, print_json, printable, show
from slurmray.errors import SlurmError
from slurmray.slurm import slurm_commands
from slurmray.slurm.host import Host, get_host
from slurmray.slurm.job_status import current_phase
from slurmray.slurm.run_directories import last_attempts
from slurmray.slurm.states import FINAL, Event, parse_events, recorded_end
from slurmray.slurm.timeline import duration
from slurmray.slurm.usage import Usage, mean_utilization, parse_usage

_States = dict[int, str]


class _Record(NamedTuple):
    """What an attempt has recorded: its events, and what its nodes use."""

    events: Sequence[Event]
    usage: Usage | None


@click.command("list")
@click.option("-a", "--all", "with_ended", is_flag=True, help="With jobs that have ended.")
@click.option("-w", "--watch", is_flag=True, help="Show them until Ctrl-C.")
@click.option("--json", "is_json", is_flag=True, help="Print a JSON list.")
def list_jobs(*, with_ended: bool, watch: bool, is_json: bool) -> None:
    """List your jobs that were submitted with slurmray, the newest first.

    PHASE is the step that a running job is in. slurmray status shows all steps. BUSY is the mean utilization
    of its GPUs, see `watch.interval` in the job spec. STATE is Slurm's. If Slurm has forgotten the job, it
    comes from the run directory, or is UNKNOWN without one.

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
    """A row for each job, the newest first."""
    known = history.runs()
    states = _states({(run.host, run.cluster) for run in known})
    pairs = [(run, states.get((run.host, run.cluster), {}).get(run.id, "")) for run in known]
    pairs = [(run, state) for run, state in pairs if with_ended or state not in ("", *FINAL)]
    return _rows(pairs)


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
    columns = ["id", "name", "state", "phase", "nodes", "gpus"]
    columns += ["busy"] if any(row["busy"] is not None for row in rows) else []
    columns += ["host"] if any(row["host"] for row in rows) else []
    table = [["JOB", *(column.upper() for column in columns[1:]), "SUBMITTED"]]
    for row in rows:
        ago = f"{duration(max(0, now - row['submitted']))} ago"
        shown = {**row, "busy": None if row["busy"] is None else f"{row['busy']:.0f} %"}
        cells = ["" if shown[column] is None else printable(str(shown[column])) for column in columns]
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
    records: dict[history.Run, _Record] = {}
    started = [run for run, state in pairs if state != "PENDING"]
    for name in dict.fromkeys(run.host for run in started):
        records |= _records(get_host(name), [run for run in started if run.host == name])
    return [_row(run, state, records.get(run, _Record([], None))) for run, state in pairs]


def _records(host: Host, runs: Sequence[history.Run]) -> dict[history.Run, _Record]:
    """What the last attempt of each job has recorded, as far as it can be read."""
    places = {run: Path(run.folder, host.expand(run.run_dir)) for run in runs}
    attempts = {place: last_attempts(place, host) for place in set(places.values())}
    folders = {
        run: place / f"{run.id}-{attempts[place].get(str(run.id), 0)}" for run, place in places.items()
    }
    names = ("events.jsonl", USAGE)
    texts = host.read_all([folder / name for folder in folders.values() for name in names])
    records = {}
    for run, folder in folders.items():
        events, usage = (texts.get(folder / name, b"") for name in names)
        records[run] = _Record(parse_events(events.decode(errors="replace")), parse_usage(usage))
    return records


def _row(run: history.Run, state: str, record: _Record) -> dict[str, Any]:
    end = recorded_end(record.events)
    state = state or (end.state if end else "UNKNOWN")
    phase = "" if state in (*FINAL, "UNKNOWN") else current_phase(record.events)
    busy = mean_utilization(record.usage) if record.usage and state == "RUNNING" else None
    return {**run._asdict(), "state": state, "phase": phase, "busy": busy}
