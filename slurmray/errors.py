"""What can go wrong, each kind with its exit code.

Two ranges: 2 for bad input on the submitter's machine (Click's own code for it), and 64 to 79 for what a
job or a rehearsal ends with when the trainer is not the cause. A trainer may use these numbers too; the
last line of the job's log says whose code it is.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum


class ExitCode(IntEnum):
    """Exit codes that are ours; docs/reference/exit-codes.md and `slurmray explain` are made of these.

    meaning: one line. cause: what usually brings it about. remedy: what to do, a sentence or two.
    """

    meaning: str
    cause: str
    remedy: str

    USAGE = (
        2,
        "bad input to the command line; nothing was written",
        "A command or an option is misspelt, or the job spec has mistakes. In a job, 2 is the trainer's: "
        "Python returns it for wrong arguments and for a script that is not there.",
        "Each line of the message names a place and what belongs there.",
    )
    CONFIG = (
        64,
        "the job spec does not fit the allocation, the nodes or the submitter's environment",
        "The job got other nodes, CPUs or GPUs than the script was rendered for, a variable that `env` "
        "takes from you was not set, or the run directory could not be made.",
        "The last line of the log says which, and has the command that renders it again or the name to "
        "export before sbatch.",
    )
    PREFLIGHT = (
        65,
        "a node lacks something: Python, runtime, GPUs, address, mount, temp folder; or `setup` failed",
        "A check on a node failed before Ray was started there, or `setup` did.",
        "The log names the node, what is wrong and what to do about it. Where it is that node alone, leave "
        "it out: sbatch --exclude=NODE generated.sh.",
    )
    IMAGE = (
        66,
        "the image is missing, could not be pulled or built, or has no Ray, or python3 has none",
        "The name has a slip, the nodes cannot reach the registry or are not logged in to it, their disk "
        "is full, the build failed, or python3 of the image, or that of `setup`, has no Ray.",
        "Try it on a node, as yourself: podman pull IMAGE, or docker pull IMAGE. Where nodes have no way "
        "to the registry, load the image there first: podman load -i FILE.",
    )
    BRING_UP = (
        67,
        "a container or Ray did not start on a node",
        "The runtime or Ray refused an option, a port that the spec fixes is taken, or the node has no "
        "memory or disk left.",
        "Read the last lines of that node, which the log shows. Set ray.port and ray.dashboard_port to "
        "auto, and try without container.args and Ray's args.",
    )
    PROBE = (
        68,
        "the cluster was not ready within ray.ready_timeout",
        "A node came up too slowly, or cannot reach the head: a firewall, or an address on the wrong "
        "interface.",
        "The log names the missing nodes and shows their last lines. Set network.interface to the one that "
        "connects the nodes, raise ray.ready_timeout, or leave a bad node out: sbatch --exclude=NODE "
        "generated.sh.",
    )
    PREPARE = (
        69,
        "a command of `prepare` failed",
        "It ended with another code than 0; data or a model could not be made or fetched.",
        "The log names the node and the command, and shows the node's last lines.",
    )
    SERVICE = (
        70,
        "a service was not ready in time, or ended",
        "It could not start, its port is taken, or it takes longer to load than ready.timeout says.",
        "The log names the node and shows its last lines. Raise ready.timeout, or set restarts.",
    )
    NODE_LOST = (
        71,
        "a node was lost: no heartbeat, or its Ray or container died under the trainer",
        "Most often memory: the kernel killed Ray on that node. Else the host lost power or its network, "
        "or somebody removed the container.",
        "The log names the node and shows its last lines. Ask for more slurm.mem or let the trainer use "
        "less; leave a bad node out: sbatch --exclude=NODE generated.sh.",
    )
    TIME_LIMIT = (
        72,
        "the time limit, or preemption, was near and the trainer was stopped",
        "The training takes longer than slurm.time.",
        "Ask for more slurm.time, or let the trainer write a checkpoint at stop.signal and go on from it "
        "in the next job. A trainer that then exits with 0 by itself ends the job with 0.",
    )
    REHEARSAL = (
        73,
        "the rehearsal could not run on this machine",
        "A package is missing, or the kernel does not allow what the cluster needs.",
        "The message names the command that fixes it; there was no job.",
    )
    INTERNAL = (
        79,
        "a defect of slurmray; please report it",
        "Something that slurmray does not expect.",
        "Report it with the script, the job's output, and logs/ and events.jsonl of the run directory. "
        "Look through them for secrets first.",
    )

    def __new__(cls, value: int, meaning: str, cause: str, remedy: str) -> ExitCode:
        """Makes the member an int that carries its words."""
        member = int.__new__(cls, value)
        member._value_ = value
        member.meaning, member.cause, member.remedy = meaning, cause, remedy
        return member


class SlurmrayError(Exception):
    """Base of every error that a user may see. `str()` is the whole message, ready to print."""

    exit_code: ExitCode = ExitCode.INTERNAL


@dataclass(frozen=True)
class Problem:
    """One mistake in one place.

    where: `job.yaml:12:5`, `--set container.shm_size`, `--nodes`, or "" when there is no place.
    text: what is wrong and what to do, one line. path: to the field, of names and positions; its last part is
    `[key]` where the name itself is wrong.
    """

    where: str
    text: str
    path: tuple[str | int, ...] = ()

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


class SlurmError(SlurmrayError):
    """Slurm refuses, does not answer, or does not know the job; the message has its words and what to do."""

    exit_code = ExitCode.CONFIG


class RehearsalError(SlurmrayError):
    """This machine cannot run the rehearsal; the message names the one command that fixes it."""

    exit_code = ExitCode.REHEARSAL
