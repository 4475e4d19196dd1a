"""`slurmray list`: the jobs that were submitted with slurmray."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import click

from slurmray import history
from slurmray.cli.terminal import print_json
from slurmray.errors import UsageError
from slurmray.slurm import commands
from slurmray.slurm.job import events_in, last_attempts
from slurmray.slurm.states import FINAL, end_of
from slurmray.slurm.status import phase_of
from slurmray.slurm.timeline import duration


@click.command("list")
@click.option("-a", "--all", "with_ended", is_flag=True, help="With jobs that have ended.")
@click.option("--json", "is_json", is_flag=True, help="Print a JSON list.")
def list_jobs(*, with_ended: bool, is_json: bool) -> None:
    """List your jobs that were submitted with slurmray, the newest first.

    PHASE is the step that a running job is in; slurmray status shows all of them. STATE is Slurm's; of a job
    that Slurm has forgotten it is from the run directory, or UNKNOWN where that is gone.

    \b
    Examples:
      slurmray list
      slurmray list --all --json | jq '.[] | select(.state == "FAILED") | .id'
    """
    states = commands.squeue()
    runs = [run for run in history.runs() if with_ended or run.id in states]
    attempts = {place: last_attempts(place) for place in {_place(run) for run in runs}}
    rows = [_row(run, states.get(run.id, ""), attempts[_place(run)].get(str(run.id), 0)) for run in runs]
    rows = [row for row in rows if with_ended or row["state"] not in FINAL]
    if is_json:
        print_json(rows)
        return
    if not rows:
        click.echo(
            "no jobs" if with_ended else "no jobs in Slurm; slurmray list --all shows ended ones", err=True
        )
        return
    now = time.time()
    table = [("JOB", "NAME", "STATE", "PHASE", "NODES", "GPUS", "SUBMITTED")]
    for row in rows:
        ago = f"{duration(max(0, now - row['submitted']))} ago"
        cells = (row["id"], row["name"], row["state"], row["phase"], row["nodes"], row["gpus"], ago)
        table.append(tuple(map(str, cells)))  # type: ignore[arg-type] # as many as the header has
    widths = [max(len(cells[column]) for cells in table) for column in range(len(table[0]))]
    for cells in table:
        click.echo("  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip())


def _place(run: history.Run) -> Path:
    """The folder of its run directories."""
    return Path(run.folder, Path(run.run_dir).expanduser())


def _row(run: history.Run, state: str, attempt: int) -> dict[str, Any]:
    """One job. state: Slurm's; "" if it has forgotten the job. It costs a look into the run directory."""
    phase = ""
    if state != "PENDING":
        try:
            events = events_in(_place(run) / f"{run.id}-{attempt}")
        except UsageError:  # not readable
            events = []
        end = end_of(events)
        state = state or (end.state if end else "UNKNOWN")
        phase = "" if state in (*FINAL, "UNKNOWN") else phase_of(events)
    return {**run._asdict(), "state": state, "phase": phase}
