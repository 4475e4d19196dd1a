"""The command `slurmray`: one module per subcommand, imported on use, so that `--help` is quick.

For the same reason, what is slow to import or seldom needed is imported in functions.
"""

from __future__ import annotations

import importlib
import os
import re
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

import click

from slurmray._version import __version__
from slurmray.errors import ExitCode, SlurmrayError, UsageError

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

# Subcommand NAME is the object NAME in the module slurmray.cli.NAME; see get_command for `list`.
_SUBCOMMANDS = {
    "init": "Write a job spec, from an example or from your own script.",
    "render": "Write the sbatch script of a job, or a dstack task.",
    "check": "Check a job, and ask Slurm when it could start.",
    "submit": "Render a job and submit it with sbatch.",
    "up": "Start a Ray cluster without a trainer, for notebooks and debugging.",
    "doctor": "Show what jobs need on this cluster, and check its nodes.",
    "list": "List your jobs.",
    "status": "Show where a job stands, and how long each step took.",
    "report": "Write a page about a job: bring-up of each node, findings, failures, settings.",
    "logs": "Print the log of a job, a node or a service.",
    "fetch": "Copy a job's log and files from the cluster to this computer.",
    "attach": "Open a shell in a container of a running job, or run a command there.",
    "dashboard": "Open Ray's dashboard of a running job.",
    "why": "Say what ended a job, and what to do about it.",
    "cancel": "Cancel a job.",
    "clean": "Remove old run directories, or leftovers on nodes.",
    "rehearse": "Run a job on a real Slurm that is started on this machine.",
    "verify": "Check whether scripts were edited after rendering.",
    "explain": "Explain an exit code and what to do about it.",
    "config": "Show the fields that a profile sets, and where.",
    "schema": "Print the JSON Schema of the job spec.",
    "mcp": "Serve agents and other programs over MCP.",
}
# What other programs call them.
_OTHER_NAMES = {
    **dict.fromkeys(("run", "start", "launch", "sbatch"), "submit"),
    **dict.fromkeys(("stop", "kill", "down", "delete", "scancel"), "cancel"),
    **dict.fromkeys(("ls", "ps", "jobs", "queue", "squeue"), "list"),
    **dict.fromkeys(("exec", "shell", "ssh", "connect"), "attach"),
    **dict.fromkeys(("validate", "lint", "test"), "check"),
    **dict.fromkeys(("new", "create"), "init"),
    **{"tail": "logs", "show": "status", "info": "doctor", "version": "--version"},
}
# Options of other programs, and what to use here; sbatch's short forms of options that a job cannot have.
_OTHER_OPTIONS = {
    "--tail": "use -n",
    **dict.fromkeys(("--cluster", "--host"), "use --profile, with the host in that profile"),
}
_RESERVED_SHORT = {"-D": "chdir", "-G": "gpus", "-n": "ntasks"}
_TAKES_TRAINER = ("render", "check", "submit", "rehearse")
_TAKES_COMMAND = (*_TAKES_TRAINER, "attach")
_TAKES_ARGUMENTS = (*_TAKES_COMMAND, "init")
_COMMAND_TEXT = f"{', '.join(_TAKES_COMMAND[:-1])} or {_TAKES_COMMAND[-1]}"
_NEEDS_CURRENT_FOLDER = ("init", "up", "doctor", "config", "mcp", *_TAKES_TRAINER)


