"""Parses RLinf's placements, e.g. `0-19`, `all` or `0-3:0-7,4-7`. Ranges include both ends.

Source of the grammar: ComponentPlacement._parse_rank_map and parse_rank_config in rlinf 0.3.0
(rlinf/scheduler/placement/placement.py, rlinf/scheduler/cluster/utils.py).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from slurmray.spec.types import shown

_PART = re.compile(
    r"(all|[0-9]{1,9}(?:\s*-\s*[0-9]{1,9})?)\s*(?::\s*([0-9]{1,9}(?:\s*-\s*[0-9]{1,9})?))?", re.I
)


class Span(NamedTuple):
    """A range of GPUs or processes, including both ends."""

    first: int
    last: int

    @property
    def size(self) -> int:
        """Number of GPUs or processes."""
        return self.last - self.first + 1


class Ranks(NamedTuple):
    """GPUs of a component, in order, and for each span the number of processes on it."""

    gpus: tuple[Span, ...]
    processes: tuple[int, ...]

    @property
    def size(self) -> int:
        """Number of GPUs."""
        return sum(span.size for span in self.gpus)

    @property
    def last(self) -> int:
        """The highest number of a GPU."""
        return self.gpus[-1].last

    @property
    def numbers(self) -> frozenset[int]:
        """All GPUs. Only for placements within a job's GPUs: a wrong one may have a billion."""
        return frozenset(number for span in self.gpus for number in range(span.first, span.last + 1))


def parse_ranks(placement: str, total: int) -> Ranks:
    """Parse a placement; ValueError for a wrong one. total: GPUs of the job, for `all`."""
    gpus: list[Span] = []
    counts: list[int] = []
    last_process = -1
    for part in filter(None, (piece.strip() for piece in placement.split(","))):
        match = _PART.fullmatch(part)
        if not match:
            raise ValueError(
                f"{shown(part)}: expected GPUs, e.g. 0-7, 3, all, or GPUs and processes, e.g. 0-3:0-7"
            )
        span = Span(0, total - 1) if match[1].lower() == "all" else _parse_span(match[1])
        if gpus and span.first <= gpus[-1].last:
            raise ValueError(
                f"{part}: comes after GPU {gpus[-1].last}; write the ranges in order, each GPU once"
            )
        processes = _parse_span(match[2]) if match[2] else Span(last_process + 1, last_process + span.size)
        if counts and processes.first != last_process + 1:
            raise ValueError(f"{part}: its first process is {processes.first}, expected {last_process + 1}")
        if span.size % processes.size and processes.size % span.size:
            raise ValueError(
                f"{part}: {span.size} GPUs and {processes.size} processes; one must divide the other"
            )
        gpus.append(span)
        counts.append(processes.size)
        last_process = processes.last
    if not gpus:
        raise ValueError("is empty; expected GPUs, e.g. 0-7, or all")
    return Ranks(tuple(gpus), tuple(counts))


def spans(numbers: Iterable[int]) -> str:
    """Return numbers as ranges, e.g. `0-3, 8`."""
    ranges: list[Span] = []
    for number in sorted(numbers):
        if ranges and ranges[-1].last == number - 1:
            ranges[-1] = Span(ranges[-1].first, number)
        else:
            ranges.append(Span(number, number))
    return ", ".join(str(span.first) if span.size == 1 else f"{span.first}-{span.last}" for span in ranges)


def _parse_span(part: str) -> Span:
    first, _, last = (piece.strip() for piece in part.partition("-"))
    span = Span(int(first), int(last or first))
    if span.size < 1:
        raise ValueError(f"{part}: ends before it begins")
    return span
