"""What the words of an entrypoint say, by Hydra's overrides or by flags, as far as it can be read.

Hydra: `key=value`, `+key=value`, `++key=value`, `~key` (hydra.cc, "Override grammar, basic"); flags: `--flag
value` and `--flag=value` (argparse). Of several the last one counts, for both.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass

_OVERRIDE = re.compile(r"(\+\+|\+|~)?([\w./@-]+)(?:=(.*))?", re.DOTALL)
_ENDS_COMMAND = re.compile(r"[;&|()<>]+")
_HASH_IN_WORD = re.compile(r"(?<=[^\s;&|()<>])#")  # begins no comment for bash, but one for shlex


@dataclass(frozen=True)
class Said:
    """One value. at: position of its word. text: None where it is only known when the job runs."""

    at: int
    text: str | None
    prefix: str = ""
    """`+`, `++` or `~`, as Hydra has them."""

    @property
    def number(self) -> int | None:
        """The value as a whole number, if it is one."""
        return whole(self.text)


@dataclass(frozen=True)
class Words:
    """The words of a command.

    open: words can be added to their end. listed: they stand in the spec one by one, so that a message can
    name the place of one.
    """

    words: tuple[str, ...] = ()
    open: bool = False
    listed: bool = False

    def override(self, key: str) -> Said | None:
        """Return what Hydra is told about a key."""
        for at, word in reversed(list(enumerate(self.words))):
            found = _OVERRIDE.fullmatch(word)
            if found and found[2] == key and (found[3] is not None or found[1]):
                return Said(at, _static(found[3]), found[1] or "")
        return None

    def below(self, key: str) -> list[tuple[str, Said]]:
        """Return what Hydra is told about the keys below a key, with their names, in order."""
        found = {}
        for word in self.words:
            name = word.lstrip("+~").partition("=")[0]
            if name.startswith(f"{key}.") and (said := self.override(name)):
                found[name.removeprefix(f"{key}.")] = said
        return list(found.items())

    def flag(self, *names: str) -> Said | None:
        """Return the value of a flag with one of these names; a switch has the next word as its value."""
        for at, word in reversed(list(enumerate(self.words))):
            name, equals, value = word.partition("=")
            if name in names:
                following = self.words[at + 1] if at + 1 < len(self.words) else ""
                return Said(at, _static(value if equals else following))
        return None


def read_words(run: Sequence[str] | str | None) -> Words:
    """Return the words of an entrypoint; of a text for bash those of its one command that runs Python."""
    if run is None:
        return Words()
    if isinstance(run, str):
        return Words(_of_text(run))
    if len(run) > 2 and run[0].rpartition("/")[2] in ("bash", "sh") and re.fullmatch("-[a-z]*c", run[1]):
        return Words(_of_text(run[2]))
    return Words(tuple(run), open=_is_python(run), listed=True)


def whole(value: object) -> int | None:
    """Return the whole number that a text is; None for all else, and for numbers that no cluster has."""
    return int(value) if isinstance(value, str) and re.fullmatch("[+]?[0-9]{1,9}", value) else None


def _static(value: str | None) -> str | None:
    return None if value is None or re.search(r"[$`]", value) else value


def _is_python(words: Sequence[str]) -> bool:
    return any(word == "-m" or word.endswith(".py") for word in words)


def _of_text(text: str) -> tuple[str, ...]:
    """Return none if there are several, or if bash would make more words of it than are written there."""
    if re.search(r"`|\$\(|<<", text):
        return ()
    found = []
    for line in text.replace("\\\n", " ").splitlines():
        lexer = shlex.shlex(_HASH_IN_WORD.sub("\0", line), posix=True, punctuation_chars=True)
        lexer.whitespace_split = True
        command: list[str] = []
        try:
            for word in [*lexer, ";"]:
                if not _ENDS_COMMAND.fullmatch(word):
                    command.append(word.replace("\0", "#"))
                    continue
                if _is_python(command):
                    found.append(tuple(command))
                command = []
        except ValueError:  # a quote that ends in another line
            return ()
    if len(found) != 1 or any(word.startswith("$") and not word.endswith(".py") for word in found[0]):
        return ()
    return found[0]
