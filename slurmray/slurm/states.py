"""Parses states and ends of jobs, from Slurm's output and a job's events. No I/O."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from slurmray.agent.job_record import parse_records
from slurmray.diagnosis.final_states import STATES
from slurmray.events import fits

FINAL = tuple(STATES)
_LONGEST_LINE = 4 << 20  # characters: 65,536 names of nodes have less
Event = Mapping[str, Any]
"""A line of events.jsonl; docs/reference/events.md has the fields."""


class End(NamedTuple):
    """How a job ended.

    state: Slurm's name of the state, for example COMPLETED or FAILED. exit_code: 0 to 255, see `slurmray
    explain`. signal: number of the signal that ended the batch script, usually 0.
    """

    state: str
    exit_code: int
    signal: int

    @property
    def shell_code(self) -> int:
        """The exit code for a shell: the job's, 128 + its signal, or 1 if it failed without either."""
        if self.exit_code or self.signal:
            return self.exit_code or 128 + self.signal
        return 0 if self.state == "COMPLETED" else 1


def parse_job(text: str) -> dict[str, str]:
    """Return the fields of a job from the output of `scontrol show job`; {} if that has no sound record.

    Of a heterogeneous job, which has a record for each component: those of the first one. StdOut and StdErr
    are the files that the batch script has.
    """
    record = next(iter(parse_records(text)), {})
    if not {"JobState", "ExitCode", "WorkDir"} <= record.keys():
        return {}
    if "SubmitLine" not in record:  # up to 24.11
        record |= {name: _file_name(record[name], record) for name in ("StdErr", "StdOut") if name in record}
    return record


def _file_name(path: str, record: Mapping[str, str]) -> str:
    """Replace what scontrol leaves of a file name pattern (man sbatch): in 22.05 more than in 24.11."""
    job = record["JobId"]
    values = {"%": "%", "N": record.get("BatchHost"), "n": "0", "s": "batch", "t": "0", "J": job, "j": job}
    values |= {"A": record.get("ArrayJobId", job), "a": record.get("ArrayTaskId")}

    def value(match: re.Match[str]) -> str:
        text = values[match[2]] or match[0]  # before its start a job has no host
        return text.zfill(min(int(match[1] or 0), 10)) if text.isdecimal() else text

    return re.sub(r"%([0-9]{0,9})([%NnstJjAa])", value, path)


def parse_components(text: str) -> dict[str | None, str]:
    """Return {component: list of its nodes} of a job, from the output of `scontrol show job`.

    A job that is not heterogeneous has the component None.
    """
    return {
        record.get("HetJobOffset"): record.get("NodeList", "") for record in reversed(parse_records(text))
    }


def parse_end(state: str, code: str) -> End:
    """Return the end from state and code as scontrol and sacct print them: `CANCELLED by 1001`, `0:15`."""
    exit_code, _, signal = code.partition(":")
    return End(state.partition(" ")[0], int(exit_code), int(signal or 0))


def parse_time(text: str) -> float | None:
    """Return seconds since 1970 of a time of scontrol, as such or in this host's zone; None: `Unknown`."""
    try:
        seconds = float(text) if text.isdecimal() else datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError):
        return None
    return seconds if 0 <= seconds < 2**37 else None


def parse_events(text: str) -> list[Event]:
    """Return the events of one attempt from its events.jsonl, without lines that do not fit."""
    events: list[Event] = []
    for line in text.split("\n"):
        try:
            event = json.loads(line) if len(line) <= _LONGEST_LINE else None
        except (ValueError, RecursionError):  # incomplete: it is being written, or the file system is full
            continue
        if fits(event):
            events.append(event)
    return events


def recorded_end(events: Iterable[Event]) -> End | None:
    """Return how an attempt ended; None if it has not ended, or could not record it.

    The batch script cannot distinguish a cancelled job from one at its time limit: both are CANCELLED.
    """
    by_name = {event["event"]: event for event in events}
    end = by_name.get("end")
    if end is None:
        return None
    code = end["exit_code"]
    if end["source"] == "slurm" or ("stop" in by_name and end["source"] != "slurmray"):
        return End("CANCELLED", code, 0)
    return End("FAILED" if code else "COMPLETED", code, 0)


def last_start(events: Sequence[Event]) -> tuple[list[str], Sequence[Event]]:
    """Return the nodes of the last start of Ray and trainer, the head node first, and the events since then.

    ([], []) before the first one.
    """
    at = max((at for at, event in enumerate(events) if event["event"] in ("start", "restart")), default=None)
    return ([], []) if at is None else (events[at].get("nodes", []), events[at:])


def current_nodes(events: Sequence[Event]) -> tuple[list[str], list[str]]:
    """Return nodes and spare nodes of a job, the head node first; ([], []) before its start."""
    nodes: list[str] = []
    places: dict[str, int] = {}  # of each in `nodes`
    spares: dict[str, Any] = {}  # only its keys count
    for event in events:
        name = event["event"]
        if name in ("start", "restart"):
            nodes, spares = list(event["nodes"]), dict.fromkeys(event.get("spares", []))
            places = {node: place for place, node in enumerate(nodes)}
        elif name == "replacement" and event["lost"] in places:
            place = places.pop(event["lost"])
            nodes[place] = event["node"]
            places[event["node"]] = place
        if name in ("replacement", "set_aside"):
            spares.pop(event["node"], None)
    return nodes, list(spares)


def head_loss(events: Sequence[Event]) -> Event | None:
    """Return the loss of the batch script's host, which another node has recorded; None without one."""
    start = next((event for event in events if event["event"] == "start"), None)
    last = next((event for event in reversed(events) if event["event"] == "node_loss"), None)
    return last if start and last and last["node"] == start["nodes"][0] else None


def with_head_loss(events: list[Event], ended: float | None) -> list[Event]:
    """Return the events of a job that is NODE_FAIL, with the loss of the batch script's host if it was that.

    The batch script records each other end. ended: seconds since 1970, None if it is not known.
    """
    start = next((event for event in events if event["event"] == "start"), None)
    names = {event["event"] for event in events}
    if not start or names & {"stop", "end"} or head_loss(events):
        return events
    head, time = start["nodes"][0], ended or events[-1]["time"]
    text = f"{head}: Slurm has marked the head node down. Has it lost power or its network?"
    return [*events, {"v": 1, "time": time, "event": "node_loss", "node": head, "text": text}]


def is_last_attempt_over(events: Iterable[Event]) -> bool:
    """Whether an attempt has ended, and no other one follows."""
    names = {event["event"] for event in events}
    return "end" in names and "requeue" not in names
