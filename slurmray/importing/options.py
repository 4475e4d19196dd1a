"""Options of command lines, in the forms that getopt_long accepts."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from slurmray.importing.words import Word, constant


class Option(NamedTuple):
    """An option. name: with its dashes. value: None for a flag. words: all of it, as written."""

    name: str
    value: Word | None
    words: tuple[Word, ...]

    @property
    def lines(self) -> list[int]:
        """The lines of the script that it is on."""
        return [word.line for word in self.words]


def split_options(words: list[Word], flags: Collection[str]) -> tuple[list[Option], list[Word]]:
    """Split off the options before the first argument.

    flags: options without a value, long and short; all others take the next word if they have none.
    """
    options: list[Option] = []
    rest = list(words)
    while rest:
        word = rest[0]
        name, value = word.partition("=")
        if not name.startswith("-") or name == "-":
            break
        rest = rest[1:]
        if name == "--" and word.constant == "--":
            break
        if not name.startswith("--"):
            options += _split_short(word, rest, flags)
        elif value is not None or name in flags:
            options.append(Option(name, value, (word,)))
        else:
            options.append(_with_next(name, word, rest))
    return options, rest


def _with_next(name: str, word: Word, rest: list[Word]) -> Option:
    """Return an option whose value is the next word, if there is one, which is removed from the rest."""
    if not rest:
        return Option(name, None, (word,))
    value = rest.pop(0)
    return Option(name, value, (word, value))


def _split_short(word: Word, rest: list[Word], flags: Collection[str]) -> list[Option]:
    """Return the short options of a word: flags, and at its end one with a value, or with the next word."""
    text = word.beginning
    options: list[Option] = []
    for index in range(1, len(text)):
        name = f"-{text[index]}"
        if name in flags:
            options.append(Option(name, None, (word,)))
            if text[index + 1 :].isdigit():  # a value that may be left out, e.g. -K1 of srun
                break
            continue
        _, attached = word.partition(text[: index + 1])
        if attached is not None and attached.parts and attached.constant != "":
            if attached.beginning.startswith("="):  # docker accepts -e=NAME
                attached = attached.partition("=")[1]
            options.append(Option(name, attached, (word,)))
        else:
            options.append(_with_next(name, word, rest))
        break
    return options or [Option(text, None, (constant(text, word.line),))]
