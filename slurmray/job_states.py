"""What Slurm and a job's run directory say of the job, without I/O."""

from __future__ import annotations

import json
import re
from typing import NamedTuple

# Slurm's states that no job leaves (`man squeue`, JOB STATE CODES); one that is requeued is PENDING instead.
FINAL = (
    "BOOT_FAIL",
    "CANCELLED",
    "COMPLETED",
    "DEADLINE",
    "FAILED",
    "NODE_FAIL",
    "OUT_OF_MEMORY",
    "PREEMPTED",
    "REVOKED",
    "TIMEOUT",
)
# Fields of `scontrol show job` that have a line of their own and may hold spaces.
_WHOLE_LINES = (
    "AdminComment",
    "Command",
    "Comment",
    "Extra",
    "StdErr",
    "StdIn",
    "StdOut",
    "SystemComment",
    "WorkDir",
)


class End(NamedTuple):
    """How a job ended.

    state: Slurm's word, as COMPLETED or FAILED. exit_code: 0 to 255, which `slurmray explain` explains.
    signal: the number of the signal that ended the batch script, mostly 0.
    """

    state: str
    exit_code: int
    signal: int


def parse_job(text: str) -> dict[str, str]:
    """Return the fields of a job as `scontrol show job` writes them; {} for an empty text."""
    fields: dict[str, str] = {}
    for line in text.splitlines():
        name, _, value = line.strip().partition("=")
        fields |= {name: value} if name in _WHOLE_LINES else dict(re.findall(r"(\S+?)=(\S*)", line))
    return fields


def parse_end(state: str, code: str) -> End:
    """Return the end from state and code as scontrol and sacct write them: `CANCELLED by 1001` and `0:15`."""
    exit_code, _, signal = code.partition(":")
    return End(state.partition(" ")[0], int(exit_code), int(signal or 0))


def parse_events(text: str) -> End | None:
    """Return the end from events.jsonl of a run directory; None: it does not say.

    Its batch script wrote that, which knows that Slurm told it to end, but not why: CANCELLED may be TIMEOUT.
    """
    end, stopped = None, False
    for line in text.splitlines():
        try:
            event = json.loads(line)
        except ValueError:  # cut off, on a full file system
            continue
        stopped = stopped or event["event"] == "stop"
        found = re.match(r"exit code ([0-9]+) from (\w+)", event["text"])
        if found and event["event"] == "end":
            code, ended = int(found[1]), stopped or found[2] == "slurm"
            end = End("CANCELLED" if ended else "FAILED" if code else "COMPLETED", code, 0)
    return end
