"""`slurmray explain`: explains an exit code, a state or a message, and what to do about it."""

from __future__ import annotations

import difflib
import re
from typing import NamedTuple

import click

from slurmray import files
from slurmray.cli.flags import completion, flag
from slurmray.cli.terminal import escaped, list_row, paragraph, print_json
from slurmray.diagnosis.causes import look_up_text
from slurmray.diagnosis.exit_codes import EXIT_CODES, look_up
from slurmray.diagnosis.final_states import STATES
from slurmray.errors import ExitCode, UsageError

_LAST = 4 << 20  # bytes of standard input
_SHOWN = 5  # messages in it
_LONGEST = 80  # characters of a text in an error
_WHOSE = (
    "The last line of the job's log shows whose code it is, because a trainer may use the same numbers: "
    "`done`, the trainer's; `failed`, slurmray's; `stopped by Slurm`, Slurm's. Without such a line, the "
    "batch script was killed before it could write one."
)


def _codes(ctx: click.Context) -> dict[str, str]:
    del ctx
    return {
        text: EXIT_CODES[code].meaning for code in ExitCode for text in (str(code.value), code.name.lower())
    }


# ignore_unknown_options: -1 is a wrong code, not an option.
@click.command(options_metavar="", context_settings={"ignore_unknown_options": True})
@click.argument("text", nargs=-1, metavar="[CODE | TEXT]", shell_complete=completion(_codes))
@flag("--json", "is_json", help="Print a JSON array: of each name, text, cause and fix.")
def explain(text: tuple[str, ...], *, is_json: bool) -> None:
    """Explain an exit code, a job's state or a line of a log: meaning, usual cause, and what to do.

    CODE is a number (71), a pair as sacct and scontrol show it (71:0 or 0:15), a name (node_lost), or a state
    (TIMEOUT). TEXT is a line with an error, or - for standard input; no job is needed. Without an argument,
    list slurmray's codes.

    \b
    Examples:
      slurmray explain 137
      slurmray explain "NCCL WARN Bootstrap : no socket interface found"
      tail -n 50 train.log | slurmray explain -
    """
    if not text:
        if is_json:
            print_json([_look_up(str(code.value))[0][0]._asdict() for code in ExitCode])
            return
        for code in ExitCode:
            list_row(f"{code.value:>3}  {code.name.lower():<10}  ", EXIT_CODES[code].meaning)
        click.echo()
        click.echo("All other codes are the trainer's; 128 + n means signal n.")
        paragraph(_WHOSE)
        return
    given = " ".join(text)
    if given == "-":
        try:
            given = files.read_end("-", _LAST).decode(errors="replace").strip()
        except OSError as error:
            raise UsageError(f"slurmray explain: stdin: {error.strerror}") from None
    entries, is_code = _look_up(given)
    if is_json:
        print_json([entry._asdict() for entry in entries])
        return
    for entry in entries:
        paragraph(": ".join(filter(None, (entry.name, escaped(entry.text)))))
        for label, words in (("cause", entry.cause), ("fix", entry.fix)):
            if words:
                paragraph(f"{label}: {words}")
    if is_code and entries[0].fix:
        paragraph(_WHOSE)


class _Entry(NamedTuple):
    """An explanation. name: of the code, the state or the message. text: what it means, or the line."""

    name: str
    text: str
    cause: str
    fix: str


def _look_up(text: str) -> tuple[list[_Entry], bool]:
    """Return what is known about a text, and whether that is an exit code. UsageError if it is nothing."""
    name = text.upper()
    if name in STATES:
        return [_Entry(name, STATES[name].meaning, STATES[name].cause, STATES[name].fix)], False
    if causes := look_up_text(text):
        return [_Entry(hit.name, hit.evidence, hit.cause, hit.fix) for hit in causes[:_SHOWN]], False
    code = (ExitCode[name], 0) if name in ExitCode.__members__ else _numbers(text)
    title, known = look_up(*code)
    return [_Entry(title, known.meaning, known.cause, known.fix)], True


def _numbers(text: str) -> tuple[int, int]:
    """Return exit code and signal of CODE or CODE:SIGNAL."""
    match = re.fullmatch("([0-9]{1,3})(?::([0-9]{1,3}))?", text)
    code, number = (int(part or 0) for part in match.groups()) if match else (-1, -1)
    if 0 <= code <= 255 and 0 <= number <= 127:
        return code, number
    if len(text.split()) != 1:
        line = next(iter(text.strip().splitlines()), "")[:_LONGEST]
        hint = "docs/reference/messages.md lists them"
        raise UsageError(f"slurmray explain: {line!r} has no message that slurmray knows; {hint}")
    names = [known.name.lower() for known in ExitCode]
    close = difflib.get_close_matches(text.lower(), [*names, *map(str.lower, STATES)], n=1)
    known_here = f"expected 0 to 255, CODE:SIGNAL, e.g. 0:15, or one of {', '.join(names)}"
    hint = f"did you mean {close[0]}?" if close else known_here
    raise UsageError(f"slurmray explain: {text!r} is not an exit code, {hint}")
