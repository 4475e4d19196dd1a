"""Options and value types that several subcommands share."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar, get_args

import click
from click.shell_completion import CompletionItem

from slurmray.errors import SlurmrayError, UsageError
from slurmray.slurm import syntax
from slurmray.spec.runtimes import Choice

_F = TypeVar("_F", bound=Callable[..., object])
Completion = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]

_RUNTIMES = get_args(Choice)  # the job spec checks the value

# (option, metavar, help); slurmray.loading.load.FLAGS has the field that each one sets.
_FLAGS = (
    ("--nodes", "N", "Number of nodes."),
    ("--gpus-per-node", "G", "GPUs on each node, e.g. 8 or h100:8."),
    ("--cpus-per-task", "C", "CPUs on each node."),
    ("--mem", "M", "Memory on each node, e.g. 200G."),
    ("--time", "T", "Time limit, e.g. 12:00:00 or 1-00:00:00."),
    ("--partition", "P", "Partition (queue)."),
    ("--account", "A", "Account to charge."),
    ("--image", "I", "Container image with Python and Ray."),
    ("--runtime", "R", f"Container runtime: {', '.join(_RUNTIMES[1:])} or {_RUNTIMES[0]}."),
)


# Short forms of sbatch for the options here, except for -o: that is the file to write.
_SHORT = {f"--{name}": f"-{short}" for short, name in syntax.SHORT.items()}
# Options of sbatch that are something else here, or no text.
_OTHERS = ("output", "runtime", "extra", "profile")
PROFILE = "--profile"


class _File(click.Path):
    """A path, kept as typed. The code that opens the file reports errors."""

    def convert(
        self,
        value: str | os.PathLike[str],
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> Any:
        try:
            os.fspath(value).encode()
        except UnicodeEncodeError:
            raise UsageError(f"{os.fspath(value)!r}: not UTF-8; give the file another name") from None
        return super().convert(value, param, ctx)


FILE = _File(readable=False, path_type=Path)
flag = functools.partial(click.option, is_flag=True)  # an option without a value


def completion(values: Callable[[click.Context], Mapping[str, str]]) -> Completion:
    """Return what completes a value in a shell. values: those that are possible, with their help."""

    def complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        del param
        try:
            known = values(ctx)
        except SlurmrayError:
            return []
        return [
            CompletionItem(name, help=title) for name, title in known.items() if name.startswith(incomplete)
        ]

    return complete


def output_option(help_text: str) -> Callable[[_F], _F]:
    """Return the option for the file that a command writes."""
    return click.option("-o", "--output", metavar="FILE", type=FILE, help=help_text)


def set_option(help_text: str) -> Callable[[_F], _F]:
    """Return the option for fields of the job spec."""
    help_text += "  [repeatable]"
    return click.option("--set", "settings", multiple=True, metavar="PATH=VALUE", help=help_text)


def job_flags(command: _F) -> _F:
    """Add the options of _FLAGS to a command; their default is None."""
    for name, metavar, help_text in reversed(_FLAGS):
        complete = completion(lambda _: dict.fromkeys(_RUNTIMES, "")) if name == "--runtime" else None
        names = [_SHORT[name], name] if name in _SHORT else [name]
        command = click.option(*names, metavar=metavar, help=help_text, shell_complete=complete)(command)
    return command


def sbatch_options(command: _F) -> _F:
    """Add the other options of sbatch, which --help does not list."""
    documented = [name for name, _, _ in _FLAGS]
    for option in ("job-name", *syntax.OPTIONS):
        name = f"--{option}"
        if option in _OTHERS or name in documented:
            continue
        names = [_SHORT[name], name] if name in _SHORT else [name]
        kind = syntax.OPTIONS[option].kind if option in syntax.OPTIONS else "value"
        is_flag = kind in ("flag", "optional")  # Click cannot tell an optional value from the next argument
        given: dict[str, Any] = {"is_flag": True, "flag_value": "true", "default": None} if is_flag else {}
        command = click.option(*names, hidden=True, **given)(command)
    return command


def job_options(command: _F) -> _F:
    """Add all options that set fields of the job spec."""
    for option in reversed(_JOB_OPTIONS):
        command = option(command)
    return job_flags(sbatch_options(command))


def _profiles(ctx: click.Context) -> dict[str, str]:
    from slurmray.loading import profile

    del ctx
    return dict.fromkeys((*profile.list_names(), profile.NONE), "")


PROFILE_OPTION = click.option(
    PROFILE,
    metavar="P",
    help="Profile of your configuration file, or none; see slurmray config.  [default: the file's]",
    shell_complete=completion(_profiles),
)
_JOB_OPTIONS = (
    click.option(
        "--mount", multiple=True, metavar="SRC[:DEST[:OPTS]]", help="Mount a file or folder.  [repeatable]"
    ),
    click.option(
        "--env",
        multiple=True,
        metavar="NAME[=VALUE]",
        help="Environment variable for Ray and the trainer. Without =VALUE, its value is taken from your "
        "environment at sbatch and is not in the script. The job's log shows VALUE as `...`.  [repeatable]",
    ),
    set_option("Any field of the job spec, e.g. container.shm_size=64g. PATH+=VALUE adds to a list."),
    PROFILE_OPTION,
    click.option(
        "--template",
        metavar="FILE",
        type=click.Path(readable=False),
        help="A site's template that extends job.sbatch.j2.",
    ),
)
