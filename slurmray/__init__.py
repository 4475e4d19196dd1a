"""Ray clusters in containers on several Slurm nodes, from one job spec and one sbatch script.

JobSpec and `load` return a job spec, `render` returns its script, `submit` its Job: see
docs/guides/python.md.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from slurmray._version import __version__ as __version__

if TYPE_CHECKING:
    from slurmray.api import load, render, submit
    from slurmray.slurm.states import End
    from slurmray.slurm.submitted_job import Job
    from slurmray.spec.job_spec import JobSpec

__all__ = ["End", "Job", "JobSpec", "load", "render", "submit"]

_LAZY_EXPORTS = {
    "End": "slurm.states",
    "Job": "slurm.submitted_job",
    "JobSpec": "spec.job_spec",
    "load": "api",
    "render": "api",
    "submit": "api",
}


if not TYPE_CHECKING:  # for a type checker, any name would be an attribute

    def __getattr__(name: str) -> object:
        """Import an export on first use: `slurmray --help` needs none of them."""
        if name not in _LAZY_EXPORTS:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(importlib.import_module(f"slurmray.{_LAZY_EXPORTS[name]}"), name)

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
