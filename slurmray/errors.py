"""What can go wrong, each kind with its exit code.

Two ranges: 2 for bad input on the submitter's machine (Click's own code for it), and 64 to 79 for what a
job or a rehearsal ends with when the trainer is not the cause. A trainer may use these numbers too; the
last line of the job's log says whose code it is.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum


class ExitCode(IntEnum):
    """Exit codes that are ours, each with its `meaning` in one line (the README's table says the same)."""

    meaning: str

    USAGE = 2, "bad input to the command line; nothing was written"
    CONFIG = 64, "the job spec does not fit the allocation, the nodes or the submitter's environment"
    PREFLIGHT = 65, "a node lacks something: runtime, GPUs, address, mount, temp folder"
    IMAGE = 66, "the image is missing, could not be pulled or built, or has no Ray"
    BRING_UP = 67, "a container or Ray did not start on a node"
    PROBE = 68, "the cluster was not whole before ray.ready_timeout"
    NODE_LOST = 71, "Ray, the container or the node died while the trainer ran"
    REHEARSAL = 73, "the rehearsal could not run on this machine"
    INTERNAL = 79, "a defect of slurmray; please report it"

    def __new__(cls, value: int, meaning: str) -> ExitCode:
        """Makes the member an int that carries its meaning."""
        member = int.__new__(cls, value)
        member._value_ = value
        member.meaning = meaning
        return member


class SlurmrayError(Exception):
    """Base of every error that a user may see. `str()` is the whole message, ready to print."""

    exit_code: ExitCode = ExitCode.INTERNAL


@dataclass(frozen=True)
class Problem:
    """One mistake in one place.

    where: `job.yaml:12:5`, `--set container.shm_size`, `--nodes`, or "" when there is no place.
    text: what is wrong and what to do, one line.
    """

    where: str
    text: str

    def __str__(self) -> str:
        return f"{self.where}: {self.text}" if self.where else self.text


class SpecError(SlurmrayError):
    """The job spec has mistakes; all of them are in `problems`, one line each in `str()`."""

    exit_code = ExitCode.USAGE

    def __init__(self, problems: list[Problem]):
        self.problems = problems
        super().__init__("\n".join(str(problem) for problem in problems))


class UsageError(SlurmrayError):
    """A command cannot do what was asked, for example overwrite somebody's file."""

    exit_code = ExitCode.USAGE


class RehearsalError(SlurmrayError):
    """This machine cannot run the rehearsal; the message names the one command that mends it."""

    exit_code = ExitCode.REHEARSAL
