"""What a person wants to know about a job, from Slurm's record of it and its events. No I/O."""

from __future__ import annotations

import itertools
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from slurmray.diagnosis import pending
from slurmray.slurm.starts import Start, list_starts
from slurmray.slurm.states import Event, current_nodes, is_last_attempt_over, last_start, parse_time
from slurmray.slurm.timeline import Timeline, make_timeline
from slurmray.slurm.usage import Usage

# Slurm takes a job without a time limit for one of a year; after one that waits for its begin time, e.g.
# requeued, it names years like 3047 or 5089 (22.05 to 26.05).
LONGEST_WAIT = 364 * 86400  # seconds
_TRAINING = "training"
# Steps in their order. A message of an earlier one than the job has reached is a note, e.g. of a slow node.
# Stages (prepare, services) may come beside any of them before the trainer.
_ORDER = ("preflight", "leftovers", "image", "container", "ray", "probe", _TRAINING, "end")


class Step(NamedTuple):
    """A part of a job's way from sbatch to its end."""

    name: str  # queued, preflight, a phase of docs/reference/events.md, training, or restart
    began: float  # seconds since 1970
    seconds: float  # so far, if it is the last one of a job that runs
    text: str  # the last message of it


class Status(NamedTuple):
    """Where a job stands. nodes, restarts, starts, steps and timeline are of its attempt `attempt`."""

    id: int
    task: int | None  # SLURM_ARRAY_TASK_ID of a task of the array `id`; None for another job
    name: str
    state: str  # Slurm's name of it
    code: str  # the exit code and the signal as Slurm shows them, 0:53
    reason: str  # while it is PENDING, in words, or why Slurm cancelled it before its start
    # Slurm's estimate, in seconds since 1970; None if there is none within LONGEST_WAIT.
    expected_start: float | None
    phase: str  # name of the last step, or queued
    nodes: Sequence[str]  # the head node first, empty before the start
    spares: Sequence[str]  # those that still wait for one of these to fail
    set_aside: Sequence[Event]  # events of the spare nodes that failed
    attempt: int  # 0 is the first
    restarts: int  # of the trainer
    starts: Sequence[Start]  # of Ray and trainer, with what ended each
    steps: Sequence[Step]
    timeline: Timeline | None  # of its nodes; None if it was not recorded
    findings: Sequence[Event]  # of its preflight checks, as in events.jsonl
    unplaceable: Sequence[Event]  # of the last start: demands of Ray that no node can hold, while they wait
    usage: Usage | None  # what its nodes use, while it runs; None: not known
    end: Event | None  # the event of its end; None without one
    log: str  # the job's output file; "" if Slurm has forgotten the job
    run_dir: str  # of the attempt; "" before the start
    script: str  # the file that sbatch got; "" if it got it as text, or Slurm has forgotten the job
    excluded: str  # nodes that it excludes, as Slurm writes them

    @property
    def job(self) -> str:
        """The job for Slurm's commands: its id, or ARRAY_TASK."""
        return str(self.id) if self.task is None else f"{self.id}_{self.task}"

    def as_dict(self) -> dict[str, Any]:
        """Return it for JSON; of the timeline the progress of each step."""
        own = self._asdict()
        timeline, usage = own.pop("timeline"), own.pop("usage")
        bring_up = [step._asdict() for step in timeline.steps] if timeline else []
        rows = {name: [row._asdict() for row in own[name]] for name in ("steps", "starts")}
        nodes = {name: use._asdict() for name, use in usage.nodes.items()} if usage else {}
        return {**own, **rows, "bring_up": bring_up, "utilization": nodes}


def make_status(
    number: int,
    state: str,
    record: Mapping[str, str],
    events: Sequence[Event],
    now: float,
    usage: Usage | None = None,
    task: int | None = None,
) -> Status:
    """Return a job's status. record: of scontrol, empty if Slurm has forgotten the job. events: last attempt.

    now: seconds since 1970. usage: of the last attempt. number, task: id and task of Status.
    """
    by_name = {event["event"]: event for event in events}
    start = by_name.get("start", {})
    # Of a job that is requeued, Slurm has the time of its present wait, the events are of the attempt before.
    is_requeued = state == "PENDING" and bool(events)
    steps = _steps({} if is_requeued else record, events, now)
    end_time = steps[-1].began + steps[-1].seconds if steps else now
    starts = list_starts(events, end_time)
    nodes, spares = current_nodes(events)
    start_time = parse_time(record.get("StartTime", "")) if state == "PENDING" else None
    return Status(
        number,
        task,
        record.get("JobName", ""),
        state,
        record.get("ExitCode", ""),
        pending.explain(state, record.get("Reason", ""), record.get("Dependency", "")),
        start_time if start_time and start_time < now + LONGEST_WAIT else None,
        "queued" if is_requeued else steps[-1].name if steps else "",
        nodes,
        spares,
        [event for event in events if event["event"] == "set_aside"],
        int(start.get("attempt", record.get("Restarts", 0))),
        starts[-1].restart if starts else 0,
        starts,
        steps,
        make_timeline(events, end_time),
        [event for event in events if event["event"] == "finding"],
        _unplaceable(events),
        usage,
        by_name.get("end"),
        record.get("StdOut", ""),
        start.get("run_dir", ""),
        _value(record, "Command"),
        _value(record, "ExcNodeList"),
    )


