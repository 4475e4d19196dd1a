"""`slurmray status`: where a job stands."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import click

from slurmray.agent.combinations import describe
from slurmray.agent.controller.host_list import host_list, names
from slurmray.agent.job_log import counted
from slurmray.cli.flags import flag
from slurmray.cli.jobs import complete_job, job_argument, show_tasks
from slurmray.cli.terminal import REFRESH, check_watch, escaped, print_json, printable, show, styled
from slurmray.diagnosis.exit_codes import fix_of
from slurmray.diagnosis.final_states import STATES
from slurmray.errors import SlurmrayError
from slurmray.slurm.job_status import Status, for_job
from slurmray.slurm.log_end import last_trainer_line
from slurmray.slurm.states import FINAL
from slurmray.slurm.timeline import Timeline, clock, duration, exact_duration
from slurmray.slurm.usage import Usage, describe_use, find_unusual

_NODES_SHOWN = 8  # nodes that deserve a look
_LOG_END = 1 << 13  # bytes
_MESSAGE, _REASON = 100, 300  # characters of a step's last message, and of the reason of a restart


@click.command()
@click.argument("job", required=False, shell_complete=complete_job)
@flag("-w", "--watch", help="Show it until the job has ended.")
@flag("--json", "is_json", help="Print a JSON object.")
def status(*, job: str | None, watch: bool, is_json: bool) -> None:
    """Show where a job stands: its state, how long each step took, how its nodes came up, and how it ended.

    JOB is an id or a name. Without JOB it is the newest one. It works while the job waits or runs, after its
    end, and when Slurm has forgotten it, as long as its run directory is there.

    Of a sweep, or another array, it lists the tasks. 1234_0 is one of them.

    \b
    Examples:
      slurmray status
      slurmray status verl --watch
      slurmray status 1234 --json | jq -r .phase
    """
    check_watch("status", watch=watch, is_json=is_json)
    chosen_job, run = job_argument(job)
    while chosen_job.is_array():
        tasks = chosen_job.tasks()
        if watch:
            click.clear()
        show_tasks(chosen_job, run.name, tasks, is_json=is_json)
        if not watch or all(task.state in FINAL for task in tasks):
            return
        time.sleep(REFRESH)
    while True:
        snapshot = chosen_job.status()
        if is_json:
            print_json(_as_dict(snapshot, chosen_job.host.name))
        else:
            if watch:
                click.clear()
            if chosen_job.parameters:
                show(describe(chosen_job.parameters))
            for line in _lines(snapshot, chosen_job.host.name, is_remembered=run.nodes > 0):
                click.echo(line)
            if snapshot.usage:
                log = ""
                with suppress(SlurmrayError):  # it may be readable on the node only
                    log = chosen_job.logs(last=_LOG_END)
                for line in _use(snapshot.usage, log):
                    click.echo(line)
        if not watch or snapshot.state in FINAL:
            return
        time.sleep(REFRESH)


def _as_dict(status: Status, host: str | None) -> dict[str, Any]:
    usage = status.usage
    unusual = find_unusual(usage) if usage else []
    return {
        **status.as_dict(),
        "use": describe_use(usage) if usage else "",
        "unusual": [{"node": node, "text": text} for node, text in unusual],
        "host": host,
    }


def _lines(status: Status, host: str | None, *, is_remembered: bool) -> Iterator[str]:
    color = {"COMPLETED": "green", "RUNNING": "green", "PENDING": "yellow"}.get(status.state, "red")
    attempt = f", attempt {status.attempt}" if status.attempt else ""
    attempt += f", {counted(status.restarts, 'restart')}" if status.restarts else ""
    nodes = ""
    if status.nodes:
        count = counted(len(status.nodes), "node")
        nodes = f" on {count}, head node {status.nodes[0]}"
    name = f" {status.name}" if status.name else ""
    state = styled(printable(status.state), color)
    yield f"job {status.job}{printable(name)}: {state}{nodes}{attempt}"
    if status.reason:
        yield printable(f"  {status.reason}")
    if status.expected_start:
        yield f"  expected to start at {clock(status.expected_start)}"
    for step in status.steps:
        message = " ".join(step.text.split())
        message = message[: _REASON if step.name == "restart" else _MESSAGE]
        line = f"  {step.name[:100]:<10} {duration(step.seconds):>12}  {message}".rstrip()
        yield printable(line)
    if status.timeline:
        yield from _bring_up(status.timeline)
    if status.starts and status.starts[0].spares:
        yield f"  spare nodes: {host_list(status.spares) or 'none left'}"
    for event in status.set_aside:
        yield styled(printable(f"  set aside: {event['node']}: {event['text']}"), "yellow")
    for finding in status.findings:
        summary = f"{finding['node']}: {finding['check']}: {finding['found']}, wanted {finding['wanted']}"
        yield styled(
            printable(f"  {summary}: {finding['fix']}"), "yellow" if finding["kind"] == "warn" else "red"
        )
    for event in status.unplaceable:
        yield styled(printable(f"  unplaceable: {event['text']}. {event['fix']}"), "yellow")
    text, node, fix = _end(status)
    for line in filter(None, (text, for_job(fix, status, node, is_remembered=is_remembered))):
        yield printable(f"  {line}")
    place = f"{host}:" if host else ""
    if status.log:
        yield printable(f"  log: {place}{status.log}")
    if status.run_dir:
        yield printable(f"  logs of each node: {place}{status.run_dir}/logs")


def _end(status: Status) -> tuple[str, str, str]:
    """What ended the job, the node to blame, and what to do; "" where that is not recorded."""
    if status.end:
        return status.end["text"], status.end["node"], fix_of(status.end)
    # A start with a failed node, and no end: of the head node, by which another end would have been recorded.
    lost = [start for start in status.starts[-1:] if start.failed]
    return (lost[0].reason, lost[0].failed, STATES["NODE_FAIL"].fix) if lost else ("", "", "")


def _use(usage: Usage, log: str) -> Iterator[str]:
    """What the nodes use, which of them deserve a look, and the trainer's last line. log: its end."""
    if text := describe_use(usage):
        yield f"  {printable(text)}"
    unusual = find_unusual(usage)
    for node, text in unusual[:_NODES_SHOWN]:
        yield styled(printable(f"  {node}: {text}"), "yellow")
    if len(unusual) > _NODES_SHOWN:
        yield styled(f"  and {len(unusual) - _NODES_SHOWN} more", "yellow")
    line = last_trainer_line(log)
    if line and usage.output is not None:
        age = duration(max(0.0, time.time() - usage.output))
        yield f"  last output {age} ago: {escaped(line)[:_MESSAGE]}"


def _bring_up(timeline: Timeline) -> Iterator[str]:
    """A table of the steps of the nodes' bring-up: nodes that are done, times, and who is missing."""
    yield "  bring-up       nodes  half after   all after"
    for step in timeline.steps:
        nodes = f"{step.done}/{step.nodes}"
        half = exact_duration(step.half)
        missing = names([*step.missing])
        seconds, last = (None, f"not done: {missing}") if missing else (step.seconds, f"{step.last} was last")
        yield f"  {step.step:<10} {nodes:>9}  {half:>10}  {exact_duration(seconds):>10}  {last}"
