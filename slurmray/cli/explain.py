"""`slurmray explain`: explains an exit code and what to do about it."""

from __future__ import annotations

import difflib
import re
import shlex
from signal import Signals
from typing import TYPE_CHECKING, NamedTuple

import click

from slurmray.cli.flags import completion
from slurmray.cli.terminal import paragraph
from slurmray.errors import ExitCode, UsageError

if TYPE_CHECKING:
    from slurmray.slurm.status import Status

_WHOSE = (
    "The last line of the job's log shows whose code it is, because a trainer may use the same numbers: "
    "`done`, the trainer's; `failed`, slurmray's; `stopped by Slurm`, Slurm's. Without such a line, the "
    "batch script was killed before it could write one."
)


class _Explanation(NamedTuple):
    meaning: str
    cause: str = ""
    fix: str = ""


# Codes of the trainer, by the conventions of bash and Python.
_TRAINER_CODES = {
    0: _Explanation("the trainer succeeded, if the state of the job in Slurm is COMPLETED"),
    1: _Explanation(
        "the trainer failed",
        "Python returns 1 after an uncaught exception.",
        "Read the traceback near the end of the job's log.",
    ),
    2: _Explanation(
        "the trainer refused its command line, or Python did not find the script",
        "Python and its argparse return 2 for wrong arguments, Python also for a missing script.",
        "Read the trainer's last lines, near the end of the job's log.",
    ),
    126: _Explanation(
        "the trainer's command was found, but could not be run",
        "The file is not executable, is a folder, or was built for another CPU architecture.",
        "Make it executable with chmod +x, or run it with its interpreter: run: [bash, FILE].",
    ),
    127: _Explanation(
        "the trainer's command was not found",
        "It is searched in the container's PATH and container.workdir. Programs of the host and of "
        "environment modules are not in the container.",
        "Install it in the image, or mount it and use its path in the container.",
    ),
}
_OTHER = _Explanation(
    "an exit code of the trainer",
    "The number has no meaning in Slurm, bash or slurmray.",
    "Read the trainer's last lines, near the end of the job's log.",
)

# Cause and fix of 128 + n, which usually means that signal n ended the trainer.
_CRASH = (
    "A crash in compiled code, e.g. an extension, CUDA, ROCm or NCCL.",
    "Read the trainer's last lines. Set env.PYTHONFAULTHANDLER to 1 to get a Python traceback.",
)
_TRAINER_SIGNALS = {
    "SIGKILL": (
        "Often the kernel, because memory ran out. Or the trainer still ran stop.grace seconds after "
        "stop.signal.",
        "If `dmesg` on the node or `sacct -j JOBID` shows out of memory, raise slurm.mem or let the trainer "
        "use less.",
    ),
    "SIGTERM": (
        "scancel, preemption or the time limit.",
        "`sacct -j JOBID --format=State,Elapsed,Timelimit` shows which. If it was the limit, raise "
        "slurm.time.",
    ),
    "SIGBUS": ("Often /dev/shm is full.", "Raise container.shm_size."),
    **dict.fromkeys(("SIGILL", "SIGABRT", "SIGFPE", "SIGSEGV"), _CRASH),
}

# 0:n of Slurm: the batch script was killed, or did not start. 53: as seen with Slurm 22.05. 125: SIG_OOM in
# Slurm's source.
_BATCH_SIGNALS = {
    9: _Explanation(
        "SIGKILL ended the batch script",
        "It still ran KillWait seconds after Slurm's SIGTERM, its node ran out of memory, or somebody sent "
        "SIGKILL, e.g. with scancel --signal=KILL --batch.",
        "`sacct -j JOBID --format=State,Elapsed,Timelimit` shows what Slurm did. The containers stop by "
        "themselves.",
    ),
    15: _Explanation(
        "SIGTERM ended the batch script",
        "scancel, preemption or the time limit, before the script could handle it.",
        "`sacct -j JOBID --format=State,Elapsed,Timelimit` shows which.",
    ),
    53: _Explanation(
        "Slurm could not start the batch script",
        "The folder of slurm.output or the submit folder does not exist on the head node, or you may not "
        "write there.",
        "Create that folder, on a file system that all nodes share, and submit again.",
    ),
    125: _Explanation(
        "the job used more memory than it has",
        "Slurm killed some of its processes because memory ran out.",
        "Raise slurm.mem, or let the trainer use less.",
    ),
}


