"""Words of bash, with the values of variables as far as they are certain."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal

Kind = Literal["text", "variable", "code"]

# Names of logs, e.g. train.log, log-$SLURM_JOB_ID.txt and $JOBLOG, and the ends of those that may be data.
_LOG = re.compile(r"(?i:(?<![a-z])logs?(?:file)?(?![a-z]))|LOG(?:FILE)?\}?$|\.(?:out|err)$")
_DATA = (".json", ".jsonl", ".yaml", ".yml", ".toml", ".ini", ".cfg", ".csv", ".py", ".sh")


@dataclass(frozen=True)
class Part:
    """A piece of a word. text: constant. variable: a name that the script does not set. code: other bash."""

    text: str
    kind: Kind = "text"
    is_quoted: bool = True


@dataclass(frozen=True)
class Word:
    """A word of a command. line: from 1. start, end: the bytes of the script that it is from.

    is_plain: written without expansions, so that it is the same for every shell.
    """

    parts: tuple[Part, ...]
    line: int
    start: int = -1
    end: int = -1
    is_plain: bool = False

    @property
    def constant(self) -> str | None:
        """The text; None if it is not certain."""
        is_text = all(part.kind == "text" for part in self.parts)
        return "".join(part.text for part in self.parts) if is_text else None

    @property
    def beginning(self) -> str:
        """The constant text with which the word begins."""
        length = next((n for n, part in enumerate(self.parts) if part.kind != "text"), len(self.parts))
        return "".join(part.text for part in self.parts[:length])

    @property
    def program(self) -> str:
        """The program that it starts, without folders, which may be variables; "" if that is not certain."""
        last = self.parts[-1] if self.parts else Part("")
        return last.text.rpartition("/")[2] if last.kind == "text" else ""

    @property
    def variables(self) -> list[str]:
        """Names of the variables that the script does not set."""
        return [part.text for part in self.parts if part.kind == "variable"]

    @property
    def path(self) -> str | None:
        """The text of a path in a job spec, whose variables each node expands; None if it has code."""
        if self.has("code"):
            return None
        text = "".join(
            part.text.replace("$", "$$") if part.kind == "text" else f"${{{part.text}}}"
            for part in self.parts
        )
        text = re.sub(r"^\$\{(?:PWD|SLURM_SUBMIT_DIR)\}(?=/|$)", ".", text)
        text = re.sub(r"^\$\{HOME\}(?=/|$)", "~", text)
        return re.sub(r"\$\{(\w+)\}(?!\w)", r"$\1", text)

    @property
    def absolute_path(self) -> str | None:
        """The same for a field that must be absolute."""
        path = self.path
        folder, slash, rest = (path or "").partition("/")
        starts = {"~": "$HOME", ".": "$SLURM_SUBMIT_DIR"}
        return f"{starts[folder]}{slash}{rest}" if folder in starts else path

    @property
    def bash(self) -> str:
        """The word as bash source, in double quotes if it is no constant."""
        if self.constant is not None:
            return shlex.quote(self.constant)
        pieces = [
            f"${{{part.text}}}"
            if part.kind == "variable"
            else part.text
            if part.kind == "code"
            else re.sub(r'(["\\$`])', r"\\\1", part.text)
            for part in self.parts
        ]
        return re.sub(r"(?<!\\)\$\{(\w+)\}(?!\w)", r"$\1", f'"{"".join(pieces)}"')

    def has(self, kind: Kind) -> bool:
        """Whether the word has a part of this kind."""
        return any(part.kind == kind for part in self.parts)

    def partition(self, separator: str) -> tuple[str, Word | None]:
        """Split at the first separator in the constant beginning; no second part if there is none."""
        before = ""
        for number, part in enumerate(self.parts):
            if part.kind != "text":
                break
            head, mark, tail = part.text.partition(separator)
            before += head
            if mark:
                return before, replace(self, parts=(replace(part, text=tail), *self.parts[number + 1 :]))
        return before, None

    def split(self, separator: str) -> list[Word]:
        """Split at every separator in constant parts."""
        words: list[list[Part]] = [[]]
        for part in self.parts:
            texts = part.text.split(separator) if part.kind == "text" else [part.text]
            words[-1].append(replace(part, text=texts[0]))
            words += [[replace(part, text=text)] for text in texts[1:]]
        return [Word(tuple(part for part in parts if part.text), self.line) for parts in words]


def constant(text: str, line: int) -> Word:
    """Return a word with a constant text."""
    return Word((Part(text),), line)


def bash_source(words: Iterable[Word]) -> str:
    """Return words as a command of bash."""
    return " ".join(word.bash for word in words)


def text_of(words: Iterable[Word]) -> str:
    """Return words as a text for patterns, with the values that are certain."""
    return " ".join("".join(part.text for part in word.parts) for word in words)


def is_log(word: Word) -> bool:
    """Whether a file that a command writes to is a log, or none: the job has its own. By its name alone."""
    text = "".join(part.text for part in word.parts)
    is_log_name = _LOG.search(text.rpartition("/")[2]) and not text.endswith(_DATA)
    return bool(is_log_name) or text.startswith("/dev/") or word.constant in ("1", "2")
