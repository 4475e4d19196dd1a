"""The command line's functions for Python; each imports what it needs when it is called."""

from __future__ import annotations

import os
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

from slurmray.errors import ExitCode, SpecError
from slurmray.slurm import commands
from slurmray.slurm.environment import clean_environment
from slurmray.slurm.job import Job

if TYPE_CHECKING:
    from slurmray.spec.job import JobSpec

# In messages of the job, which add options to its end, for example `--nodes 4`.
_RENDER_AGAIN = "render it again in Python, with the equivalent of slurmray render"


def load(path: str | Path) -> JobSpec:
    """Return the job spec in a YAML file; SpecError lists all mistakes, each with line and column."""
    from slurmray.loading.load import load_spec

    return load_spec(Path(path))


def render(spec: JobSpec) -> str:
    """Return the sbatch script of a job spec, as `slurmray render` writes it.

    SpecError for mistakes that only show now: files that do not exist, a placement that does not fit.
    UsageError where its `template` cannot be used. Relative paths begin at the current folder.
    """
    from slurmray.loading.validate import review
    from slurmray.rendering.output import seal
    from slurmray.rendering.script import render_script

    if problems := review(spec):
        raise SpecError(problems)
    return seal(render_script(spec, _RENDER_AGAIN))


def remarks(spec: JobSpec) -> list[str]:
    """Return hints for the user who submits a job spec here, for example about variables that are not set."""
    from slurmray.presets import advise

    environment = clean_environment(os.environ)
    fix = f"set it in os.environ first, or the job ends with {ExitCode.CONFIG}"
    unset = [name for name in spec.env_from_submitter if name not in environment]
    return [*advise(spec).notes, *(f"env.{name} is not set here: {fix}" for name in unset)]


def submit(spec: JobSpec) -> Job:
    """Submit a job spec with sbatch, in the current folder, and return its job.

    No file is written: Slurm keeps the script, and `scontrol write batch_script ID -` shows it. Errors as for
    `render`; SlurmError with Slurm's message and a fix where Slurm refuses. Hints, for example about an unset
    variable that `env` takes from you, are warnings.
    """
    script = render(spec)
    for note in remarks(spec):
        warnings.warn(note, stacklevel=2)
    done = commands.sbatch(text=script)
    if done.said:
        warnings.warn(f"job {done.number}: {done.said}", stacklevel=2)
    return Job(done.number, run_dir=spec.run_dir, cluster=done.cluster)
