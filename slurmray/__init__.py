"""A Ray cluster in containers over several Slurm nodes, from one job spec and one sbatch script.

In Python: JobSpec or `load` makes a job spec, `render` its script, `submit` its Job.
See docs/guides/python.md.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from slurmray.api import load, render, submit
    from slurmray.slurm.job import Job
    from slurmray.slurm.states import End
    from slurmray.spec.job import JobSpec

__version__ = "0.1.0"
__all__ = ["End", "Job", "JobSpec", "load", "render", "submit"]

_LAZY_EXPORTS = {
    "End": "slurm.states",
    "Job": "slurm.job",
    "JobSpec": "spec.job",
    "load": "api",
    "render": "api",
    "submit": "api",
}


if not TYPE_CHECKING:  # a type checker would take every name for one of the package's

    def __getattr__(name: str) -> object:
        """Import what is used when it is used: `slurmray --help` needs none of it."""
        if name not in _LAZY_EXPORTS:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(importlib.import_module(f"slurmray.{_LAZY_EXPORTS[name]}"), name)

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
