"""What the tools of `slurmray mcp` return.

What jobs write is data of others: a result has it without terminal sequences, and only so much of it.
"""

from __future__ import annotations

import re
from typing import Any

from pydantic import BaseModel

from slurmray.cli.terminal import escaped
from slurmray.errors import Problem, SlurmrayError, SpecError

MAX_LOG = 64 << 10  # bytes of a log in a result
_WIDEST = 2000  # characters of another text
MAX_ITEMS = 50  # of a list
_PLACE = re.compile(r"(.+):([0-9]+):([0-9]+)")


class Mistake(BaseModel):
    """A mistake in a job spec.

    file: stdin is the text. path: of the field, names and positions from 0. message: cause and fix.
    """

    file: str
    line: int | None
    column: int | None
    path: list[str | int]
    message: str


class Failure(BaseModel):
    """Why a tool failed. exit_code: of the command. mistakes: those of a job spec."""

    exit_code: int
    message: str
    mistakes: list[Mistake]


class CheckResult(BaseModel):
    """What can be known of a job. slurm: when and where it could start; "" if there is no Slurm here."""

    is_valid: bool
    mistakes: list[Mistake]
    name: str = ""
    summary: str = ""
    remarks: list[str] = []
    slurm: str = ""


class RenderedScript(BaseModel):
    """A script that was written. remarks: hints for the user."""

    path: str
    name: str
    summary: str
    remarks: list[str]


class SubmittedJob(BaseModel):
    """A submitted job. cluster, host: as for slurmray submit --json. remarks: hints, and Slurm's messages."""

    id: int
    name: str
    cluster: str | None
    host: str | None
    summary: str
    remarks: list[str]


class Rehearsal(BaseModel):
    """A rehearsal. exit_code: the job's; 73 if this machine could not run it.

    log: the end of the job's log. messages: of the rehearsal.
    """

    exit_code: int
    log: str
    messages: list[str]


class Step(BaseModel):
    """A step of a job. began: seconds since 1970. text: its last message."""

    name: str
    began: float
    seconds: float
    text: str


class BringUpStep(BaseModel):
    """How many nodes are done with a step of their bring-up."""

    step: str
    done: int
    nodes: int
    missing: list[str]


class NodeText(BaseModel):
    """What there is to say of a node."""

    node: str
    text: str


class Finding(BaseModel):
    """What a preflight check has found on a node. kind: warn, or what ends the job."""

    node: str
    kind: str
    check: str
    found: str
    wanted: str
    fix: str


class End(BaseModel):
    """How a job ended. source: whose exit code it is. node: to blame, or "". text: last line of its log."""

    exit_code: int
    source: str
    kind: str
    node: str
    text: str


class JobStatus(BaseModel):
    """Where a job stands.

    state: Slurm's. reason: why it waits. expected_start: seconds since 1970. phase: the last step. nodes,
    spares: host lists. restarts: of the trainer in this attempt. use: of GPUs and memory, while it runs.
    unusual: nodes that deserve a look. host: that has the files, if it is not this one.
    """

    id: int
    name: str
    state: str
    code: str
    reason: str
    expected_start: float | None
    phase: str
    nodes: str
    spares: str
    attempt: int
    restarts: int
    steps: list[Step]
    bring_up: list[BringUpStep]
    findings: list[Finding]
    set_aside: list[NodeText]
    use: str
    unusual: list[NodeText]
    end: End | None
    log: str
    run_dir: str
    host: str | None


class LogText(BaseModel):
    """The end of a log. is_all: whether nothing before it is left out."""

    id: int
    text: str
    is_all: bool


class Event(BaseModel):
    """Something that happened to a node of a job. time: seconds since 1970. node: host list, or ""."""

    time: float
    node: str
    text: str


class LastLines(BaseModel):
    """The last lines of what failed. source: the log that has them."""

    source: str
    lines: list[str]


class Cause(BaseModel):
    """A known message in a log, with its cause and fix.

    role: cause, the first failure; then, what came after it; earlier, what came before. hardware: that may be
    broken, or none.
    """

    role: str
    name: str
    family: str
    node: str
    rank: int | None
    hardware: str
    source: str
    evidence: str
    cause: str
    fix: str


class Why(BaseModel):
    """What ended a job. text: slurmray's last line. cancelled: by whom, and when; "" if it was not."""

    id: int
    name: str
    state: str
    code: str
    text: str
    cancelled: str
    end: End | None
    causes: list[Cause]
    findings: list[Finding]
    restarts: list[Event]
    set_aside: list[Event]
    last_lines: LastLines


class Report(BaseModel):
    """The file of a page about a job."""

    id: int
    path: str


class Cancelled(BaseModel):
    """Whether a job was cancelled: not if it had ended. state: before that."""

    id: int
    is_cancelled: bool
    state: str


def list_mistakes(error: SlurmrayError) -> list[Mistake]:
    """Return the first mistakes of a job spec; [] for another error."""
    problems = error.problems if isinstance(error, SpecError) else []
    return [_mistake(problem) for problem in problems[:MAX_ITEMS]]


def _mistake(problem: Problem) -> Mistake:
    place = _PLACE.fullmatch(problem.where)
    return Mistake(
        file=clean(place[1] if place else problem.where),
        line=int(place[2]) if place else None,
        column=int(place[3]) if place else None,
        path=[clean(part) for part in problem.path if part != "[key]"],
        message=clean(problem.text),
    )


def clean(value: Any) -> Any:
    """Return a value for JSON without terminal sequences, with the beginnings of long texts and lists."""
    if isinstance(value, str):
        return "\n".join(map(escaped, value[:_WIDEST].split("\n")))
    if isinstance(value, dict):
        return {name: clean(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [clean(item) for item in value[:MAX_ITEMS]]
    return value


def last_lines(log: str | bytes, lines: int) -> tuple[str, bool]:
    """Return the last lines of a log, at most MAX_LOG bytes, and whether that is all of what it has.

    Of a progress bar, which writes over its line, the last version.
    """
    text = log.decode(errors="replace") if isinstance(log, bytes) else log
    shown = [escaped(line.rstrip("\r").rpartition("\r")[2]) for line in text.rstrip("\n").split("\n")]
    end = "\n".join(shown[-lines:]).encode()
    is_all = len(shown) <= lines and len(end) <= MAX_LOG and len(text.encode(errors="replace")) < MAX_LOG
    return end[-MAX_LOG:].decode(errors="ignore"), is_all
