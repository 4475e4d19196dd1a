"""`slurmray explain`: what an exit code means, and what to do about it."""

from __future__ import annotations

import difflib
import re
import textwrap
from signal import Signals
from typing import NamedTuple

import click

from slurmray.errors import ExitCode, UsageError

_WIDTH = 100
_WHOSE = (
    "The last line of the job's log says whose code it is: from trainer, from slurmray or from slurm; a "
    "trainer may use the same numbers. Without such a line the batch script was ended before it could say so."
)


class _Words(NamedTuple):
    meaning: str
    cause: str = ""
    remedy: str = ""


# The trainer's, where bash and Python have a custom.
_CODES = {
    0: _Words("the trainer ended well, if Slurm gives COMPLETED as the state of the job"),
    1: _Words(
        "the trainer failed",
        "Python returns 1 after an exception that nothing caught.",
        "Read the traceback near the end of the job's log.",
    ),
    126: _Words(
        "the trainer's command was found, but could not be run",
        "The file is not executable, is a folder, or is for another kind of processor.",
        "Make it executable with chmod +x, or name the program that reads it: run: [bash, FILE].",
    ),
    127: _Words(
        "the trainer's command was not found",
        "It is looked up in the container, in its PATH and from container.workdir; what the host has or a "
        "module loads is not there.",
        "Install it in the image, or mount it and name its path in the container.",
    ),
}
_OTHER = _Words(
    "a code of the trainer's own",
    "Slurm, bash and this version of slurmray give this number no meaning.",
    "Read what the trainer wrote last, just before the end of the job's log.",
)

# Cause and remedy of 128 + n: mostly the trainer was ended by signal n.
_CRASH = (
    "A crash in compiled code, as of an extension, of CUDA or ROCm, or of NCCL.",
    "Read what it wrote last. Set env.PYTHONFAULTHANDLER to 1 and Python says where it was.",
)
_TRAINER_SIGNALS = {
    "SIGKILL": (
        "Often the kernel, for want of memory; also a trainer that still ran stop.grace seconds after "
        "stop.signal.",
        "Where `dmesg` of the node or `sacct -j JOBID` tells of out of memory, ask for more slurm.mem or "
        "let the trainer use less.",
    ),
    "SIGTERM": (
        "scancel, preemption or the time limit.",
        "`sacct -j JOBID --format=State,Elapsed,Timelimit` says which; ask for more slurm.time where it "
        "was the limit.",
    ),
    "SIGBUS": ("Often /dev/shm is full.", "Raise container.shm_size."),
    **dict.fromkeys(("SIGILL", "SIGABRT", "SIGFPE", "SIGSEGV"), _CRASH),
}

# 0:n of Slurm: the batch script was ended, or never started. 53 was seen with Slurm 22.05 for both causes;
# 125 is SIG_OOM in Slurm's source.
_BATCH_SIGNALS = {
    9: _Words(
        "SIGKILL ended the batch script",
        "It had not ended KillWait seconds after Slurm's SIGTERM, or its node had no memory left.",
        "`sacct -j JOBID --format=State,Elapsed,Timelimit` says why. The containers end by themselves.",
    ),
    15: _Words(
        "SIGTERM ended the batch script",
        "scancel, preemption or the time limit, before the script had begun its work.",
        "`sacct -j JOBID --format=State,Elapsed,Timelimit` says which.",
    ),
    53: _Words(
        "Slurm could not start the batch script",
        "The folder of slurm.output, or the submit folder, is not there on the head node.",
        "Make that folder, on a file system that all nodes share, and submit again.",
    ),
    125: _Words(
        "the job used more memory than it has",
        "Slurm ended processes of it for want of memory.",
        "Ask for more slurm.mem, or let the trainer use less.",
    ),
}


# What begins with - is a code that there is not.
@click.command(options_metavar="", context_settings={"ignore_unknown_options": True})
@click.argument("code", required=False, metavar="[CODE]")
def explain(code: str | None) -> None:
    """Say what an exit code means, what usually brings it about, and what to do.

    CODE is a number, as 71, a pair as sacct and scontrol show it, as 71:0 or 0:15, or a name, as node_lost.
    Without it: the table of slurmray's own codes.
    """
    if code is None:
        for known in ExitCode:
            click.echo(f"{known.value:>3}  {known.name.lower():<10}  {known.meaning}")
        click.echo()
        click.echo("Other codes are the trainer's own; 128 + n stands for signal n.")
        _paragraph(_WHOSE)
        return
    title, words = _look_up(code)
    _paragraph(f"{title}: {words.meaning}")
    if words.cause:
        _paragraph(f"cause: {words.cause}")
    if words.remedy:
        _paragraph(f"remedy: {words.remedy}")
        _paragraph(_WHOSE)


def _look_up(text: str) -> tuple[str, _Words]:
    """Return the title and the words of a code as the user gave it."""
    if text.upper() in ExitCode.__members__:
        return _ours(ExitCode[text.upper()])
    code, number = _numbers(text)
    if number and not code:
        ended = _Words(f"{_signal(number)} ended the batch script", remedy="`sacct -j JOBID` has its state.")
        return f"0:{number}", _BATCH_SIGNALS.get(number, ended)
    for known in ExitCode:
        if known == code:
            return _ours(known)
    if 128 < code <= 192:
        name = _signal(code - 128)
        cause, remedy = _TRAINER_SIGNALS.get(name, ("The trainer was ended by that signal.", _OTHER.remedy))
        return str(code), _Words(f"stands for {name} (128 + {code - 128})", cause, remedy)
    return str(code), _CODES.get(code, _OTHER)


def _numbers(text: str) -> tuple[int, int]:
    """Return exit code and signal of CODE or CODE:SIGNAL."""
    found = re.fullmatch("([0-9]{1,3})(?::([0-9]{1,3}))?", text)
    code, number = (int(part or 0) for part in found.groups()) if found else (-1, -1)
    if 0 <= code <= 255 and 0 <= number <= 127:
        return code, number
    names = [known.name.lower() for known in ExitCode]
    close = difflib.get_close_matches(text.lower(), names, n=1)
    known_here = f"expected 0 to 255, CODE:SIGNAL as 0:15, or one of {', '.join(names)}"
    hint = f"did you mean {close[0]}?" if close else known_here
    raise UsageError(f"slurmray explain: {text!r} is no exit code, {hint}")


def _ours(code: ExitCode) -> tuple[str, _Words]:
    return f"{code.value} {code.name.lower()}", _Words(code.meaning, code.cause, code.remedy)


def _signal(number: int) -> str:
    try:
        return Signals(number).name
    except ValueError:
        return f"signal {number}"


def _paragraph(text: str) -> None:
    wrapped = textwrap.fill(
        text, _WIDTH, subsequent_indent="  ", break_on_hyphens=False, break_long_words=False
    )
    click.echo(wrapped)