# States of a job in squeue and sacct (man sacct, JOB STATE CODES).
_STATES = {
    "BOOT_FAIL": _Explanation("a node of the job could not boot", fix="Submit the job again."),
    "CANCELLED": _Explanation(
        "somebody cancelled the job, or Slurm did",
        "scancel, a dependency that cannot be met, or slurmray after the loss of the head node.",
        "The end of the job's log has the reason if it was slurmray; `sacct -j JOBID` shows who it was.",
    ),
    "COMPLETED": _Explanation("the job exited with 0"),
    "DEADLINE": _Explanation("the job could not end by slurm.deadline", fix="Set a later one."),
    "FAILED": _Explanation(
        "the job exited with another code than 0",
        "`sacct -j JOBID --format=ExitCode` shows the code.",
        "`slurmray why JOBID` shows what failed.",
    ),
    "NODE_FAIL": _Explanation(
        "Slurm lost a node of the job",
        "The node's slurmd did not answer for SlurmdTimeout: the host lost power or its network.",
        "Submit the job again, without the node: sbatch --exclude=NODE generated.sh. requeue.max restarts "
        "such jobs.",
    ),
    "OUT_OF_MEMORY": _Explanation(
        "a process of the job was killed because memory ran out",
        "The job used more than slurm.mem.",
        "Raise slurm.mem, or let the trainer use less.",
    ),
    "PREEMPTED": _Explanation(
        "another job took the nodes",
        "The partition or QOS of the other job has precedence.",
        "Let requeue.max restart the job, and the trainer resume from its checkpoint.",
    ),
    "TIMEOUT": _Explanation(
        "the job reached its time limit",
        "slurm.time is too short, or the trainer hangs.",
        "Raise slurm.time. stop.lead is the time in which the trainer can write a checkpoint before that.",
    ),
}


def _codes(ctx: click.Context) -> dict[str, str]:
    del ctx
    return {text: code.meaning for code in ExitCode for text in (str(code.value), code.name.lower())}


# ignore_unknown_options: -1 is a wrong code, not an option.
@click.command(options_metavar="", context_settings={"ignore_unknown_options": True})
@click.argument("code", required=False, metavar="[CODE]", shell_complete=completion(_codes))
def explain(code: str | None) -> None:
    """Explain an exit code or a job's state: its meaning, its usual cause, and what to do.

    CODE is a number (71), a pair as sacct and scontrol show it (71:0 or 0:15), a name (node_lost), or a state
    (TIMEOUT). Without CODE, list slurmray's codes.
    """
    if code is None:
        for known in ExitCode:
            click.echo(f"{known.value:>3}  {known.name.lower():<10}  {known.meaning}")
        click.echo()
        click.echo("All other codes are the trainer's; 128 + n means signal n.")
        paragraph(_WHOSE)
        return
    title, explanation = look_up(code)
    paragraph(f"{title}: {explanation.meaning}")
    if explanation.cause:
        paragraph(f"cause: {explanation.cause}")
    if explanation.fix:
        paragraph(f"fix: {explanation.fix}")
        if title not in _STATES:
            paragraph(_WHOSE)


def look_up(text: str) -> tuple[str, _Explanation]:
    """Return title and explanation of a code as the user typed it."""
    if text.upper() in ExitCode.__members__:
        return _ours(ExitCode[text.upper()])
    if text.upper() in _STATES:
        return text.upper(), _STATES[text.upper()]
    code, number = _numbers(text)
    if number and not code:
        ended = _Explanation(
            f"{_signal(number)} ended the batch script", fix="`sacct -j JOBID` shows the job's state."
        )
        return f"0:{number}", _BATCH_SIGNALS.get(number, ended)
    for known in ExitCode:
        if known == code:
            return _ours(known)
    return look_up_trainer(code)


def look_up_trainer(code: int) -> tuple[str, _Explanation]:
    """Return title and explanation of a code that is the trainer's."""
    if 128 < code <= 192:
        name = _signal(code - 128)
        cause, fix = _TRAINER_SIGNALS.get(name, ("This signal ended the trainer.", _OTHER.fix))
        return str(code), _Explanation(f"means {name} (128 + {code - 128})", cause, fix)
    return str(code), _TRAINER_CODES.get(code, _OTHER)


def about(text: str, status: Status, node: str, *, is_remembered: bool) -> str:
    """Return an explanation for a job: with its id, and with a command to copy that leaves a node out.

    node: "" if none is known. is_remembered: whether it was submitted with slurmray.
    """
    text = text.replace("JOBID", str(status.id))
    if not node:
        return text
    option = shlex.quote(f"--exclude={status.excluded + ',' if status.excluded else ''}{node}")
    command = f"sbatch {option} {shlex.quote(status.script) if status.script else 'generated.sh'}"
    if is_remembered and not status.script:
        command = f"slurmray submit ... {option}"
    return text.replace("sbatch --exclude=NODE generated.sh", command)


def _numbers(text: str) -> tuple[int, int]:
    """Return exit code and signal of CODE or CODE:SIGNAL."""
    found = re.fullmatch("([0-9]{1,3})(?::([0-9]{1,3}))?", text)
    code, number = (int(part or 0) for part in found.groups()) if found else (-1, -1)
    if 0 <= code <= 255 and 0 <= number <= 127:
        return code, number
    names = [known.name.lower() for known in ExitCode]
    close = difflib.get_close_matches(text.lower(), [*names, *map(str.lower, _STATES)], n=1)
    known_here = f"expected 0 to 255, CODE:SIGNAL, e.g. 0:15, or one of {', '.join(names)}"
    hint = f"did you mean {close[0]}?" if close else known_here
    raise UsageError(f"slurmray explain: {text!r} is not an exit code, {hint}")


def _ours(code: ExitCode) -> tuple[str, _Explanation]:
    return f"{code.value} {code.name.lower()}", _Explanation(code.meaning, code.cause, code.fix)


def _signal(number: int) -> str:
    try:
        return Signals(number).name
    except ValueError:
        return f"signal {number}"
