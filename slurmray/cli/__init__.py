"""The command `slurmray`: one file per verb, imported when the verb is used, so that `--help` is quick."""

from __future__ import annotations

import difflib
import importlib
import os
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import cast

import click
from click.shell_completion import CompletionItem

from slurmray import __version__
from slurmray.errors import ExitCode, SlurmrayError, UsageError

# The command of a verb is the object of that name in the module slurmray.cli.VERB.
_VERBS = {
    "init": "Write an example as a job spec of your own.",
    "render": "Write the sbatch script of a job, or a task of dstack.",
    "rehearse": "Run a job's script on a real Slurm, booted on this one machine.",
    "verify": "Check whether scripts are as slurmray rendered them.",
    "explain": "Explain an exit code and what to do about it.",
    "schema": "Print the JSON Schema of the job spec.",
}
_WITH_COMMAND = ("render", "rehearse")
_IN_FOLDER = ("init", *_WITH_COMMAND)


class _LazyGroup(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        del ctx
        return list(_VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        del ctx
        if cmd_name not in _VERBS:
            return None
        module = importlib.import_module(f"slurmray.cli.{cmd_name}")
        return cast("click.Command", getattr(module, cmd_name))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name not in _VERBS and not name.startswith("-") and not ctx.resilient_parsing:
            close = difflib.get_close_matches(name, _VERBS, n=1)
            hint = f"did you mean {close[0]}?" if close else f"known are {', '.join(_VERBS)}"
            raise UsageError(f"slurmray: unknown command {name!r}, {hint}")
        return super().resolve_command(ctx, args)

    # Click's own ways to list and to complete import every verb.
    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl(list(_VERBS.items()))

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        verbs = [
            CompletionItem(name, help=text) for name, text in _VERBS.items() if name.startswith(incomplete)
        ]
        return verbs + click.Command.shell_complete(self, ctx, incomplete)


@click.group(cls=_LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, message="slurmray %(version)s")
def slurmray() -> None:
    """A Ray cluster in containers over several Slurm nodes.

    \b
      slurmray render --nodes 2                         the built-in check, on two nodes
      slurmray init verl --nodes 4                      a job spec to begin with, for verl
      slurmray render job.yaml -- python train.py       a job spec, and the trainer's command
      slurmray rehearse job.yaml                        try it here, without a cluster
    """


def split(argv: Sequence[str]) -> tuple[list[str], list[str]]:
    """Split a command line at the first `--` into slurmray's arguments and the trainer's command.

    Click would drop that `--` and take what follows it for arguments of its own.
    """
    if "--" not in argv:
        return list(argv), []
    at = list(argv).index("--")
    if at + 1 == len(argv):
        raise UsageError("slurmray: no command after --; leave out the -- too for the built-in check")
    return list(argv[:at]), list(argv[at + 1 :])


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command line (None: that of the process) and return the exit code.

    A verb finds the arguments after the first `--` in `ctx.obj`, a list of str.
    """
    try:
        own, entrypoint = split(sys.argv[1:] if argv is None else argv)
        if entrypoint and not own:
            raise UsageError(f"slurmray: a verb is missing before --: {' or '.join(_WITH_COMMAND)}")
        if entrypoint and own[0] in _VERBS and own[0] not in _WITH_COMMAND:
            raise UsageError(f"slurmray {own[0]}: takes no command: leave out -- and what follows it")
        _check_surroundings(own)
        code = slurmray.main(own or ["--help"], prog_name="slurmray", standalone_mode=False, obj=entrypoint)
        sys.stdout.flush()
    except SlurmrayError as error:
        click.echo(str(error), err=True)
        return error.exit_code
    except click.UsageError as error:
        # Not every error of Click's has the verb.
        parsed = ["slurmray", *(name for name in own[:1] if name in _VERBS)]
        path = error.ctx.command_path if error.ctx else " ".join(parsed)
        click.echo(f"{path}: {error.format_message()} (see {path} --help)", err=True)
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        return 130
    except Exception as error:
        return _failed(error)
    return code if isinstance(code, int) else 0


def _check_surroundings(argv: Sequence[str]) -> None:
    if sys.stdout is None:
        raise UsageError("standard output: is closed; send it to /dev/null where it is not wanted")
    if argv and argv[0] in _IN_FOLDER:
        try:
            Path.cwd()
        except OSError as error:
            raise UsageError(f"the current folder: {error.strerror}; cd to one that exists") from None


def _failed(error: Exception) -> int:
    """Report an error that no verb expects, and return the exit code."""
    if isinstance(error, OSError) and _is_of_stdout(error):
        # Python flushes at its end, and would fail once more.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):
            return 141  # the reader went away
        click.echo(f"standard output: {error.strerror}", err=True)
        return ExitCode.USAGE
    traceback.print_exception(error)
    click.echo("slurmray: this is a bug in slurmray; please report it with the lines above", err=True)
    return ExitCode.INTERNAL


def _is_of_stdout(error: OSError) -> bool:
    """Whether it comes from a write to standard output; the error itself names no file then."""
    *_, (frame, _) = traceback.walk_tb(error.__traceback__)
    return isinstance(error, BrokenPipeError) or frame.f_code in (main.__code__, click.echo.__code__)
