"""Follows a job: why it waits, its log as it grows, and its end."""

from __future__ import annotations

import contextlib
import errno
import io
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from slurmray.errors import SlurmError
from slurmray.slurm.states import FINAL, End, Event, is_last_attempt_over, recorded_end
from slurmray.slurm.submitted_job import Job
from slurmray.slurm.timeline import clock

_LONGEST_PAUSE = 15.0  # seconds between two requests to slurmctld
_COMPLETING = (
    "Slurm is completing the job: it waits for the site's epilog, or for a node that does not answer"
)
LAST_BYTES = 64 << 20  # of a log of which the last lines are wanted
_NEWEST_BYTES = 1 << 20  # of a log that is too large to be read as a whole
_END_PAUSE = 1.0  # the same once the job has recorded its end


def follow(
    job: Job,
    write: Callable[[bytes], object],
    notice: Callable[[str], object],
    is_enough: Callable[[Sequence[Event]], bool] = lambda _: False,
    last: int | None = None,
) -> End | None:
    """Pass the job's log to `write` until the job has ended; return how.

    It has ended when it is in a final state of Slurm, or earlier: a job whose trainer and nodes have ended
    may be COMPLETING for minutes, until the epilog of the site has run and a node that is lost is down.

    notice: gets one line when the job waits for another reason than before. is_enough: None is returned once
    it is true of the job's events. last: number of lines of the log so far; None: all. Errors as for
    Job.wait.
    """
    offsets: dict[Path, int] = {}
    last_line = ""
    events: Sequence[Event] = []
    is_over = False
    for end, pause in job.polls():
        copy_logs(job, offsets, write if offsets else lambda data: write(last_lines(data, last)))
        if end.state in FINAL:
            return end
        if end.state == "PENDING":
            with contextlib.suppress(SlurmError):  # slurmctld does not answer for a while: see Job.polls
                status = job.status()
                start = f", expected at {clock(status.expected_start)}" if status.expected_start else ""
                if (line := f"queued: {status.reason}{start}") != last_line:
                    notice(line)
                    last_line = line
        if end.state == "COMPLETING":
            own = recorded_end(events) if is_over else None
            if own and own.state != "CANCELLED":  # or it reached its time limit, which only Slurm knows
                return own
            if last_line != _COMPLETING:
                notice(_COMPLETING)
                last_line = _COMPLETING
        is_ending = is_over and end.state != "PENDING"  # a requeued job has the events of the attempt before
        until = time.monotonic() + (_END_PAUSE if is_ending else min(pause, _LONGEST_PAUSE))
        while time.monotonic() < until:
            time.sleep(job.host.read_pause)
            copy_logs(job, offsets, write)
            with contextlib.suppress(SlurmError):  # ssh fails for a while
                events = job.events()
            if is_enough(events):
                return None
            was_over, is_over = is_over, is_last_attempt_over(events)
            if is_over and not was_over:
                break
    raise AssertionError("polls() has no end")


def last_lines(log: bytes, number: int | None) -> bytes:
    """Return the last lines of a log, at least one; None: all."""
    return log if number is None else b"".join(io.BytesIO(log).readlines()[-number:])


def copy_logs(job: Job, offsets: dict[Path, int], write: Callable[[bytes], object]) -> None:
    """Pass what is new in the job's output files to `write`. offsets: updated; bytes read of each.

    Of a file with more than files.MAX_LOG, only the end.
    """
    for path in job.outputs():
        start = offsets.get(path, 0)
        try:
            try:
                data = job.host.read(path, start)
            except OSError as error:
                if error.errno != errno.EFBIG:
                    raise
                start = job.host.size(path) - _NEWEST_BYTES
                data = job.host.read(path, start)
        except (OSError, SlurmError):  # it has not started, the file is not visible, or ssh fails for a while
            continue
        offsets[path] = start + len(data)
        if data:
            write(data)
