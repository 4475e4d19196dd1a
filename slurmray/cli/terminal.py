"""What several subcommands print: colours, paragraphs, and the job that an argument names."""

from __future__ import annotations

import codecs
import json
import os
import re
import shutil
import sys
import textwrap
import time
import unicodedata
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click

from slurmray import history
from slurmray.agent.combinations import describe
from slurmray.agent.job_log import counted
from slurmray.api import job_of
from slurmray.cli.flags import completion
from slurmray.errors import UsageError
from slurmray.slurm.follow import last_lines
from slurmray.slurm.states import FINAL
from slurmray.slurm.submitted_job import Job, Task

_F = TypeVar("_F", bound=Callable[..., object])

_WIDTH = 100  # characters of a paragraph, on a wider terminal, too
_NARROWEST = 20  # characters of the last column of a list
REFRESH = 3.0  # seconds between two looks of --watch


# What a log may do to a terminal: colours, and to write its line again, as progress bars do.
_HARMLESS = re.compile(r"\x1b\[(?:[0-9;:]{0,64}m|[0-2]?K)|[\n\t\r]")
_MAY_GO_ON = re.compile(r"\x1b(?:\[[0-9;:]{0,64})?\Z")  # a part of such a sequence


def check_watch(subcommand: str, *, watch: bool, is_json: bool) -> None:
    """UsageError for --watch without a terminal, which it writes again and again, or with --json."""
    if watch and (is_json or not sys.stdout.isatty()):
        raise UsageError(f"slurmray {subcommand} --watch: is for a terminal; leave it out here")


def printable(text: str) -> str:
    """Return a line with escapes such as `\\x1b` for what would act on a terminal, or hide text on it."""
    return "".join(
        letter
        if letter.isprintable() or unicodedata.category(letter) == "Zs"
        else letter.encode("unicode_escape", "surrogatepass").decode()
        for letter in text
    )


def can_ask() -> bool:
    """Whether standard input is a terminal; it may be closed."""
    return sys.stdin is not None and sys.stdin.isatty()


def show(text: str, *, err: bool = False) -> None:
    """Print lines that others wrote parts of."""
    click.echo("\n".join(map(printable, text.split("\n"))), err=err)


def styled(text: str, color: str) -> str:
    """The text in a colour, if standard output is a terminal and NO_COLOR is not set."""
    has_color = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    return click.style(text, fg=color) if has_color else text


def paragraph(text: str) -> None:
    """Print a paragraph, in lines that the terminal does not break."""
    text = printable(" ".join(text.split()))
    width = min(_WIDTH, shutil.get_terminal_size().columns) if sys.stdout.isatty() else _WIDTH
    click.echo(
        textwrap.fill(text, width, subsequent_indent="  ", break_on_hyphens=False, break_long_words=False)
    )


def list_row(head: str, text: str) -> None:
    """Print a row of a list: its first columns, and a text in the last one, as wide as the terminal has room.

    head: may be coloured.
    """
    text = printable(text)
    column = len(click.unstyle(head))
    if sys.stdout.isatty():
        width = max(shutil.get_terminal_size().columns - column, _NARROWEST)
        lines = textwrap.wrap(text, width, break_on_hyphens=False, break_long_words=False)
        text = f"\n{' ' * column}".join(lines)
    click.echo(head + text)


def escaped(line: str) -> str:
    """A line of a log for a terminal: without colours, otherwise as `printable`."""
    return printable(re.sub(r"\x1b\[[0-9;]*m", "", line).expandtabs())


def print_json(value: Any) -> None:
    """Print a value as JSON, for programs."""
    text = json.dumps(value, ensure_ascii=False)
    click.echo("".join(letter if letter.isprintable() else json.dumps(letter)[1:-1] for letter in text))


def bounded(value: Any, most: int = 50, longest: int = 2000) -> Any:
    """Return a value for JSON as `escaped`, with the beginnings of texts, and of lists but those of lines."""
    if isinstance(value, str):
        return "\n".join(map(escaped, value[:longest].split("\n")))
    if isinstance(value, dict):
        return {bounded(name): bounded(item, 1000 if name == "lines" else 50) for name, item in value.items()}
    if not isinstance(value, list):
        return value
    return [*map(bounded, value[:most]), *[f"and {len(value) - most} more"] * (len(value) > most)]


