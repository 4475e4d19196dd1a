"""Known messages in logs: which was the first, on which node, of which rank. No I/O."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from slurmray.diagnosis.entries import LONGEST, Message

_TRIES = 1000  # lines of a log that a pattern is tried on
_WINDOW = 2000  # characters of a line that it is tried on
_COLOUR = re.compile(r"\x1b\[[0-9;:]*[mK]")
_REPEATED = re.compile(r" *\[repeated \d+x across cluster\].*")

# The nodes and ranks that lines begin with: Ray's (WorkerDict pid=4301, ip=10.0.0.2), NCCL's
# node1:4301:4399 [0] NCCL WARN, PyTorch's [rank3]: and [Rank 3], torchrun's rank      : 3 (local_rank: 3).
_RAY = re.compile(
    r"\((?:[\w.:<>-]+ )?pid=\w+(?:, ip=(?P<ip>[^\s,)]{1,64}))?\)|\(raylet(?:, ip=(?P<ip2>[^\s,)]{1,64}))?\)"
)
_NCCL = re.compile(r"([A-Za-z0-9][\w.-]{0,63}):\d+:\d+ \[\d+\] (?:\S+ \S+ )?NCCL ")
_RANK = re.compile(r"\[[Rr]ank ?(\d{1,6})\]|^\s*rank +: (\d{1,6}) ")
_TIME = re.compile(r"\b(?:\d{4}-)?(\d\d-\d\d)[ T_](\d\d:\d\d:\d\d)(?:[.,](\d{1,9}))?")


@dataclass(frozen=True)
class Failure:
    """A known message in a log.

    line: without colours. time: as in it, to compare; "" without one. node: a host or an address, "" if the
    line names none. position: of the line, in characters of the log.
    """

    message: Message
    source: str
    line: str
    time: str
    node: str
    rank: int | None
    position: int


def failures(table: Sequence[Message], logs: Iterable[tuple[str, str]]) -> list[Failure]:
    """Return the first failure of each message, the first of all in front; what follows comes last.

    logs: (source, text). Lines of slurmray itself are left out: one of them has the trainer's command.
    """
    found: dict[str, Failure] = {}
    for source, text in logs:
        cleaned = clean(text)
        for message in table:
            hits = list(_hits(message, source, cleaned))
            for hit in hits:
                known = found.get(message.name)
                if known is None or (hit.time and known.time and hit.time < known.time):
                    found[message.name] = hit
    each = list(found.values())
    if all(hit.time for hit in each):
        return sorted(each, key=lambda hit: (hit.message.is_follow_up, hit.time))
    return sorted(each, key=lambda hit: (hit.message.is_follow_up, hit.position))


def clean(text: str) -> str:
    """Return text without colours, each state of a progress bar on a line of its own."""
    if "\x1b" in text:
        text = _COLOUR.sub("", text)
    return text.replace("\r", "\n")


def _hits(message: Message, source: str, text: str) -> Iterator[Failure]:
    for literal in literals(message.pattern):
        position = text.find(literal)
        for _ in range(_TRIES):
            if position < 0:
                break
            begin, end = text.rfind("\n", 0, position) + 1, text.find("\n", position)
            end = len(text) if end < 0 else end
            line = text[begin:end]
            window = text[max(begin, position - _WINDOW // 2) : min(end, position + _WINDOW // 2)]
            if not line.startswith("[slurmray ") and re.search(message.pattern, window):
                line = _REPEATED.sub("", line)
                yield Failure(
                    message, source, line.strip()[:LONGEST], _time(line), _node(line), _rank(line), begin
                )
            position = text.find(literal, end)


def _time(line: str) -> str:
    found = _TIME.search(line[:LONGEST])
    return f"{found[1]} {found[2]}.{found[3] or ''}" if found else ""


def _node(line: str) -> str:
    if found := _RAY.match(line):
        return found["ip"] or found["ip2"] or ""
    found = _NCCL.search(line[:LONGEST])
    return found[1] if found else ""


def _rank(line: str) -> int | None:
    found = _RANK.search(line[:LONGEST])
    return int(found[1] or found[2]) if found else None


@functools.cache
def literals(pattern: str) -> tuple[str, ...]:
    """Return texts one of which is in each match of a pattern."""
    return _literals(re._parser.parse(pattern))  # type: ignore[attr-defined]


def _literals(items: Iterable[Any]) -> tuple[str, ...]:
    best: tuple[str, ...] = ("",)
    run = ""
    for kind, argument in [*items, (None, None)]:
        if str(kind) == "LITERAL":
            run += chr(argument)
            continue
        choices, run = [(run,)], ""
        if str(kind) == "SUBPATTERN":
            choices.append(_literals(argument[-1]))
        elif str(kind) == "BRANCH":
            choices.append(tuple(text for branch in argument[1] for text in _literals(branch)))
        elif str(kind) == "MAX_REPEAT" and argument[0] > 0:
            choices.append(_literals(argument[2]))
        best = max([best, *choices], key=lambda texts: min(map(len, texts)))
    return best
