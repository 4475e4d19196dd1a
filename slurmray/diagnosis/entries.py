"""The types of the tables, and which message a short text has. Logs: see failures.py."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

LONGEST = 300  # characters of a line that are shown


@dataclass(frozen=True)
class Explanation:
    """A code or a state."""

    meaning: str  # a phrase
    cause: str = ""  # the usual one, in sentences
    fix: str = ""  # what to do, in sentences
    is_certain: bool = False  # whether nothing else than `cause` leads to it


@dataclass(frozen=True)
class Message:
    """A message of a program."""

    name: str  # of the entry, for programs; "" where none needs it
    example: str  # a line with it
    source: str  # what the words are from, e.g. a file of the program and its version, or a public thread
    pattern: str  # of the message, a regular expression
    cause: str  # what it means; "" if the message says it
    fix: str  # what to do; "" if nothing helps
    # What may be broken or full, so that another one would do.
    hardware: Literal["gpu", "node", "network", "disk", "none"] = "none"
    is_follow_up: bool = False  # another failure leads to it, often on another node


def first(table: Sequence[Message], text: str) -> Message | None:
    """Return the first message of the table that a text has; None without one."""
    return next((message for message in table if re.search(message.pattern, text)), None)
