"""The traceback at the end of a trainer's output. No I/O."""

from __future__ import annotations

import re

from slurmray.diagnosis.failures import clean, last_errors, prefix
from slurmray.diagnosis.slurm_errors import LINE

_HEADER = "Traceback (most recent call last):"
_LINKS = (
    "The above exception was the direct cause of the following exception:",
    "During handling of the above exception, another exception occurred:",
)
_OTHERS = (*_LINKS, "wandb: ", "srun: ", "slurmstepd: ")  # what is no part of a message
_STEPD = re.compile(f"^{LINE}")
# What kubectl logs --timestamps and others put in front of each line.
_TIME = re.compile(r"^\[?\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?\]? ")
_HEADERS, _LINES = 100, 400  # tracebacks that are looked at, and lines of each
_FRAMES, _OF_FRAME, _OF_MESSAGE = 5, 3, 4  # frames and lines that are shown


def last_traceback(text: str) -> list[str]:
    """Return the last traceback if no progress follows it: its last frames, and its message.

    Of a chain of exceptions, the first message comes before it. torchrun's own traceback is left out if there
    is another one. [] without one.
    """
    text = clean(text)
    lines = text[last_errors(text) :].splitlines()
    lines = [_TIME.sub("", _STEPD.sub("slurmstepd: ", line)) for line in lines]
    starts = [number for number, line in enumerate(lines) if line.endswith(_HEADER)][-_HEADERS:]
    blocks = [_of_process(lines, start) for start in starts]
    own = [number for number, block in enumerate(blocks) if "ChildFailedError" not in "\n".join(block)]
    if not blocks:
        return []
    number = (own or [len(blocks) - 1])[-1]
    return [*_first_message(blocks, number), *_shortened(blocks[number])]


def _of_process(lines: list[str], start: int) -> list[str]:
    """Return a traceback and what its process printed up to the next one, with the link to that."""
    before = lines[start].removesuffix(_HEADER)
    # Not in `Scheduler hit an exception: Traceback`.
    has_all = start + 1 < len(lines) and lines[start + 1].startswith(before)
    own = before if has_all else prefix(before)
    block = []
    for line in lines[start + 1 : start + _LINES]:
        if line.startswith("[slurmray ") or line == own + _HEADER:
            break
        if line.startswith(own) and (own or not prefix(line)):
            block.append(line[len(own) :])
    return block


def _first_message(blocks: list[list[str]], number: int) -> list[str]:
    """Return the message of the exception that led to the one of a traceback, and how; [] without one."""
    first = number
    while first and any(line in _LINKS for line in blocks[first - 1]):
        first -= 1
    if first == number:
        return []
    _, message = _parsed(blocks[first])
    return [*message[:1], next(line for line in blocks[first] if line in _LINKS)]


def _shortened(block: list[str]) -> list[str]:
    frames, message = _parsed(block)
    last = [line for frame in frames[-_FRAMES:] for line in frame[:_OF_FRAME]]
    return [_HEADER, *["  ..."] * (len(frames) > _FRAMES), *last, *message]


def _parsed(block: list[str]) -> tuple[list[list[str]], list[str]]:
    """Return the lines of each frame, and of the message; of Ray's tasks, those of the task's exception."""
    frames: list[list[str]] = []
    message: list[str] = []
    for line in block:
        if line.strip().startswith('File "'):
            frames.append([line])
            message = []
        elif line[:1].isspace() and frames and not message:
            frames[-1].append(line)
        elif line.strip() and not line.startswith(_OTHERS) and len(message) < _OF_MESSAGE:
            message.append(line)
        elif message:
            break
    return frames, message
