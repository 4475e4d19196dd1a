"""Words of bash, expanded as far as the script itself has the values of its variables."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal

Kind = Literal["text", "variable", "code", "cluster"]

# Names of logs, e.g. train.log, log-$SLURM_JOB_ID.txt and $JOBLOG, and the ends of those that may be data.
_LOG = re.compile(r"(?i:(?<![a-z])logs?(?:file)?(?![a-z]))|LOG(?:FILE)?\}?$|\.(?:out|err)$")
_DATA = (".json", ".jsonl", ".yaml", ".yml", ".toml", ".ini", ".cfg", ".csv", ".py", ".sh")


@dataclass(frozen=True)
class Part:
    """A piece of a word.

    text: constant. variable: the name of a variable that the script does not set. code: bash whose value is
    only known when it runs. cluster: the same, about the cluster's nodes and addresses. with_breaks: the text
    with its continued lines, for a script in it.
    """

    text: str
    kind: Kind = "text"
    is_quoted: bool = True
    with_breaks: str = ""


@dataclass(frozen=True)
class Word:
    """A word of a command, after expansion. line: where it begins in the script, from 1."""

    parts: tuple[Part, ...]
    line: int

    @property
    def constant(self) -> str | None:
        """The text; None if it is only known when the script runs."""
        return "".join(part.text for part in self.parts) if self.has_only("text") else None

    @property
    def beginning(self) -> str:
        """The constant text with which the word begins."""
        length = next((n for n, part in enumerate(self.parts) if part.kind != "text"), len(self.parts))
        return "".join(part.text for part in self.parts[:length])

    @property
    def variables(self) -> list[str]:
        """Names of the variables that the script does not set."""
        return [part.text for part in self.parts if part.kind == "variable"]

    def is_variable(self, name: str) -> bool:
        """Whether the word is this variable, which the script does not set, and nothing else."""
        return [(part.kind, part.text) for part in self.parts if part.text] == [("variable", name)]

    @property
    def path(self) -> str | None:
        """The text of a path in a job spec, whose variables each node expands; None if it has code."""
        if not self.has_only("text", "variable"):
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
        if path is not None and (path == "~" or path.startswith("~/")):
            return "$HOME" + path[1:]
        return path

    @property
    def bash(self) -> str:
        """The word as bash source, quoted."""
        constant = self.constant
        if constant is not None:
            return shlex.quote(constant)
        text = "".join(
            f'"{text}"' if quoted and not re.fullmatch(r"[\w@%+=:,./-]+", text, re.ASCII) else text
            for text, quoted in self._pieces()
        )
        return re.sub(r"(?<!\\)\$\{(\w+)\}(?!\w)", r"$\1", text)

    @property
    def quoted(self) -> Word:
        """The same word where bash splits no value, as in an assignment."""
        return replace(self, parts=tuple(replace(part, is_quoted=True) for part in self.parts))

    def _pieces(self) -> list[tuple[str, bool]]:
        """Return pieces of bash source, and whether each goes between double quotes."""
        pieces: list[tuple[str, bool]] = []
        is_path = any(part.kind == "text" and part.text for part in self.parts)  # has no spaces, as it seems
        for part in self.parts:
            if part.kind == "text":
                piece = (re.sub(r'(["\\$`])', r"\\\1", part.text), True)
            else:
                source = f"${{{part.text}}}" if part.kind == "variable" else part.text
                piece = (source, part.is_quoted or (is_path and part.kind == "variable"))
            if pieces and pieces[-1][1] and piece[1]:
                pieces[-1] = (pieces[-1][0] + piece[0], True)
            elif piece[0]:
                pieces.append(piece)
        return pieces

    def has_only(self, *kinds: Kind) -> bool:
        """Whether the word has only parts of these kinds."""
        return all(part.kind in kinds for part in self.parts)

    def has(self, kind: Kind) -> bool:
        """Whether the word has a part of this kind."""
        return any(part.kind == kind for part in self.parts)

    @property
    def is_one_word(self) -> bool:
        """Whether bash makes one word of it, whatever its variables and commands have."""
        return all(part.kind == "text" or part.is_quoted for part in self.parts)

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


def is_log(word: Word) -> bool:
    """Whether a file that a command writes to is a log, or none: the job has its own. By its name alone."""
    text = "".join(part.text for part in word.parts)
    is_log_name = _LOG.search(text.rpartition("/")[2]) and not text.endswith(_DATA)
    return bool(is_log_name) or text.startswith("/dev/") or word.constant in ("1", "2")
