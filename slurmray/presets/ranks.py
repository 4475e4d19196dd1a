"""RLinf's placements: `0-19`, `all`, `0-3:0-7,4-7`, with ranges that include both ends.

The grammar is that of ComponentPlacement._parse_rank_map and parse_rank_config in rlinf 0.3.0
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
    """GPUs or processes from first to last, both included."""

    first: int
    last: int

    @property
    def size(self) -> int:
        """How many there are."""
        return self.last - self.first + 1


class Ranks(NamedTuple):
    """GPUs of a component, in order, and for each part how many processes share it."""

    gpus: tuple[Span, ...]
    processes: tuple[int, ...]

    @property
    def size(self) -> int:
        """How many GPUs there are."""
        return sum(span.size for span in self.gpus)

    @property
    def last(self) -> int:
        """The highest GPU."""
        return self.gpus[-1].last

    @property
    def numbers(self) -> frozenset[int]:
        """Every GPU; only for placements that are known to fit a job."""
        return frozenset(number for span in self.gpus for number in range(span.first, span.last + 1))


def parse(text: str, total: int) -> Ranks:
    """Return what a placement says; ValueError says what is wrong. total: GPUs of the job, for `all`."""
    gpus: list[Span] = []
    counts: list[int] = []
    last_process = -1
    for part in filter(None, (word.strip() for word in text.split(","))):
        found = _PART.fullmatch(part)
        if not found:
            raise ValueError(
                f"{shown(part)}: expected GPUs as 0-7, 3 or all, and processes after a colon, as 0-3:0-7"
            )
        span = Span(0, total - 1) if found[1].lower() == "all" else _span(found[1])
        if gpus and span.first <= gpus[-1].last:
            raise ValueError(
                f"{part}: comes after GPU {gpus[-1].last}; write the ranges in order, each GPU once"
            )
        processes = _span(found[2]) if found[2] else Span(last_process + 1, last_process + span.size)
        if counts and processes.first != last_process + 1:
            raise ValueError(
                f"{part}: its processes begin with {processes.first}, but {last_process + 1} is next"
            )
        if span.size % processes.size and processes.size % span.size:
            raise ValueError(
                f"{part}: {span.size} GPUs and {processes.size} processes; one must divide the other"
            )
        gpus.append(span)
        counts.append(processes.size)
        last_process = processes.last
    if not gpus:
        raise ValueError("names no GPU")
    return Ranks(tuple(gpus), tuple(counts))


def spans(numbers: Iterable[int]) -> str:
    """Return `0-3, 8` for numbers."""
    found: list[Span] = []
    for number in sorted(numbers):
        if found and found[-1].last == number - 1:
            found[-1] = Span(found[-1].first, number)
        else:
            found.append(Span(number, number))
    return ", ".join(str(span.first) if span.size == 1 else f"{span.first}-{span.last}" for span in found)


def _span(text: str) -> Span:
    first, _, last = (word.strip() for word in text.partition("-"))
    span = Span(int(first), int(last or first))
    if span.size < 1:
        raise ValueError(f"{text}: ends before it begins")
    return span
