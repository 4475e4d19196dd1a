"""Options of command lines, in the forms of getopt_long, and tables of what they become in a job spec."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator
from operator import attrgetter
from typing import Any, NamedTuple, Protocol

from slurmray.importing.draft import Draft
from slurmray.importing.words import Word


class Option(NamedTuple):
    """An option. name: with its dashes. value: without parts for a flag. words: all of it, as written."""

    name: str
    value: Word
    words: tuple[Word, ...]

    @property
    def lines(self) -> list[int]:
        """The lines of the script that it is on."""
        return [word.line for word in self.words]

    @property
    def text(self) -> str | None:
        """The value; None for a flag, or if it is not certain."""
        return self.value.constant if self.value.parts else None

    @property
    def source(self) -> str:
        """The value, or its source in bash if it is not certain."""
        return self.text or self.value.bash

    @property
    def argument(self) -> str | None:
        """All of it as one argument; None if it is not certain."""
        if not self.value.parts:
            return self.name
        equals = "=" if self.name.startswith("--") else ""
        return None if self.text is None else f"{self.name}{equals}{self.text}"


class Target(Protocol):
    """What options are written to."""

    draft: Draft

    def set_in_container(self, name: str, value: Word | None, lines: list[int]) -> None:
        """Set a variable of programs in the container. value: None: that of the shell."""


Action = Callable[[Target, Option], None]
Read = Callable[[Option], Any]  # of the value; None if it is not certain
PATH: Read = attrgetter("value.path")
ABSOLUTE_PATH: Read = attrgetter("value.absolute_path")


class Table:
    """The options of a command.

    rows: names, separated by blanks, with = behind those that take a value; and what is done with them.
    flags: more names of options without a value. other: what is done with these, and with unknown ones.
    """

    def __init__(self, *rows: tuple[str, Action], flags: str = "", other: Action) -> None:
        named = [(name, action) for names, action in (*rows, (flags, other)) for name in names.split()]
        self.actions = {name.removesuffix("="): action for name, action in named}
        self.flags = {name for name, _ in named if not name.endswith("=")}
        self.other = other

    def split(self, words: list[Word]) -> tuple[list[Option], list[Word]]:
        """Split off the options before the first argument."""
        return split_options(words, self.flags, self.actions)

    def read(self, target: Target, options: list[Option]) -> None:
        """Act on options."""
        for option in options:
            self.actions.get(option.name, self.other)(target, option)


def skip(reason: str) -> Action:
    """Note that an option is not needed."""
    return lambda target, option: target.draft.skip(option.lines, reason)


def look(reason: str) -> Action:
    """Note that the user has to look at an option."""
    return lambda target, option: target.draft.look(option.lines, f"{option.name}: {reason}")


def field(path: str, read: Read = attrgetter("text"), write: Callable[..., object] = Draft.set) -> Action:
    """Set a field."""

    def set_field(target: Target, option: Option) -> None:
        value = read(option)
        if value == "":
            skip("it is empty")(target, option)
        elif value is None:
            look(f"its value is not certain: see {path}")(target, option)
        else:
            write(target.draft, path, value, option.lines)

    return set_field


def append(path: str, read: Read = attrgetter("argument")) -> Action:
    """Append to a list: the option itself, or what `read` returns."""
    return field(path, read, Draft.add)


def when(pattern: str, action: Action, otherwise: Action) -> Action:
    """Choose by whether a pattern matches the value, or its source if it is not certain."""
    return lambda target, option: (action if re.fullmatch(pattern, option.source) else otherwise)(
        target, option
    )


def split_options(
    words: list[Word], flags: Collection[str], known: Collection[str] = ()
) -> tuple[list[Option], list[Word]]:
    """Split off the options before the first argument.

    flags: those without a value. known: those that may be abbreviated, and take the next word in any case;
    others do so unless it is an option.
    """
    options: list[Option] = []
    rest = list(words)
    while rest and len(rest[0].beginning) > 1 and rest[0].beginning.startswith("-"):
        word = rest.pop(0)
        if word.constant == "--":
            break
        for name, attached in _names(word, flags, known):
            parts, value = [word], attached
            is_next = value is None and name not in flags and bool(rest)
            if is_next and (name in known or not rest[0].beginning.startswith("-")):
                value = rest.pop(0)
                parts.append(value)
            options.append(Option(name, value or Word((), word.line), tuple(parts)))
    return options, rest


def _names(word: Word, flags: Collection[str], known: Collection[str]) -> Iterator[tuple[str, Word | None]]:
    """Yield the options in a word, and what is attached: a long one, or short flags and one with a value."""
    text = word.beginning
    if text.startswith("--"):
        name, value = word.partition("=")
        full = [other for other in known if other.startswith(name)]
        yield name if name in known or len(full) != 1 else full[0], value
        return
    for index in range(1, len(text)):
        name, after = f"-{text[index]}", text[index + 1 :]
        if name in flags and not after.isdigit():  # srun -K1 has a value that may be left out
            yield name, None
            continue
        _, value = word.partition(text[: index + 1 + after.startswith("=")])  # docker takes -e=NAME, too
        yield name, value if value and value.constant != "" else None
        return
