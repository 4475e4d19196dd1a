"""What a job's log shows of the job's end. No I/O."""

from __future__ import annotations

import re
from typing import NamedTuple

from slurmray.diagnosis.slurm_errors import JOB_CANCELLED
from slurmray.slurm.states import End

_SHOWN = 15  # lines, as in the job's log
_LONGEST = 4096  # characters of slurmray's last line
_TIME = r"\[slurmray +[0-9.]+ s\] "
_OWN = re.compile(f"{_TIME}(.*)")
_START = re.compile(f"^{_TIME}(?:start: job |restart [0-9]+ of [0-9]+: |start again: )", re.MULTILINE)
_ATTEMPT = re.compile(f"^{_TIME}start: job ", re.MULTILINE)
_CODE = "[0-9]{1,3}(?![0-9])"
_END = re.compile(rf"done: (?:trainer exited with {_CODE}|the nodes)|failed \({_CODE} |stopped by Slurm")


class LogEnd(NamedTuple):
    """The end of the last start of Ray and trainer in a job's log."""

    text: str  # slurmray's last line about it, without its time; "" without one
    source: str  # where `lines` are from
    lines: list[str]  # the last ones of what failed; of a job without `text`, those of its log
    printed: str  # all of these lines
    before: str  # the log of this start, up to the moment when Slurm began to end the job, if it did
    is_stopped: bool  # whether Slurm ended it


def log_end(log: str) -> LogEnd:
    """Return what the log shows of the job's end."""
    starts = [match.start() for match in _START.finditer(log)]
    last = log[starts[-1] :] if starts else log
    end, source, output, is_shown = "", "", list[str](), False
    shown: dict[str, list[str]] = {}
    for line in last.splitlines():
        own = _OWN.fullmatch(line)
        if not own:
            (shown[source] if is_shown else output).append(line)
            continue
        text, is_shown = own[1], False
        if match := re.fullmatch("last lines of (.*):", text):
            source, is_shown = match[1], match[1] not in shown
            shown.setdefault(source, [])
        elif text.startswith("trainer: "):
            output.clear()  # until now: findings, messages of srun
        elif _END.match(text):
            end = text[:_LONGEST]
    if not end:
        shown, output = {}, last.splitlines()
    elif end.startswith("done: "):
        shown = {}
    source, lines = next(iter(shown.items()), ("the job's log", output))
    printed, lines = "\n".join(lines), [line for line in lines if line.strip()]
    stop = re.search(f"^{_TIME}(stop: |time limit or preemption near)", last, re.MULTILINE)
    before = last[: stop.start()] if stop else last
    return LogEnd(end, source, lines[-_SHOWN:], printed, before, bool(stop and stop[1] == "stop: "))


def end_in_log(log: str) -> End | None:
    """Return how the job ended by its log; None if slurmray wrote no last line. See states.recorded_end."""
    end = log_end(log)
    if not end.text:
        return None
    match = re.search(rf"exited with ({_CODE})|^failed .({_CODE}) ", end.text)
    code = int(match[1] or match[2]) if match else 0
    is_stopped = end.text.startswith("stopped") or (end.is_stopped and end.text.startswith("done: "))
    return End("CANCELLED" if is_stopped else "FAILED" if code else "COMPLETED", code, 0)


def last_trainer_line(log: str) -> str:
    """Return the last line of a job's log that slurmray has not written; "" without one.

    Progress bars write over a line: the last version counts.
    """
    lines = (line.strip() for line in re.split("[\r\n]", log))
    return next((line for line in [*lines][::-1] if line and not line.startswith("[slurmray ")), "")


def stopped_at(log: str) -> tuple[str, str]:
    """Return when Slurm ended the last attempt, and its reason, for example DUE TO TIME LIMIT.

    "" if Slurm wrote none. It appends the log of an attempt to that of the one before.
    """
    starts = [match.start() for match in _ATTEMPT.finditer(log)]
    match = JOB_CANCELLED.search(log, starts[-1] if starts else 0)
    return (match[1], match[2] or "") if match else ("", "")
