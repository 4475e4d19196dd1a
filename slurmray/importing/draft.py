"""The job spec as far as it is known, and what became of each line of the script."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from slurmray.importing.secrets import SECRET_VALUE, is_secret_name

Path = tuple[str, ...]

HIDDEN = "..."
_MAX_FIELDS = 2000  # with the items of lists
_MAX_SECRETS = 100
_MIN_SECRET = 6  # characters, below which a value is not looked for elsewhere
_LONG_SECRET = 12  # from which it is also looked for within a word


class TooLargeError(Exception):
    """The script has too many commands or fields, or its variables expand to too much text."""


@dataclass
class Notes:
    """About a line: why it, or a part of it, is not needed; why to look at it; and what to know about it."""

    skipped: list[str] = field(default_factory=list)
    looks: list[str] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)


@dataclass
class Draft:
    """Fields of a job spec, by path, and the lines that became them; and notes about lines."""

    fields: dict[Path, Any] = field(default_factory=dict)
    lines: dict[Path, set[int]] = field(default_factory=dict)
    notes: dict[int, Notes] = field(default_factory=dict)
    secrets: set[str] = field(default_factory=set)

    def get(self, path: str) -> Any:
        """Return the value of a field; None if it is not set."""
        return self.fields.get(_key(path))

    def set(self, path: str, value: Any, lines: Sequence[int]) -> bool:
        """Set a field. If it has another value already, keep that, and note that the user has to look."""
        if self.fields.setdefault(_key(path), value) != value:
            before = self._lines_below(_key(path))
            self.look(lines, f"another value of {path} than {f'in line {before[0]}' if before else 'above'}")
            return False
        self.became(path, lines)
        return True

    def set_variable(self, name: str, value: str | None, lines: Sequence[int]) -> None:
        """Set a variable in `env`; the last value counts, as in bash."""
        key = ("env", name)
        if self.fields.get(key, value) != value:
            self.skip(self.withdraw(f"env.{name}"), "set again below")
        self.fields[key] = value
        self.became(f"env.{name}", lines)

    def remove_variable(self, name: str) -> None:
        """Remove a variable from `env`, which the script has unset or now sets on each node."""
        if self.fields.pop(("env", name), self) is not self:
            self.skip(self.withdraw(f"env.{name}"), "set again or unset below")

    def add(self, path: str, item: Any, lines: Sequence[int]) -> None:
        """Append an item to a list, unless it is there."""
        items = self.fields.setdefault(_key(path), [])
        if item not in items:
            items.append(item)
        self.became(path, lines, (*_key(path), str(items.index(item))))

    def add_line(self, path: str, text: str, lines: Sequence[int]) -> None:
        """Append a line of bash to a text, unless it is there."""
        before = (self.get(path) or "").split("\n")
        if text not in before:
            self.fields[_key(path)] = "\n".join([*filter(None, before), text])
        self.became(path, lines)

    def became(self, path: str, lines: Sequence[int], key: Path = ()) -> None:
        """Note that lines became a field. key: of the item of it that they became."""
        self.lines.setdefault(key or _key(path), set()).update(lines)
        if len(self.lines) > _MAX_FIELDS:
            raise TooLargeError
        self._notes(lines)

    def withdraw(self, path: str) -> list[int]:
        """Take back that lines became a field or part of it; return them."""
        key, lines = _key(path), self._lines_below(_key(path))
        self.lines = {other: numbers for other, numbers in self.lines.items() if other[: len(key)] != key}
        return lines

    def skip(self, lines: Sequence[int], reason: str) -> None:
        """Note that lines are not needed."""
        for notes in self._notes(lines):
            notes.skipped += [reason] * (reason not in notes.skipped)

    def look(self, lines: Sequence[int], reason: str) -> None:
        """Note that the user has to look at lines."""
        for notes in self._notes(lines):
            notes.looks += [reason] * (reason not in notes.looks)

    def remark(self, line: int, text: str) -> None:
        """Note what to know about a line."""
        self._notes([line])[0].remarks.append(text)

    def _notes(self, lines: Sequence[int]) -> list[Notes]:
        return [self.notes.setdefault(line, Notes()) for line in lines]

    def _lines_below(self, key: Path) -> list[int]:
        return sorted({line for path in self.lines if path[: len(key)] == key for line in self.lines[path]})

    # Secrets.

    def is_secret(self, name: str, value: str | None) -> bool:
        """Whether a variable or option is a secret, by its name or value; remembers the value."""
        is_one = is_secret_name(name) or bool(value and SECRET_VALUE.search(value))
        if is_one and value:
            self.add_secret(value)
        return is_one

    def add_secret(self, value: str) -> None:
        """Remember a value that must not be written."""
        self.secrets.add(value)
        if len(self.secrets) > _MAX_SECRETS:
            raise TooLargeError

    def hide(self, text: str) -> str:
        """Return a text without the values of secrets."""
        text = SECRET_VALUE.sub(HIDDEN, text)
        known = [secret for secret in self.secrets if len(secret) >= _MIN_SECRET and secret in text]
        for secret in sorted(known, key=len, reverse=True):
            if len(secret) >= _LONG_SECRET:
                text = text.replace(secret, HIDDEN)
            else:
                text = re.sub(rf"(?<!\w){re.escape(secret)}(?!\w)", HIDDEN, text)
        return text

    def mentions_secret(self, text: str) -> bool:
        """Whether a line of the script may have a secret."""
        return (
            bool(SECRET_VALUE.search(text))
            or any(secret in text for secret in self.secrets)
            or any(map(is_secret_name, re.findall(r"[A-Za-z0-9_-]+", text)))
        )

    def hide_all(self) -> None:
        """Replace secrets in the values of all fields."""
        for key, value in self.fields.items():
            self.fields[key] = _map_texts(value, self.hide)
            if self.fields[key] != value:
                reason = f"a secret in {'.'.join(key)}, hidden: take it from env"
                self.look(self._lines_below(key)[:1], reason)


def _key(path: str) -> Path:
    return tuple(path.split("."))


def _map_texts(value: Any, change: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return change(value)
    if isinstance(value, list):
        return [_map_texts(item, change) for item in value]
    if isinstance(value, dict):
        return {name: _map_texts(item, change) for name, item in value.items()}
    return value