class _LazyGroup(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        del ctx
        return list(_SUBCOMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        del ctx
        if cmd_name not in _SUBCOMMANDS:
            return None
        name = "list_jobs" if cmd_name == "list" else cmd_name  # here `list` is Python's
        return cast("click.Command", getattr(importlib.import_module(f"slurmray.cli.{name}"), name))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name == "help" and not ctx.resilient_parsing:
            args = [*args[1:2], "--help"]
            name = args[0]
        if name == "completion":
            raise UsageError("slurmray: slurmray --help has the line for your shell")
        if name not in _SUBCOMMANDS and not name.startswith("-") and not ctx.resilient_parsing:
            import difflib

            close = difflib.get_close_matches(name, _SUBCOMMANDS, n=1)
            meant = _OTHER_NAMES.get(name) or "".join(close)
            if name.endswith((".yaml", ".yml")):
                meant = f"submit {name}"
            hint = f"did you mean {meant}?" if meant else f"known are {', '.join(_SUBCOMMANDS)}"
            raise UsageError(f"slurmray: unknown command {name!r}, {hint}")
        return super().resolve_command(ctx, args)

    # The next two: click's own would import every subcommand.
    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl(list(_SUBCOMMANDS.items()))

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        from click.shell_completion import CompletionItem

        names = [
            CompletionItem(name, help=help_text)
            for name, help_text in _SUBCOMMANDS.items()
            if name.startswith(incomplete)
        ]
        return names + click.Command.shell_complete(self, ctx, incomplete)


@click.group(cls=_LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, message="slurmray %(version)s")
def slurmray() -> None:
    """Start Ray clusters in containers on Slurm nodes, from one sbatch script.

    \b
      slurmray render --nodes 2                         the built-in check, on two nodes
      slurmray init verl --nodes 4                      a job spec to start from, for verl
      slurmray render job.yaml -- python train.py       a job spec, and the trainer's command
      slurmray submit job.yaml --follow                 submit it, and show its log until it ends
      slurmray status                                   where the last job stands
      slurmray rehearse job.yaml                        try it on this machine, without a cluster

    \b
    Tab completion, for ~/.bashrc, ~/.zshrc or ~/.config/fish/config.fish:
      bash    eval "$(_SLURMRAY_COMPLETE=bash_source slurmray)"
      zsh     eval "$(_SLURMRAY_COMPLETE=zsh_source slurmray)"
      fish    _SLURMRAY_COMPLETE=fish_source slurmray | source
    """


def split(argv: Sequence[str]) -> tuple[list[str], list[str]]:
    """Split a command line at the first `--` into slurmray's arguments and the trainer's command.

    Click would drop the `--` and parse the trainer's command as its own arguments.
    """
    if "--" not in argv:
        return list(argv), []
    position = list(argv).index("--")
    if position + 1 == len(argv):
        without = "a shell" if argv[0] == "attach" else "the built-in check"
        raise UsageError(f"slurmray: no command after --; for {without}, leave out the --")
    return list(argv[:position]), list(argv[position + 1 :])


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command line (None: sys.argv) and return the exit code.

    Subcommands get the arguments after the first `--` in `ctx.obj`, a list of str.
    """
    try:
        own, trainer = split(sys.argv[1:] if argv is None else argv)
        if trainer and not own:
            raise UsageError(f"slurmray: no subcommand before --; use {_COMMAND_TEXT}")
        if trainer and own[0] in _SUBCOMMANDS and own[0] not in _TAKES_ARGUMENTS:
            raise UsageError(f"slurmray {own[0]}: takes no command; leave out -- and everything after it")
        _check_stdout_and_folder(own)
        code = slurmray.main(own or ["--help"], prog_name="slurmray", standalone_mode=False, obj=trainer)
        sys.stdout.flush()
    except SlurmrayError as error:
        from slurmray.cli.terminal import show

        show(str(error), err=True)
        return error.exit_code
    except click.UsageError as error:
        # Some of click's errors have no context.
        parsed = ["slurmray", *(name for name in own[:1] if name in _SUBCOMMANDS)]
        path = error.ctx.command_path if error.ctx else " ".join(parsed)
        message = _explain_option(error) or f"{error.format_message()} (see {path} --help)"
        message += _hint(message, own) if not trainer else ""
        click.echo(f"{path}: {message}", err=True)
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        return 130
    except Exception as error:
        return _report(error)
    return code if isinstance(code, int) else 0


def _explain_option(error: click.UsageError) -> str:
    """What to use in place of an option of sbatch that slurmray sets itself; "" for another error."""
    from slurmray.slurm.syntax import RESERVED

    name = error.option_name if isinstance(error, click.NoSuchOption) else ""
    instead = _OTHER_OPTIONS.get(name) or RESERVED.get(_RESERVED_SHORT.get(name, name.removeprefix("--")))
    return f"{name}: {instead}" if instead else ""


def _hint(message: str, argv: Sequence[str]) -> str:
    """What an unknown argument or option of a command line may be; "" if that is not known."""
    if argv[0].startswith("-"):
        return "; options of a subcommand go after its name"
    is_extra = "extra argument" in message
    takes_trainer = argv[0] in _TAKES_TRAINER
    if takes_trainer and "No such option" in message and any(re.search(r"\.ya?ml$", arg) for arg in argv):
        return "; an option of the trainer goes into run of the job spec"
    if argv[0] not in _TAKES_COMMAND or not (
        is_extra or any(re.search(r"\.py$|^python[0-9.]*$", arg) for arg in argv)
    ):
        return ""
    if is_extra and re.search(r"argument \(\S+\.ya?ml\)", message):
        return f"; slurmray {argv[0]} takes one job spec"
    if is_extra and re.search(r"argument \([\w.]+=\S*\)", message):
        return "; a field is set with --set PATH=VALUE"
    whose = "a" if argv[0] == "attach" else "the trainer's"
    return f"; if it is of {whose} command, put -- before that command"


def _check_stdout_and_folder(argv: Sequence[str]) -> None:
    if sys.stdout is None:
        raise UsageError("standard output is closed; redirect it to /dev/null if you do not want it")
    if argv and argv[0] in _NEEDS_CURRENT_FOLDER:
        try:
            os.getcwd()  # noqa: PTH109 - pathlib is slow to import
        except OSError as error:
            raise UsageError(f"current folder: {error.strerror}; cd to a folder that exists") from None


def _report(error: Exception) -> int:
    """Report an unexpected error, and return the exit code."""
    if isinstance(error, OSError) and _is_from_stdout(error):
        # Python flushes stdout when it exits, which would fail again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):
            return 141  # 128 + SIGPIPE
        click.echo(f"standard output: {error.strerror}", err=True)
        return ExitCode.USAGE
    import traceback

    traceback.print_exception(error)
    click.echo("slurmray: this is a bug in slurmray; please report it with the lines above", err=True)
    return ExitCode.INTERNAL


def _is_from_stdout(error: OSError) -> bool:
    """Whether a write to standard output raised the error; such an error has no file name."""
    import traceback

    *_, (frame, _) = traceback.walk_tb(error.__traceback__)
    return isinstance(error, BrokenPipeError) or frame.f_code in (main.__code__, click.echo.__code__)
