"""A command as the importer takes it apart, and a program that it leads to."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from slurmray.importing.reader import Command, Context, Reader
from slurmray.importing.words import Word, bash_source

_MAX_TEXT = 20_000  # characters


@dataclass(frozen=True)
class Call:
    """A command, or the rest of one behind e.g. srun. words: of it. command: all of it."""

    words: list[Word]
    command: Command
    context: Context
    reader: Reader

    @property
    def lines(self) -> list[int]:
        """Its lines."""
        is_end = self.words[-1] is self.command.words[-1]
        first = self.words[0].line
        last = self.command.last if is_end else self.words[-1].line
        return list(range(first, max(last, first) + 1))

    @property
    def program(self) -> str:
        """The name of its program, without folders; empty if it is only known when the script runs."""
        return (self.words[0].constant or "").rpartition("/")[2]

    @property
    def verb(self) -> str | None:
        """The first argument, e.g. a subcommand."""
        return self.words[1].constant if len(self.words) > 1 else None

    def rest(self, words: list[Word], context: Context | None = None) -> Call:
        """Return what it runs: the command of these words."""
        return replace(self, words=words, context=context or self.context)


@dataclass
class Program:
    """A command that is no part of starting Ray: a prepare step, a service or the trainer.

    ready: the readiness check. document, reads, writes: as in Command.
    """

    words: list[Word]
    lines: list[int]
    context: Context
    assignments: list[tuple[str, Word]]
    document: Word | None = None
    reads: Word | None = None
    writes: Word | None = None
    ready: dict[str, object] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """The beginning of the command line, for patterns."""
        return bash_source(self.words)[:_MAX_TEXT]
