"""Known messages in logs: which came first, on which node, of which rank. No I/O."""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from slurmray.diagnosis.entries import LONGEST, Message

_TRIES, _HITS = 1000, 20  # lines of a log that a pattern is tried on, and that are kept
_WINDOW = 2000  # characters of a line that it is tried on
_PLAIN = 15  # lines in a row that are about no error: what is before them did not end the trainer
_BEFORE = 8000  # characters before a line that may say where it is from

_COLOUR = re.compile(r"\x1b\[[0-9;:]{0,64}[mK]")
_REPEATED = re.compile(r"\[repeated \d+x across cluster\].*")

# What lines begin with: Ray's (WorkerDict pid=4301, ip=10.0.0.2), PyTorch's [rank3]:
_RAY = r"\((?:raylet|(?:[\w.:<>-]{1,200} )?pid=\w{1,32})(?:, ip=([^\s,()]{1,64}))?\)"
_PREFIX = re.compile(rf"(?:{_RAY} ?|\[rank\d+\]: ?)*")
_RAY_PREFIX = re.compile(_RAY)
_NCCL = re.compile(r"([A-Za-z0-9][\w.-]{0,63}):\d+:\d+ \[\d+\] (?:\S+ )*?NCCL ")
_RANK = re.compile(r"\[[Rr]ank ?(\d{1,6})\]|\brank +: (\d{1,6}) ")
# Of Ray, in an exception that a task or an actor raised: ray::WorkerDict.f() (pid=4301, ip=10.0.0.2, ...
_TASK = re.compile(r"\bray::[^\s()]{1,200}\(\) \(pid=\d+, ip=([^\s,()]{1,64})|^Traceback ", re.MULTILINE)
# Of torchrun: Root Cause (first observed failure): ... host, rank.
_ROOT_CAUSE = re.compile(
    r"Root Cause \(first observed failure\):\s.{0,300}?\bhost +: (\S{1,200})\s.{0,100}?\brank +: (\d{1,6}) ",
    re.DOTALL,
)
# Of NCCL's watchdog, Python's logging, vLLM, Ray, slurmstepd and torchrun; glog's E1126 18:00:00.123456.
_TIME = re.compile(
    r"(?:\b(?:\d{4}-)?(\d\d)-(\d\d)[ T_]|\b[IWEF](\d\d)(\d\d) )(\d\d:\d\d:\d\d(?:[.,]\d{1,9})?)"
)
_ABOUT_ERROR = re.compile(
    r"(?:Error|Exception|Warning|Failure)\b|\b(?:ERROR|WARN|WARNING|FATAL|CRITICAL)\b|\b[Ee]rror: |\b[Ff]ailed\b"
    r"|\b(?:[Tt]raceback|[Ff]atal|[Kk]illed|[Tt]erminat(?:e|ed|ing)|[Aa]bort(?:ed|ing)?|died|[Ww]atchdog)\b"
    r"|frame #|File \"|core dumped|SIG[A-Z]{3,4}|[Ee]xit ?code|[Tt]imed out|NCCL INFO|^\[slurmray |^\s(?!\s*\d+%)|^wandb: |^$"
)
# Not about an error, whatever else they say: progress as 1.2it/s or step 7, loss: 1.2; counts as failures: 0 or
# error=0.12. Each branch begins with a letter, which is five times as fast as with \b.
_PROGRESS = re.compile(
    r"it/s\b|s/it\b|%\||tep[s :=]{0,4}\d.{0,200}?[:=|] ?-?\d|poch[s :=]{0,4}\d.{0,200}?[:=|] ?-?\d"
    r"|iter[a-z :=]{0,20}\d.{0,200}?[:=|] ?-?\d|0(?<!\w0) (?:errors?|failures?|failed|warnings?)\b"
)
_COUNT = re.compile(
    r"(?:rrors?|ailed|ailures?|imed out|illed|borted)[ \w]{0,20}?[:= ] ?(?:0(?![\w.])|\d+\.\d+(?![\w.]))"
)
# Of a pattern: a quoted letter, what stands for any of several, a group, and what may be missing or repeated.
_QUOTED = re.compile(r"\\([^a-zA-Z0-9])")
_ANY = re.compile(r"\[\^?\]?[^\]]*\]|\\.|[.^$]")
_GROUP = re.compile(r"\([^()]*\)")
_REPEATED_LETTER = re.compile(r".(?:[*+?]|\{[\d,]+\})\??", re.DOTALL)
_PRIVATE = 0xE000  # of Unicode's private use area: stands for a quoted letter


@dataclass(frozen=True)
class Failure:
    """A known message in a log.

    node, rank: as the line says, the exception of a Ray task that it belongs to, or torchrun's summary.
    """

    message: Message
    source: str
    line: str  # without colours
    # A host or an address; "" without one. None where the line is about another node than the one that
    # printed it, and does not name it.
    node: str | None
    rank: int | None
    is_driver: bool  # whether Ray's prefix has no address: the line is from the driver's node
    is_last: bool  # whether only errors follow it, and no progress


