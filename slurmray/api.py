"""slurmray in Python: load, render and submit job specs.

What needs pydantic or Jinja2 is imported in the functions, for a quick start.
"""

from __future__ import annotations

import os
import time
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

from slurmray import history
from slurmray.errors import ExitCode, UsageError
from slurmray.slurm import run_directories, slurm_commands
from slurmray.slurm.host import SshHost, clean_environment
from slurmray.slurm.submitted_job import Job

if TYPE_CHECKING:
    from collections.abc import Mapping

    from typing_extensions import Unpack

    from slurmray.loading.profile import Profile
    from slurmray.plan import Plan
    from slurmray.spec.fields import JobFields
    from slurmray.spec.job_spec import JobSpec

# For messages of the job, which append options, for example `--nodes 4`.
_RENDER_AGAIN = "render it again in Python, with the equivalent of slurmray render"


def load(path: str | Path, *, profile: str | None = None, **fields: Unpack[JobFields]) -> JobSpec:
    """Return the job spec in a YAML file. SpecError lists all mistakes, each with line and column.

    fields: override those of the file; a section's one by one, e.g. `load("job.yaml", slurm={"nodes": 4})`.
    profile: as --profile of `slurmray render`: None is your configuration's, "none" is none.
    """
    return _load(path, profile, fields).spec


def render(spec: JobSpec | str | Path) -> str:
    """Return the sbatch script of a job spec or its file, the same as from `slurmray render`.

    SpecError for missing files, and for a placement that does not fit the job. UsageError if `template`
    cannot be used. Relative paths begin at the current folder.
    """
    return render_plan(make_plan(spec))


def _load(path: str | Path, profile: str | None, fields: Mapping[str, Any]) -> Plan:
    from slurmray.loading import profile as profiles
    from slurmray.loading.load import load_plan

    return load_plan(Path(path), fields=fields, profile=profiles.choose(profile))


def make_plan(
    spec: JobSpec | str | Path, profile: str | None = None, *, is_submitted_here: bool = True
) -> Plan:
    """Return the plan of a job spec or its file. profile: as for `load`."""
    from slurmray.loading import validate

    if isinstance(spec, str | Path):
        return _load(spec, profile, {})
    return validate.make_plan(spec, is_submitted_here=is_submitted_here)


def render_plan(plan: Plan) -> str:
    """Return the sbatch script of a plan."""
    from slurmray.rendering.output import seal
    from slurmray.rendering.script import render_script

    return seal(render_script(plan, _RENDER_AGAIN))


def remarks(plan: Plan, is_submitted_here: bool = True) -> list[str]:
    """Return hints for the user who submits a job, for example about unset variables."""
    from slurmray.loading import remarks

    fix = f"set it in os.environ first, or the job ends with {ExitCode.CONFIG}"
    unset = remarks.unset_variables(plan.spec, clean_environment(os.environ))
    known = remarks.remarks(plan, is_submitted_here)
    return [*known, *(f"{field} is not set here: {fix}" for field in unset)]


def submit(spec: JobSpec | str | Path, *, profile: str | None = None) -> Job:
    """Submit a job spec or its file with sbatch, in the current folder, and return its job.

    profile: as for `load`; with its `host`, the job is submitted there, from its `folder`, with the files of
    `sync`. No script is written: Slurm keeps it, and `scontrol write batch_script ID -` shows it. Errors as
    for `render`, SlurmError with Slurm's message and a fix if sbatch or ssh fails, and UsageError for an
    array, a folder that cannot be written, or more nodes than a partition has. Hints,
    for example about an unset variable that `env` takes from you, are warnings.
    """
    from slurmray.loading import profile as profiles

    chosen = profiles.choose(profile)
    is_submitted_here = not (chosen and chosen.host)
    plan = make_plan(spec, profile, is_submitted_here=is_submitted_here)
    spec = plan.spec
    if dict(spec.slurm.given()).get("array") and not spec.sweep:
        raise UsageError("submit: slurm.array makes several jobs: use sweep, or sbatch")
    script = render_plan(plan)
    for remark in remarks(plan, is_submitted_here):
        warnings.warn(remark, stacklevel=2)
    job, messages = submit_script(spec, script, profile=chosen)
    for message in messages:
        warnings.warn(message, stacklevel=2)
    return job


def submit_script(
    spec: JobSpec, script: str, *arguments: str, profile: Profile | None = None
) -> tuple[Job, list[str]]:
    """Submit a rendered script and remember the job; return it and messages for the user.

    arguments: more options of sbatch. profile: has the host, see `submit`. UsageError, before anything is
    copied or submitted, if the job is certain to fail: see check_submission.
    """
    from slurmray.loading.profile import choose_folder, choose_host
    from slurmray.loading.submission import check_submission

    host = choose_host(profile)
    messages = check_submission(spec, host, choose_folder(profile))
    folder = Path.cwd()
    variables: dict[str, str] = {}
    if profile and isinstance(host, SshHost):
        folder = host.prepare_folder(profile.submit_folder(), spec.sync)
        # sbatch takes the others from the login shell there.
        environment = clean_environment(os.environ)
        variables = {name: environment[name] for name in spec.submitter_variables if name in environment}
    submitted = slurm_commands.sbatch(*arguments, text=script, host=host, folder=folder, variables=variables)
    messages += [f"job {submitted.number}: {submitted.message}"] if submitted.message else []
    gpus = sum(
        component.nodes * (spec.ray.gpus_per_node or component.gpus) for component in spec.slurm.components
    )
    run_dir = run_directories.expand(spec.run_dir, submitted.number, host, variables)
    run = history.Run(
        submitted.number,
        spec.name,
        submitted.cluster,
        str(folder),
        run_dir,
        time.time(),
        spec.slurm.node_count,
        gpus,
        host.name,
        spec.sweep or None,
    )
    try:
        history.remember(run)
    except OSError as error:
        messages.append(f"{history.path()}: {error.strerror}; slurmray list will not know this job")
    job = job_of(run)
    job.sbatch_code = submitted.code
    return job, messages


def job_of(run: history.Run, task: int | None = None) -> Job:
    """Return the job that was remembered. task: SLURM_ARRAY_TASK_ID of the one that is meant."""
    return Job(
        run.id,
        task=task,
        folder=run.folder,
        run_dir=run.run_dir or None,
        cluster=run.cluster,
        host=run.host,
        sweep=(run.sweep or {}) if run.nodes else None,  # unknown of a job that is not remembered
    )
