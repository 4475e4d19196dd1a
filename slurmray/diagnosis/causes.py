"""What ended a job: from its state, slurmray's last line, and its logs."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from slurmray.diagnosis.entries import Explanation
from slurmray.diagnosis.exit_codes import (
    EXIT_CODES,
    SELF_EXPLAINED,
    TOO_FEW_SPARES,
    has_too_few_spares,
    look_up,
    look_up_trainer,
)
from slurmray.diagnosis.failures import Failure, clean, failures, shown
from slurmray.diagnosis.final_states import STATES
from slurmray.diagnosis.messages import FAMILIES, MESSAGES
from slurmray.diagnosis.slurm_errors import SLURM_ERRORS

LOG = "log"  # the job's
_SHOWN = 3  # messages after the first failure, and before the last errors
_SIGKILL, _SIGTERM = 128 + 9, 128 + 15
_OUT_OF_MEMORY = ("slurm-oom-kill", "kernel-oom-kill")  # messages that say who has sent SIGKILL


class EndedJob(Protocol):
    """A job as Slurm knows it. It may still run."""

    @property
    def state(self) -> str:
        """Slurm's name of its state."""

    @property
    def code(self) -> str:
        """Exit code and signal as Slurm shows them, 0:53."""

    @property
    def nodes(self) -> Sequence[str]:
        """The head node first; empty before the start."""

    @property
    def log(self) -> str:
        """The job's output file."""


@dataclass(frozen=True)
class Cause:
    """A known message, or what an exit code or a state says in general."""

    # cause, the first failure; then, what came after it; earlier, what may have had no consequences;
    # consequence, what another failure has led to that is not known; general, a code or a state.
    role: str
    source: str  # the log that has the message; "" for a code
    evidence: str  # its line, or code and meaning; "" if nothing is known
    cause: str
    fix: str
    is_certain: bool  # whether it ended the job
    file: str = ""  # the output file that Slurm could not open
    name: str = ""  # of the message, like family and hardware
    family: str = ""
    node: str = ""  # that it is about; "" if unknown
    rank: int | None = None  # likewise
    hardware: str = "none"


def diagnose(
    job: EndedJob,
    text: str,
    last_lines: Iterable[str],
    logs: Iterable[tuple[str, str]],
    hosts: Mapping[str, str],
    events: Collection[str] = (),
) -> list[Cause]:
    """Return what may have ended a job: the first failure, what else is in the logs, and what codes say.

    text: slurmray's last line. last_lines: of what failed; none if Slurm ended the job. logs: where to look
    for messages, (source, text), the job's log first. hosts: address -> node. events: names, of the job.

    The first failure is certain if it is among the last errors of the job's log, or in last_lines, or if the
    trainer got SIGKILL, not from slurmray, and the kernel killed processes on its node. What is known in general
    is left out then.
    """
    if job.state == "COMPLETED":
        return []
    has_ended = job.state in STATES
    last = {shown(clean(line)) for line in last_lines} if has_ended else set()
    is_killed = _trainers(text) == _SIGKILL and not _sent(events)
    head_log = f"log of {job.nodes[0]}" if job.nodes else ""
    causes: list[Cause] = []
    for failure in failures(MESSAGES, logs):
        ended_it = bool(last) and (failure.line in last or (failure.is_last and failure.source == LOG))
        # A node's log has all starts of the trainer; of the last one nothing but errors follows.
        is_of_head = failure.is_last and failure.source == head_log
        ended_it |= is_killed and is_of_head and failure.message.name in _OUT_OF_MEMORY
        role = _role(failure, ended_it, [cause.role for cause in causes])
        # Where Slurm has ended the job, its state is the reason.
        if role and not (role == "consequence" and has_ended and job.state != "FAILED"):
            causes.append(_of(failure, role, job.nodes, hosts))
    is_known = says_cause(text) or any(cause.is_certain for cause in causes)
    if has_ended and has_too_few_spares(text):
        known = TOO_FEW_SPARES
        causes.append(Cause("general", "", "", known.cause, known.fix, is_certain=True))
    elif has_ended and job.state != "CANCELLED" and not is_known:
        causes.append(_in_general(job, text, events))
    return causes