def for_job(text: str, status: Status, node: str, *, is_remembered: bool) -> str:
    """Return a text for a job: with its id, and with a command to copy that leaves a node out.

    Nodes that failed earlier in the job are left out, too. The id 0 is no job's. node: "" if none is known.
    is_remembered: whether it was submitted with slurmray.
    """
    text = text.replace("JOBID", status.job if status.id else "JOBID")
    unfit = {finding["node"] for finding in status.findings if finding["kind"] != "warn"}
    if len(unfit) > 1 and unfit >= {*status.nodes}:  # others are likely to have the same
        return " ".join(part for part in re.split(r"(?<=\.) ", text) if "--exclude=NODE" not in part)
    if not node:
        return text
    failed = [start.failed for start in status.starts[:-1]] + [event["node"] for event in status.set_aside]
    nodes = dict.fromkeys(filter(None, [status.excluded, *failed, node]))
    option = shlex.quote(f"--exclude={','.join(nodes)}")
    command = f"sbatch {option} {shlex.quote(status.script) if status.script else 'generated.sh'}"
    if is_remembered and not status.script:
        command = f"slurmray submit ... {option}"
    return text.replace("sbatch --exclude=NODE generated.sh", command)


def current_phase(events: Sequence[Event]) -> str:
    """Return the name of the step that a job is in; "" before the first one."""
    names = [name for name, _, _ in _forward(events)]
    return names[-1] if names else ""


def _steps(record: Mapping[str, str], events: Sequence[Event], now: float) -> list[Step]:
    """The steps of the last attempt; each lasts until the next one begins."""
    queued = parse_time(record.get("EligibleTime", "")) or parse_time(record.get("SubmitTime", ""))
    rows = [] if queued is None else [("queued", queued, "")]
    end_time = next((event["time"] for event in reversed(events) if event["event"] == "end"), now)
    if not is_last_attempt_over(events) and (ended := parse_time(record.get("EndTime", ""))) and ended < now:
        end_time = ended  # of a job that could not record its end
    groups = [[*group] for _, group in itertools.groupby([*rows, *_forward(events)], lambda row: row[0])]
    ends = [*(group[0][1] for group in groups[1:]), end_time]
    return [
        Step(name, begin, max(0.0, end - begin), group[-1][2])
        for group, end in zip(groups, ends, strict=False)
        for name, begin, _ in group[:1]
    ]


def _unplaceable(events: Sequence[Event]) -> list[Event]:
    """Events `unplaceable` of the last start without an end."""
    waiting = {}
    for event in last_start(events)[1]:
        if event["event"] == "unplaceable":
            waiting[event["text"]] = event
        elif event["event"] == "unplaceable_end":
            waiting.pop(event["text"], None)
    return [*waiting.values()]


def _forward(events: Sequence[Event]) -> Iterator[tuple[str, float, str]]:
    """Yield step, time and text of each event that is part of a step, but for notes of earlier steps."""
    reached = 0
    for event in events:
        if event["event"] == "restart":
            reached = 0
            yield "restart", event["time"], event["text"]
        name, text = _step_and_text(event)
        rank = _ORDER.index(name) if name in _ORDER else reached
        is_stage_of_the_past = name not in _ORDER and reached >= _ORDER.index(_TRAINING)
        if name and rank >= reached and not is_stage_of_the_past:
            reached = rank
            yield name, event["time"], text


def _step_and_text(event: Event) -> tuple[str, str]:
    """Name and text of the step that an event belongs to; ("", "") for none."""
    if event["event"] == "start":
        return "preflight", ""
    if event["event"] == "trainer":
        return _TRAINING, event["command"]
    return (event["phase"], event["text"]) if event["event"] == "phase" else ("", "")


def _value(record: Mapping[str, str], name: str) -> str:
    return record.get(name, "").replace("(null)", "")