def failures(table: Sequence[Message], logs: Iterable[tuple[str, str]]) -> list[Failure]:
    """Return each message once: those that follow from others at the end, before that those that are not last.

    Otherwise the order is that of time. logs: (source, text), the most important first. Lines of slurmray
    itself are left out: one of them has the trainer's command. Once there is a cause among the last errors of
    a log, only the last errors of further logs are looked at.
    """
    found: dict[Message, tuple[tuple[Any, ...], Failure]] = {}
    places: dict[Message, tuple[bool, bool, str, int, int]] = {}
    is_known = False
    for number, (source, whole) in enumerate(logs):
        text = clean(whole)
        last = last_errors(text)
        latest = ""
        root = _ROOT_CAUSE.search(text, last)
        hits = [hit for message in table for hit in _lines(message, text, last, len(text))]
        is_known = is_known or any(not message.is_follow_up for _, _, message in hits)
        if not is_known:
            hits += [hit for message in table for hit in itertools.islice(_lines(message, text, 0, last), 1)]
        for begin, end, message in sorted(hits, key=lambda hit: hit[0]):
            line, before = text[begin:end], text[max(0, begin - _BEFORE) : begin]
            own = _times(line[:LONGEST])[:1]
            latest = max([latest, *(own or _times(before[-_WINDOW:])[-1:])])
            time = own[0] if own else latest
            key = (message.is_follow_up, begin < last, time or "~" * (number > 0), number, begin)
            near = _near(before, root if begin >= last else None)
            failure = _failure(message, source, line, near, is_last=begin >= last)
            # Of lines about another node, the first that names it; their place is that of the first one.
            choice = (*key[:2], failure.node is None, *key[2:])
            if message not in found or choice < found[message][0]:
                found[message] = choice, failure
            places[message] = min(key, places.get(message, key))
    return [found[message][1] for message in sorted(places, key=places.__getitem__)]


def clean(text: str) -> str:
    """Return text without colours, with each state of a progress bar on a line of its own."""
    return (_COLOUR.sub("", text) if "\x1b" in text else text).replace("\r", "\n")


def last_errors(text: str) -> int:
    """Return where the errors at the end of a clean text begin: after lines in a row that are about none."""
    end = len(text)
    plain = 0
    while end > 0 and plain < _PLAIN:
        begin = text.rfind("\n", 0, end) + 1
        line = text[begin : min(end, begin + LONGEST)]
        line = line[len(prefix(line)) :]
        is_error = _ABOUT_ERROR.search(line) and not _PROGRESS.search(line) and not _COUNT.search(line)
        plain = 0 if is_error else plain + 1
        end = begin - 1
    return end + 1


def prefix(line: str) -> str:
    """Return what Ray and PyTorch put in front of a line."""
    match = _PREFIX.match(line, 0, LONGEST)
    return match[0] if match else ""


@functools.cache
def literals(pattern: str) -> tuple[str, ...]:
    """Return texts of which each match of a pattern has one: the longest outside of groups, of each branch."""
    text = _QUOTED.sub(lambda match: chr(_PRIVATE + ord(match[1])), pattern)
    text = _ANY.sub("\0", text)
    while text != (shorter := _GROUP.sub("\0", text)):
        text = shorter
    longest = [max(branch.split("\0"), key=len) for branch in _REPEATED_LETTER.sub("\0", text).split("|")]
    return tuple(
        re.sub("[\ue000-\ue0ff]", lambda match: chr(ord(match[0]) - _PRIVATE), literal) for literal in longest
    )


def _lines(message: Message, text: str, start: int, stop: int) -> Iterator[tuple[int, int, Message]]:
    """Yield begin and end of lines with a message, not all of very many; of a long line a part is looked at."""
    for literal in literals(message.pattern):
        position = text.find(literal, start, stop)
        hits = tries = 0
        while position >= 0 and hits < _HITS and tries < _TRIES:
            begin, end = text.rfind("\n", 0, position) + 1, text.find("\n", position)
            end = len(text) if end < 0 else end
            part = text[max(begin, position - _WINDOW) : min(end, position + _WINDOW)]
            if not text.startswith("[slurmray ", begin) and re.search(message.pattern, part):
                hits += 1
                yield begin, end, message
            tries += 1
            position = text.find(literal, end, stop)


def _failure(
    message: Message, source: str, line: str, near: tuple[str, int | None], *, is_last: bool
) -> Failure:
    start, pattern = line[:LONGEST], re.compile(message.pattern)
    ray, nccl, rank = _RAY_PREFIX.findall(prefix(start)), _NCCL.search(start), _RANK.search(start)
    node: str | None = max(ray, key=bool, default="") or (nccl[1] if nccl else near[0])
    number = int(rank[1] or rank[2]) if rank else near[1]
    is_drivers = bool(ray and not node)
    if "node" in pattern.groupindex:  # the line is about another node
        match = pattern.search(line, 0, _WINDOW)
        node, is_drivers = (match and match["node"]) or None, False
    return Failure(message, source, shown(line), node, number, is_drivers, is_last)


def shown(line: str) -> str:
    """Return a line of a clean text as it is shown: without Ray's marks of repetitions, and not too long."""
    return _REPEATED.sub("", line[:_WINDOW]).strip()[:LONGEST]


def _near(before: str, root: re.Match[str] | None) -> tuple[str, int | None]:
    """Return node and rank by the exception of a Ray task that a line belongs to, or by torchrun's summary.

    before: the text before the line. root: of the summary after it.
    """
    tasks = _TASK.findall(before)
    if tasks and tasks[-1]:
        return tasks[-1], None
    return (root[1], int(root[2])) if root else ("", None)


def _times(text: str) -> list[str]:
    """Return times in a text, to compare, without the year: vLLM leaves it out."""
    return ["".join(groups).replace(",", ".") for groups in _TIME.findall(text)]
