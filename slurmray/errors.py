"""Errors that users see, each with its exit code.

Code 2 is for wrong input on the submitter's machine, as in Click. 64 to 79 are for jobs and rehearsals that
fail for another reason than the trainer, 64 also for commands to which Slurm gives no answer or an error. A
trainer may use the same numbers; the last line of the job's log shows whose code it is.
"""

from __future__ import annotations

import re
from enum import IntEnum
from typing import Any, NamedTuple


class ExitCode(IntEnum):
    """slurmray's exit codes; diagnosis/exit_codes.py explains them."""

    USAGE = 2
    CONFIG = 64
    PREFLIGHT = 65
    IMAGE = 66
    BRING_UP = 67
    PROBE = 68
    PREPARE = 69
    SERVICE = 70
    NODE_LOST = 71
    TIME_LIMIT = 72
    REHEARSAL = 73
    STALLED = 74
    INTERNAL = 79


class SlurmrayError(Exception):
    """Base of all errors for users. `str()` is the message to print."""

    exit_code: ExitCode = ExitCode.INTERNAL


class Problem(NamedTuple):
    """One mistake in one place.

    where: `job.yaml:12:5`, `--set container.shm_size`, `--nodes`, or "" if there is none.
    text: cause and fix, one line. path: names and positions that lead to the field; its last part is `[key]`
    if the name of the field is wrong.
    """

    where: str
    text: str
    path: tuple[str | int, ...] = ()

    def __str__(self) -> str:
        return f"{self.where}: {self.text}" if self.where else self.text

    def as_dict(self) -> dict[str, Any]:
        """Return it for JSON. file: `stdin` or an option, if it is in none. line, column: None if unknown."""
        place = re.fullmatch(r"(.+):([0-9]+):([0-9]+)", self.where, re.DOTALL)
        file, line, column = place.groups() if place else (self.where, None, None)
        return {
            "file": file,
            "line": line and int(line),
            "column": column and int(column),
            "path": [part for part in self.path if part != "[key]"],
            "message": self.text,
        }


MAX_SHOWN = 20  # mistakes of a job spec in a message


class SpecError(SlurmrayError):
    """The job spec has mistakes: `problems` has all of them, `str()` one line for each of the first 20."""

    exit_code = ExitCode.USAGE

    def __init__(self, problems: list[Problem]):
        self.problems = problems
        lines = [str(problem) for problem in problems[:MAX_SHOWN]]
        if len(problems) > MAX_SHOWN:
            lines.append(f"and {len(problems) - MAX_SHOWN:,} more mistakes; correct these first")
        super().__init__("\n".join(lines))


class UsageError(SlurmrayError):
    """A command cannot do what the user wants, for example overwrite somebody's file."""

    exit_code = ExitCode.USAGE


class SlurmError(SlurmrayError):
    """Slurm refuses, does not answer, or does not know the job; the message has Slurm's, and a fix."""

    exit_code = ExitCode.CONFIG


class RehearsalError(SlurmrayError):
    """This machine cannot run the rehearsal; the message has one command that fixes it."""

    exit_code = ExitCode.REHEARSAL
