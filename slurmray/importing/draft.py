"""The job spec as far as it is known, and what became of each line of the script."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence, Sized
from dataclasses import dataclass, field
from typing import Any

from slurmray.importing.secrets import SECRET_VALUE, is_secret_name

Path = tuple[str, ...]

HIDDEN = "..."
_MAX_FIELDS = 2000
_MAX_SECRETS = 100
_MIN_SECRET = 6  # characters, below which a value is not looked for elsewhere
_LONG_SECRET = 12  # from which it is also looked for within a word


class TooLargeError(Exception):
    """The script has too many commands or fields, or its variables expand to too much text."""


@dataclass
class Notes:
    """What became of a line. became: fields. skipped, looks: reasons. remarks: what to know about a field."""

    became: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    looks: list[str] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)


@dataclass
class Draft:
    """Fields of a job spec, by path; and notes about lines."""

    fields: dict[Path, Any] = field(default_factory=dict)
    lines: dict[Path, set[int]] = field(default_factory=dict)
    notes: dict[int, Notes] = field(default_factory=dict)
    secrets: set[str] = field(default_factory=set)

    def set(self, path: str, value: Any, lines: Sequence[int]) -> bool:
        """Set a field. If it has another value already, keep that, and note that the user has to look."""
        key = tuple(path.split("."))
        if key in self.fields and self.fields[key] != value:
            before = next(iter(self._lines_below(key)), None)
            self.look(lines, f"another value of {path} than {f'in line {before}' if before else 'above'}")
            return False
        self.fields[key] = value
        self.became(path, lines, key)
        self._check_size(self.fields)
        return True

    def set_variable(self, name: str, value: str | None, lines: Sequence[int]) -> None:
        """Set a variable in `env`; the last value counts, as in bash."""
        key = ("env", name)
        if self.fields.get(key, value) != value:
            self.lines.pop(key, None)
        self.fields[key] = value
        self.became(f"env.{name}", lines, key)
        self._check_size(self.fields)

    def remove_variable(self, name: str) -> None:
        """Remove a variable from `env`."""
        self.fields.pop(("env", name), None)

    def add(self, path: str, item: Any, lines: Sequence[int]) -> None:
        """Append an item to a list, unless it is there."""
        key = tuple(path.split("."))
        items = self.fields.setdefault(key, [])
        if item not in items:
            items.append(item)
            self._check_size(items)
        self.became(path, lines, (*key, str(items.index(item))))

    def add_line(self, path: str, text: str, lines: Sequence[int]) -> None:
        """Append a line of bash to a text, unless it is there."""
        key = tuple(path.split("."))
        before = self.fields.get(key, "")
        if text not in before.split("\n"):
            self.fields[key] = f"{before}\n{text}" if before else text
        self.became(path, lines, key)

    def _check_size(self, items: Sized) -> None:
        if len(items) > _MAX_FIELDS:
            raise TooLargeError

    def get(self, path: str) -> Any:
        """Return the value of a field; None if it is not set."""
        return self.fields.get(tuple(path.split(".")))

    def became(self, name: str, lines: Sequence[int], key: Path = ()) -> None:
        """Note that lines became a field. key: of the field that is marked with them."""
        for line in lines:
            notes = self.notes.setdefault(line, Notes())
            if name not in notes.became:
                notes.became.append(name)
            if key:
                self.lines.setdefault(key, set()).add(line)

    def withdraw(self, path: str) -> list[int]:
        """Take back that lines became a field or part of it; return them."""
        lines = sorted(set(self._lines_below(tuple(path.split(".")))))
        for line in lines:
            self.notes[line].became = [name for name in self.notes[line].became if name != path]
        return lines

    def skip(self, lines: Sequence[int], reason: str) -> None:
        """Note that lines are not needed."""
        for line in lines:
            notes = self.notes.setdefault(line, Notes())
            if reason not in notes.skipped:
                notes.skipped.append(reason)

    def remark(self, line: int, text: str) -> None:
        """Note what to know about a line."""
        self.notes.setdefault(line, Notes()).remarks.append(text)

    def look(self, lines: Sequence[int], reason: str) -> None:
        """Note that the user has to look at lines."""
        for line in lines:
            notes = self.notes.setdefault(line, Notes())
            if reason not in notes.looks:
                notes.looks.append(reason)

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
        named = re.findall(r"[A-Za-z0-9_-]+", text)
        return (
            bool(SECRET_VALUE.search(text))
            or any(secret in text for secret in self.secrets)
            or any(is_secret_name(name) for name in named)
        )

    def hide_all(self) -> None:
        """Replace secrets in the values of all fields."""
        for key, value in self.fields.items():
            hidden = _map_texts(value, self.hide)
            if hidden != value:
                self.fields[key] = hidden
                self.look(
                    self._lines_below(key)[:1], f"a secret in {'.'.join(key)}, hidden: take it from env"
                )

    def _lines_below(self, key: Path) -> list[int]:
        return sorted(line for path, lines in self.lines.items() if path[: len(key)] == key for line in lines)

    def nested(self) -> dict[str, Any]:
        """Return the fields as a job spec."""
        spec: dict[str, Any] = {}
        for path, value in self.fields.items():
            here = spec
            for name in path[:-1]:
                here = here.setdefault(name, {})
            here[path[-1]] = value
        return spec


def _map_texts(value: Any, change: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return change(value)
    if isinstance(value, list):
        return [_map_texts(item, change) for item in value]
    if isinstance(value, dict):
        return {name: _map_texts(item, change) for name, item in value.items()}
    return value
