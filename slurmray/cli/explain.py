"""`slurmray explain`: explains an exit code and what to do about it."""

from __future__ import annotations

import difflib
import re

import click

from slurmray.cli.flags import completion
from slurmray.cli.terminal import paragraph
from slurmray.diagnosis.exit_codes import EXIT_CODES, look_up
from slurmray.diagnosis.states import STATES
from slurmray.errors import ExitCode, UsageError

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
@click.argument("code", required=False, metavar="[CODE]", shell_complete=completion(_codes))
def explain(code: str | None) -> None:
    """Explain an exit code or a job's state: its meaning, its usual cause, and what to do.

    CODE is a number (71), a pair as sacct and scontrol show it (71:0 or 0:15), a name (node_lost), or a state
    (TIMEOUT). Without CODE, list slurmray's codes.
    """
    if code is None:
        for each in ExitCode:
            click.echo(f"{each.value:>3}  {each.name.lower():<10}  {EXIT_CODES[each].meaning}")
        click.echo()
        click.echo("All other codes are the trainer's; 128 + n means signal n.")
        paragraph(_WHOSE)
        return
    name = code.upper()
    if name in STATES:
        title, known = name, STATES[name]
    else:
        title, known = look_up(ExitCode[name]) if name in ExitCode.__members__ else look_up(*_numbers(code))
    paragraph(f"{title}: {known.meaning}")
    for label, text in (("cause", known.cause), ("fix", known.fix)):
        if text:
            paragraph(f"{label}: {text}")
    if known.fix and title not in STATES:
        paragraph(_WHOSE)


def _numbers(text: str) -> tuple[int, int]:
    """Return exit code and signal of CODE or CODE:SIGNAL."""
    found = re.fullmatch("([0-9]{1,3})(?::([0-9]{1,3}))?", text)
    code, number = (int(part or 0) for part in found.groups()) if found else (-1, -1)
    if 0 <= code <= 255 and 0 <= number <= 127:
        return code, number
    names = [known.name.lower() for known in ExitCode]
    close = difflib.get_close_matches(text.lower(), [*names, *map(str.lower, STATES)], n=1)
    known_here = f"expected 0 to 255, CODE:SIGNAL, e.g. 0:15, or one of {', '.join(names)}"
    hint = f"did you mean {close[0]}?" if close else known_here
    raise UsageError(f"slurmray explain: {text!r} is not an exit code, {hint}")
