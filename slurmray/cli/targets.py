"""What a job can be rendered for: all that differs between Slurm and dstack for users of the command line."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType

from slurmray.errors import ExitCode
from slurmray.loading.remarks import remarks
from slurmray.plan import Plan
from slurmray.rendering import script


@dataclass(frozen=True)
class Target:
    """A target, with texts for messages of `slurmray render`."""

    suffix: str  # ends the names of its files
    default_cpus: str  # of a node for which none are requested
    submitting: str  # what reads the variables that a job takes from its submitter
    own_variables: tuple[str, ...]  # beginnings of variables that the target sets itself
    next_steps: tuple[str, ...]  # what to do with a file
    has_profiles: bool
    check: Callable[[Plan], object]  # raises SpecError for what it cannot do of a plan
    render: Callable[[Plan, str, bool], str]  # makes the text of a plan, see render_script
    remarks: Callable[[Plan, bool], list[str]]  # of a plan, and whether it is submitted on this host


def _task() -> ModuleType:
    from slurmray.rendering.dstack import task

    return task


TARGETS = {
    "slurm": Target(
        suffix=".sh",
        default_cpus="Slurm's default, often 1",
        submitting=f"sbatch, or the job ends with {ExitCode.CONFIG}",
        own_variables=("SLURM_",),
        next_steps=("submit it with: sbatch {}", "or try it on this machine: slurmray rehearse {}"),
        has_profiles=True,
        check=lambda _: None,
        render=lambda plan, command, only_checks: script.render_script(
            plan, command, only_checks=only_checks
        ),
        remarks=remarks,
    ),
    "dstack": Target(
        suffix=".dstack.yml",
        default_cpus="2 or more, as the instance has",
        submitting="dstack apply",
        own_variables=(),
        next_steps=("run it with: dstack apply -f {}",),
        has_profiles=False,
        check=lambda plan: _task().make_task(plan),
        render=lambda plan, *_: _task().render_task(plan),
        remarks=lambda plan, _: _task().remarks(plan),
    ),
}
