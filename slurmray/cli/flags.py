"""Flags and kinds of values that several verbs have."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from slurmray.errors import UsageError

_F = TypeVar("_F", bound=Callable[..., object])

# slurmray.loading.load.FLAGS says which field each one sets.
_FLAGS = (
    ("--nodes", "N", "Number of nodes."),
    ("--gpus-per-node", "G", "GPUs on each node, for example 8 or h100:8."),
    ("--cpus-per-task", "C", "CPUs on each node."),
    ("--mem", "M", "Memory on each node, for example 200G."),
    ("--time", "T", "Time limit, for example 12:00:00 or 1-00:00:00."),
    ("--partition", "P", "Partition (queue)."),
    ("--account", "A", "Account to charge."),
    ("--image", "I", "Container image with Python and Ray."),
    ("--runtime", "R", "docker, podman, apptainer, pyxis, none or auto."),
)


class _File(click.Path):
    """A path as the user typed it; errors are reported where the file is opened."""

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


def job_flags(command: _F) -> _F:
    """Add these flags to a command, in this order; each is None unless it is given."""
    for name, metavar, text in reversed(_FLAGS):
        command = click.option(name, metavar=metavar, help=text)(command)
    return command
