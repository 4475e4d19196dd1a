"""The types of the tables, and which message a short text has. Logs: see failures.py."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

LONGEST = 300  # characters of a line that are shown


@dataclass(frozen=True)
class Explanation:
    """A code or a state. meaning: a phrase. cause: the usual one, and fix: what to do; sentences or "".

    is_certain: whether nothing else than `cause` leads to it.
    """

    meaning: str
    cause: str = ""
    fix: str = ""
    is_certain: bool = False


@dataclass(frozen=True)
class Message:
    """A message of a program.

    name: of the entry, for programs; "" where none needs it. example: a line with it. source: what the words
    are from, e.g. a file of the program and its version, or a public thread. pattern: of the message, a regular
    expression. cause: what it means; "" if the message says it. fix: what to do; "" if nothing helps.
    hardware: what may be broken or full, so that another one would do. is_follow_up: another failure leads to
    it, often on another node.
    """

    name: str
    example: str
    source: str
    pattern: str
    cause: str
    fix: str
    hardware: Literal["gpu", "node", "network", "disk", "none"] = "none"
    is_follow_up: bool = False


def first(table: Sequence[Message], text: str) -> Message | None:
    """Return the first message of the table that a text has; None without one."""
    return next((message for message in table if re.search(message.pattern, text)), None)
