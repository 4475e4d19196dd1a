"""What the command line does, as functions of the package; what they need is imported when it is used."""

from __future__ import annotations

import os
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

from slurmray import slurm_commands
from slurmray.environment import clean_environment
from slurmray.errors import ExitCode, SpecError
from slurmray.job import Job

if TYPE_CHECKING:
    from slurmray.spec import JobSpec

# For the script's messages, which add such as `--nodes 4`.
_AGAIN = "make it anew in Python, with what slurmray render calls"


def load(path: str | Path) -> JobSpec:
    """Return the job spec of a YAML file; SpecError has all its mistakes, each with line and column."""
    from slurmray.loading import load_spec

    return load_spec(Path(path))


def render(spec: JobSpec) -> str:
    """Return the sbatch script of a job spec, the one that `slurmray render` writes.

    SpecError for what else is wrong with the spec: files that are not there, a placement that does not fit.
    Relative paths are looked up in the current folder.
    """
    from slurmray.output import seal
    from slurmray.rendering import render as render_script
    from slurmray.review import review

    if problems := review(spec):
        raise SpecError(problems)
    return seal(render_script(spec, _AGAIN))


def remarks(spec: JobSpec) -> list[str]:
    """Return what is good to know before a job spec is submitted here, as variables that are not set."""
    from slurmray.presets import advise

    environment = clean_environment(os.environ)
    remedy = f"put it into os.environ before, or the job ends with {ExitCode.CONFIG}"
    unset = [name for name in spec.env_from_submitter if name not in environment]
    return [*advise(spec).notes, *(f"env.{name} is not set here: {remedy}" for name in unset)]


def submit(spec: JobSpec) -> Job:
    """Submit a job spec with sbatch, in the current folder, and return its job.

    No file is written: Slurm has the script, `scontrol write batch_script ID -` shows it. SpecError as for
    `render`; SlurmError with Slurm's own words, and a remedy, where it refuses. What is good to know, such as
    an unset variable that `env` takes from you, is a warning.
    """
    script = render(spec)
    for note in remarks(spec):
        warnings.warn(note, stacklevel=2)
    done = slurm_commands.sbatch(text=script)
    if done.said:
        warnings.warn(f"job {done.number}: {done.said}", stacklevel=2)
    return Job(done.number, run_dir=spec.run_dir, cluster=done.cluster)
