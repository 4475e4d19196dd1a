"""What several subcommands print: colours, paragraphs, lists and logs."""

from __future__ import annotations

import codecs
import json
import os
import re
import shutil
import sys
import textwrap
import unicodedata
from typing import Any

import click

from slurmray.errors import UsageError

_WIDTH = 100  # characters of a paragraph, on a wider terminal, too
_NARROWEST = 20  # characters of the last column of a list
REFRESH = 3.0  # seconds between two looks of --watch


# What a log may do to a terminal: colours, and to write its line again, as progress bars do.
_HARMLESS = re.compile(r"\x1b\[(?:[0-9;:]{0,64}m|[0-2]?K)|[\n\t\r]")
_MAY_GO_ON = re.compile(r"\x1b(?:\[[0-9;:]{0,64})?\Z")  # a part of such a sequence


def check_watch(subcommand: str, *, watch: bool, is_json: bool) -> None:
    """UsageError for --watch without a terminal, which it writes again and again, or with --json."""
    if watch and (is_json or not sys.stdout.isatty()):
        raise UsageError(f"slurmray {subcommand} --watch: is for a terminal; leave it out here")


def printable(text: str) -> str:
    """Return a line with escapes such as `\\x1b` for what would act on a terminal, or hide text on it."""
    return "".join(
        letter
        if letter.isprintable() or unicodedata.category(letter) == "Zs"
        else letter.encode("unicode_escape", "surrogatepass").decode()
        for letter in text
    )


def can_ask() -> bool:
    """Whether standard input is a terminal; it may be closed."""
    return sys.stdin is not None and sys.stdin.isatty()


def show(text: str, *, err: bool = False) -> None:
    """Print lines that others wrote parts of."""
    click.echo("\n".join(map(printable, text.split("\n"))), err=err)


def styled(text: str, color: str) -> str:
    """The text in a colour, if standard output is a terminal and NO_COLOR is not set."""
    has_color = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    return click.style(text, fg=color) if has_color else text


def paragraph(text: str) -> None:
    """Print a paragraph, in lines that the terminal does not break."""
    text = printable(" ".join(text.split()))
    width = min(_WIDTH, shutil.get_terminal_size().columns) if sys.stdout.isatty() else _WIDTH
    click.echo(
        textwrap.fill(text, width, subsequent_indent="  ", break_on_hyphens=False, break_long_words=False)
    )


def list_row(head: str, text: str) -> None:
    """Print a row of a list: its first columns, and a text in the last one, as wide as the terminal has room.

    head: may be coloured.
    """
    text = printable(text)
    column = len(click.unstyle(head))
    if sys.stdout.isatty():
        width = max(shutil.get_terminal_size().columns - column, _NARROWEST)
        lines = textwrap.wrap(text, width, break_on_hyphens=False, break_long_words=False)
        text = f"\n{' ' * column}".join(lines)
    click.echo(head + text)


def escaped(line: str) -> str:
    """A line of a log for a terminal: without colours, otherwise as `printable`."""
    return printable(re.sub(r"\x1b\[[0-9;]*m", "", line).expandtabs())


def print_json(value: Any) -> None:
    """Print a value as JSON, for programs."""
    text = json.dumps(value, ensure_ascii=False)
    click.echo("".join(letter if letter.isprintable() else json.dumps(letter)[1:-1] for letter in text))


def bounded(value: Any, most: int = 50, longest: int = 2000) -> Any:
    """Return a value for JSON as `escaped`, with the beginnings of texts, and of lists but those of lines."""
    if isinstance(value, str):
        return "\n".join(map(escaped, value[:longest].split("\n")))
    if isinstance(value, dict):
        return {bounded(name): bounded(item, 1000 if name == "lines" else 50) for name, item in value.items()}
    if not isinstance(value, list):
        return value
    return [*map(bounded, value[:most]), *[f"and {len(value) - most} more"] * (len(value) > most)]


class LogPrinter:
    """Prints a log that arrives in pieces: as it is or, on a terminal, with escapes for what would act on it.

    Colours and progress bars stay.
    """

    def __init__(self) -> None:
        self._rest = ""
        self._decode = codecs.getincrementaldecoder("utf-8")("backslashreplace").decode
        self._is_terminal = sys.stdout.isatty()

    def write(self, data: bytes) -> None:
        """Print a piece. Half a character, or half a sequence at its end, is printed with the next one."""
        if self._is_terminal:
            text = self._rest + self._decode(data)
            unfinished = _MAY_GO_ON.search(text)
            self._rest = unfinished[0] if unfinished else ""
            data = self._safe(text[: len(text) - len(self._rest)]).encode()
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()

    @staticmethod
    def _safe(text: str) -> str:
        parts, end = [], 0
        for match in _HARMLESS.finditer(text):
            parts += [printable(text[end : match.start()]), match[0]]
            end = match.end()
        return "".join([*parts, printable(text[end:])])
