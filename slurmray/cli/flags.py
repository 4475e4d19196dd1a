"""The flags for what differs from job to job and from site to site, for every verb that takes them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import click

_F = TypeVar("_F", bound=Callable[..., object])

# slurmray.loading.FLAGS says which field each one sets.
_FLAGS = (
    ("--nodes", "N", "Number of nodes."),
    ("--gpus-per-node", "G", "GPUs on each node, as 8 or h100:8."),
    ("--cpus-per-task", "C", "CPUs on each node."),
    ("--mem", "M", "Memory on each node, as 200G."),
    ("--time", "T", "Time limit, as 12:00:00 or 1-00:00:00."),
    ("--partition", "P", "Partition (queue)."),
    ("--account", "A", "Account to charge."),
    ("--image", "I", "Container image with Python and Ray."),
    ("--runtime", "R", "docker, podman, apptainer, pyxis, none or auto."),
)


def job_flags(command: _F) -> _F:
    """Give a command these flags, in this order; each is None where it is not given."""
    for name, metavar, text in reversed(_FLAGS):
        command = click.option(name, metavar=metavar, help=text)(command)
    return command