class LogPrinter:
    """Prints a log that arrives in pieces: as it is or, on a terminal, with escapes for what would act on it.

    Colours and progress bars stay.
    """

    def __init__(self) -> None:
        self._rest = ""
        self._decode = codecs.getincrementaldecoder("utf-8")("backslashreplace").decode
        self._is_terminal = sys.stdout.isatty()

    def write(self, data: bytes) -> None:
        """Print a piece. Half a character, or half a sequence at its end, is printed with the next one."""
        if self._is_terminal:
            text = self._rest + self._decode(data)
            unfinished = _MAY_GO_ON.search(text)
            self._rest = unfinished[0] if unfinished else ""
            data = self._safe(text[: len(text) - len(self._rest)]).encode()
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()

    @staticmethod
    def _safe(text: str) -> str:
        parts, end = [], 0
        for match in _HARMLESS.finditer(text):
            parts += [printable(text[end : match.start()]), match[0]]
            end = match.end()
        return "".join([*parts, printable(text[end:])])


def print_log(text: str, last: int | None = None) -> None:
    """Print a log, see LogPrinter. last: number of lines at its end; None: all."""
    sys.stdout.flush()
    LogPrinter().write(last_lines(text.encode(errors="surrogateescape"), last))


def show_tasks(
    job: Job, name: str, tasks: Sequence[Task], *, is_json: bool, only_failed: bool = False
) -> None:
    """Print the tasks of an array: how many are in each state, and all of them, or those that failed."""
    failed = {*FINAL} - {"COMPLETED"}
    shown = [task for task in tasks if not only_failed or task.state in failed]
    if is_json:
        print_json({"id": job.id, "name": name, "tasks": [task.as_dict() for task in shown]})
        return
    states = Counter(task.state for task in tasks)
    counts = ", ".join(f"{count} {state}" for state, count in states.items()) or "Slurm has forgotten it"
    show(f"job {job.id}{name and ' '}{name}: {counted(len(tasks), 'task')}: {counts}")
    rows = [[task.job.name, task.state, describe(task.parameters)] for task in shown]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for task, row in zip(shown, rows, strict=True):
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
        show(f"  {'  '.join([*cells, task.reason or task.text])}".rstrip())
    if shown:
        click.echo(
            f"one of them: slurmray {'why' if only_failed else 'status'} {shown[0].job.name}", err=True
        )


def job_argument(name: str | None) -> tuple[Job, history.Run]:
    """Return the job that an argument names: an id, a name, ARRAY_TASK, or None for the newest one."""
    of_task = re.fullmatch("([0-9]{1,10})_([0-9]{1,7})", name or "")
    job, task = (of_task[1], int(of_task[2])) if of_task else (name, None)
    run = history.find(job) or _unremembered_run(int(job or 0))
    return job_of(run, task), run


def _unremembered_run(number: int) -> history.Run:
    """A job, where jobs would be submitted from here."""
    from slurmray.loading import profile

    chosen = profile.choose(None)
    try:
        folder = profile.choose_folder(chosen)
    except OSError as error:
        raise UsageError(f"current folder: {error.strerror}; cd to a folder that exists") from None
    host = chosen.host if chosen else None
    return history.Run(number, "", None, str(folder), "", time.time(), 0, 0, host)


def _jobs(ctx: click.Context) -> dict[str, str]:
    """Ids and names of remembered jobs."""
    del ctx
    pairs = [
        pair for run in history.runs()[:200] for pair in ((str(run.id), run.name), (run.name, str(run.id)))
    ]
    return dict(reversed(pairs))


def _job_on_command_line(ctx: click.Context) -> Job:
    # While an option has no value yet, click leaves arguments before it unparsed.
    names = [*ctx.args, ctx.params.get("job")]
    return job_argument(names[0])[0]


def _nodes(ctx: click.Context) -> dict[str, str]:
    """Nodes in the run directory of the job on the command line."""
    starts = [event for event in _job_on_command_line(ctx).events() if event["event"] == "start"]
    return {node: "" for start in starts for node in [*start["nodes"], *start.get("spares", [])]}


complete_job = completion(_jobs)
complete_service = completion(lambda ctx: dict.fromkeys(_job_on_command_line(ctx).services(), ""))


def node_option(help_text: str) -> Callable[[_F], _F]:
    """Return the option for a node of the job."""
    return click.option("--node", metavar="NODE", help=help_text, shell_complete=completion(_nodes))