def _role(failure: Failure, ended_it: bool, before: list[str]) -> str:
    """Return the role of a failure after those with the roles `before`; "" if it is left out."""
    if failure.message.is_follow_up and not before:
        return "consequence"
    if not failure.message.is_follow_up and ended_it and "cause" not in before:
        return "cause"
    role = "then" if failure.is_last and (failure.message.is_follow_up or "cause" in before) else "earlier"
    is_left_out = before.count(role) >= _SHOWN or (failure.message.is_follow_up and not failure.is_last)
    return "" if is_left_out else role


def _of(failure: Failure, role: str, nodes: Sequence[str], hosts: Mapping[str, str]) -> Cause:
    """nodes: of the job, the head node first."""
    known = failure.message
    node = ""
    if failure.node is not None:
        node = hosts.get(failure.node, failure.node) or failure.source.removeprefix("log of ")
    if failure.node == "":
        driver = nodes[:1] if failure.is_driver and failure.source == LOG else ()
        node = next(iter(driver), node if node in nodes else "")
    if node.partition(".")[0] in nodes:
        node = node.partition(".")[0]
    cause = known.cause + " The failure before it is not known to slurmray." * (role == "consequence")
    family = next((name for name, messages in FAMILIES.items() if known in messages), "")
    return Cause(
        role,
        failure.source,
        failure.line,
        cause.strip(),
        known.fix,
        is_certain=role == "cause",
        name=known.name,
        family=family,
        node=node,
        rank=failure.rank,
        hardware=known.hardware,
    )


def look_up_text(text: str) -> list[Cause]:
    """Return the messages in a text, the first failure in front; or the message with this name.

    Errors of Slurm's commands, which have no name, are looked for last.
    """
    named = [message for message in MESSAGES if message.name == text]
    logs = [("", named[0].example if named else text)]
    hits = failures(named or MESSAGES, logs) or failures(SLURM_ERRORS, logs)
    return [_of(failure, "general", (), {}) for failure in hits]


def says_cause(text: str) -> bool:
    """Whether slurmray's last line has the cause and the fix."""
    return _slurmrays(text) in SELF_EXPLAINED


def _slurmrays(text: str) -> int | None:
    """Slurmray's exit code in its last line; None if the code is the trainer's, or there is none."""
    match = re.match(r"failed \(([0-9]{1,3}) ", text)
    return int(match[1]) if match and int(match[1]) in EXIT_CODES else None


def _trainers(text: str) -> int | None:
    """The trainer's exit code in slurmray's last line; None if it has none."""
    match = re.match("done: trainer exited with ([0-9]{1,3})(?![0-9])", text)
    return int(match[1]) if match else None


def _sent(events: Collection[str]) -> str:
    """The event with which slurmray sent the trainer a signal; "" without one."""
    return next((event for event in ("stop_now", "stop", "time_limit") if event in events), "")


def _in_general(job: EndedJob, text: str, events: Collection[str]) -> Cause:
    """What a state or an exit code says of a job with no known message."""
    if job.state != "FAILED":
        title, known = job.state, STATES[job.state]
    elif own := _slurmrays(text):
        title, known = look_up(own)
    elif (code := _trainers(text)) is not None:
        title, known = look_up_trainer(code)
        if code in (_SIGKILL, _SIGTERM):
            known = _signalled(known, events, is_killed=code == _SIGKILL)
    elif match := re.fullmatch("0:([1-9][0-9]{0,2})", job.code):
        title, known = look_up(0, int(match[1]))
    else:
        return Cause("general", "", "", "", "", is_certain=False)
    is_certain = job.state != "FAILED" or known.is_certain
    file = job.log if title == "0:53" else ""
    return Cause("general", "", f"{title}: {known.meaning}", known.cause, known.fix, is_certain, file)


def _signalled(known: Explanation, events: Collection[str], *, is_killed: bool) -> Explanation:
    """Return what is known of a trainer that got SIGKILL or SIGTERM: the events show whether slurmray sent it."""
    if not events:
        return known
    event = _sent(events)
    if event and is_killed:
        cause = f"slurmray sent it: the trainer still ran at the end of its grace period (event {event})."
        fix = "Raise stop.grace, or let the trainer end sooner after stop.signal."
        return Explanation(known.meaning, cause, fix, is_certain=True)
    if event:
        return known
    cause = (
        "Often the kernel, because memory ran out." if is_killed else "A process of the trainer, or somebody."
    )
    return Explanation(known.meaning, f"{cause} slurmray did not send it: its events record none.", known.fix)
