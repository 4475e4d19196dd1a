"""What ended a job: from its state, slurmray's last line, and its logs."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from slurmray.diagnosis.entries import LONGEST, find
from slurmray.diagnosis.exit_codes import EXIT_CODES, SELF_EXPLAINED, look_up, look_up_trainer
from slurmray.diagnosis.messages import MESSAGES
from slurmray.diagnosis.states import STATES

if TYPE_CHECKING:
    from slurmray.slurm.status import Status


@dataclass(frozen=True)
class Cause:
    """A known message, or what an exit code or a state says in general.

    source: the log that has the message; "" for a code. evidence: its line, or code and meaning; "" if
    nothing is known. is_certain: whether it ended the job. file: the output file that Slurm could not open.
    """

    source: str
    evidence: str
    cause: str
    fix: str
    is_certain: bool
    file: str = ""


def diagnose(
    status: Status, text: str, last_lines: Iterable[str], logs: Iterable[tuple[str, str]]
) -> list[Cause]:
    """Return what may have ended a job: known messages, then what is known in general if none is certain.

    text: slurmray's last line. last_lines: of what failed: a message among them is certain. logs: where to
    look for messages, (source, text).
    """
    if status.state == "COMPLETED":
        return []
    has_ended = status.state in STATES
    last = {line.strip()[:LONGEST] for line in last_lines} if has_ended else set()
    causes = [
        Cause(source, line, known.cause, known.fix, is_certain=line in last)
        for known, source, line in find(MESSAGES, logs)
    ]
    is_known = says_cause(text) or any(each.is_certain for each in causes)
    if has_ended and status.state != "CANCELLED" and not is_known:
        causes.append(_in_general(status, text))
    return causes


def says_cause(text: str) -> bool:
    """Whether slurmray's last line has the cause and the fix."""
    return _slurmrays(text) in SELF_EXPLAINED


def for_job(text: str, status: Status, node: str, *, is_remembered: bool) -> str:
    """Return a text for a job: with its id, and with a command to copy that leaves a node out.

    node: "" if none is known. is_remembered: whether it was submitted with slurmray.
    """
    text = text.replace("JOBID", str(status.id))
    if not node:
        return text
    option = shlex.quote(f"--exclude={status.excluded + ',' if status.excluded else ''}{node}")
    command = f"sbatch {option} {shlex.quote(status.script) if status.script else 'generated.sh'}"
    if is_remembered and not status.script:
        command = f"slurmray submit ... {option}"
    return text.replace("sbatch --exclude=NODE generated.sh", command)


def _slurmrays(text: str) -> int | None:
    """Slurmray's exit code in its last line; None if the code is the trainer's, or there is none."""
    found = re.match(r"failed \((\d+) ", text)
    return int(found[1]) if found and int(found[1]) in EXIT_CODES else None


def _in_general(status: Status, text: str) -> Cause:
    """What a state or an exit code says of a job with no known message."""
    if status.state != "FAILED":
        title, known = status.state, STATES[status.state]
    elif own := _slurmrays(text):
        title, known = look_up(own)
    elif found := re.match(r"done: trainer exited with (\d+)", text):
        title, known = look_up_trainer(int(found[1]))
    elif found := re.fullmatch("0:([1-9][0-9]*)", status.code):
        title, known = look_up(0, int(found[1]))
    else:
        return Cause("", "", "", "", is_certain=False)
    is_certain = status.state != "FAILED" or known.is_certain
    file = status.log if title == "0:53" else ""
    return Cause("", f"{title}: {known.meaning}", known.cause, known.fix, is_certain, file)
