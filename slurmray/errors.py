"""Errors that users see, each with its exit code.

Code 2 is for wrong input on the submitter's machine, as in Click. 64 to 79 are for jobs and rehearsals that
fail for another reason than the trainer. A trainer may use the same numbers; the last line of the job's log
shows whose code it is.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum


class ExitCode(IntEnum):
    """slurmray's exit codes, documented by docs/reference/exit-codes.md and `slurmray explain`.

    meaning: one line. cause: the usual cause. fix: what to do, one or more sentences.
    """

    meaning: str
    cause: str
    fix: str

    USAGE = (
        2,
        "wrong command line or job spec; nothing was written",
        "A command or an option is misspelt, or the job spec has mistakes. In a job, 2 is the trainer's exit "
        "code: Python returns it for wrong arguments and for a missing script.",
        "Each line of the message names a place and what to write there.",
    )
    CONFIG = (
        64,
        "the job spec does not fit the allocation, the nodes or the submitter's environment",
        "The job got other nodes, CPUs or GPUs than the script was rendered for, a variable that `env` "
        "takes from you was not set, or the run directory could not be created.",
        "The last line of the log shows which, with the command that renders the script again, or the "
        "variable to export before sbatch.",
    )
    PREFLIGHT = (
        65,
        "a node lacks something: Python, runtime, GPUs, address, mount, temp folder; or `setup` failed",
        "A check on a node failed before Ray was started there, or `setup` did.",
        "The log names the node, what is wrong and what to do about it. If only that node is affected, "
        "exclude it: sbatch --exclude=NODE generated.sh.",
    )
    IMAGE = (
        66,
        "the image is missing, could not be pulled or built, or its python3 has no Ray",
        "The name is misspelt, the nodes cannot reach the registry or are not logged in to it, their disk "
        "is full, the build failed, or python3 (of the image or, without one, of `setup`) has no Ray.",
        "Try it on a node with your own account: podman pull IMAGE, or docker pull IMAGE. If the nodes "
        "cannot reach the registry, load the image there first: podman load -i FILE.",
    )
    BRING_UP = (
        67,
        "a container or Ray did not start on a node",
        "The runtime or Ray refused an option, a port that the spec fixes is taken, or the node has no "
        "memory or disk left.",
        "Read that node's last lines in the log. Set ray.port and ray.dashboard_port to "
        "auto, and try without container.args and Ray's args.",
    )
    PROBE = (
        68,
        "the cluster was not ready within ray.ready_timeout",
        "A node started too slowly, or cannot reach the head node: because of a firewall, or an address on "
        "the wrong interface.",
        "The log names the missing nodes and shows their last lines. Set network.interface to the one that "
        "connects the nodes, raise ray.ready_timeout, or exclude a bad node: sbatch --exclude=NODE "
        "generated.sh.",
    )
    PREPARE = (
        69,
        "a command of `prepare` failed",
        "It exited with another code than 0, e.g. because data or a model could not be downloaded.",
        "The log names the node and the command, and shows the node's last lines.",
    )
    SERVICE = (
        70,
        "a service was not ready in time, or ended",
        "It could not start, its port is taken, or it takes longer to load than ready.timeout.",
        "The log names the node and shows its last lines. Raise ready.timeout, or set restarts.",
    )
    NODE_LOST = (
        71,
        "a node was lost: no heartbeat, or its Ray or container died under the trainer",
        "Without a heartbeat, the host lost power or its network, or hangs. Otherwise Ray or the container "
        "was killed, by the kernel because memory ran out, or by somebody.",
        "The log names the node and shows its last lines. If `dmesg` on the node shows out of memory, raise "
        "slurm.mem, or let the trainer use less. Leave a bad node out: sbatch --exclude=NODE generated.sh.",
    )
    TIME_LIMIT = (
        72,
        "the trainer was stopped before the time limit or preemption",
        "The training takes longer than slurm.time.",
        "Raise slurm.time, or let the trainer write a checkpoint on stop.signal and resume from it in the "
        "next job. A trainer that then exits with 0 ends the job with 0.",
    )
    REHEARSAL = (
        73,
        "the rehearsal could not run on this machine",
        "A package is missing, or the kernel does not allow what the cluster needs.",
        "Run the command in the message, then rehearse again.",
    )
    INTERNAL = (
        79,
        "a defect of slurmray; please report it",
        "slurmray failed in a way that it does not expect.",
        "Report it with the script, the job's output, and logs/ and events.jsonl of the run directory. "
        "Check them for secrets first.",
    )

    def __new__(cls, value: int, meaning: str, cause: str, fix: str) -> ExitCode:
        """Create a member: an int with attributes."""
        member = int.__new__(cls, value)
        member._value_ = value
        member.meaning, member.cause, member.fix = meaning, cause, fix
        return member


class SlurmrayError(Exception):
    """Base of all errors for users. `str()` is the message to print."""

    exit_code: ExitCode = ExitCode.INTERNAL


@dataclass(frozen=True)
class Problem:
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
