"""Makes the plan of a job spec.

Finds mistakes beyond its fields: missing files, and what its preset finds. Presets are imported for jobs that
have one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from slurmray.agent.job_log import counted
from slurmray.errors import Problem, SpecError
from slurmray.plan import Advice, Plan
from slurmray.spec.job_spec import JobSpec
from slurmray.spec.types import as_argv, shown

_BUILD = ("container", "build")


def make_plan(spec: JobSpec, *, is_submitted_here: bool = True) -> Plan:
    """Return the plan of a job spec. SpecError lists mistakes; those in the trainer's own file have a place.

    Relative paths are relative to the current folder, because a job is submitted where it was rendered, or in
    a folder with copies of the same files. Other files of another host are not looked for.
    """
    build = spec.container.build
    problems = _missing_files(build.model_dump(), is_submitted_here) if build else []
    try:
        advice = _advise(spec)
        fewer_nodes, remarks = _plan_fewer_nodes(spec)
    except SpecError as error:
        raise SpecError(problems + error.problems) from None
    if problems:
        raise SpecError(problems)
    return Plan(spec, replace(advice, remarks=advice.remarks + remarks), fewer_nodes)


def _advise(spec: JobSpec) -> Advice:
    """Return the advice of a job spec's preset. SpecError lists the mistakes that it finds."""
    if not spec.preset:
        return Advice(as_argv(spec.run))
    from slurmray.presets import advise

    advice = advise(spec)
    problems = [Problem("", finding.text, finding.path) for finding in advice.problems]
    if problems + advice.config_problems:
        raise SpecError(problems + advice.config_problems)
    return advice


def _plan_fewer_nodes(spec: JobSpec) -> tuple[dict[int, Plan], list[str]]:
    """Return the plans for fewer nodes than slurm.nodes, down to restart.min_nodes, by their number.

    Also a remark about numbers that do not fit. SpecError if none fits.
    """
    smallest = spec.restart.min_nodes
    if smallest is None:
        return {}, []
    plans: dict[int, Plan] = {}
    misfits: dict[int, Problem] = {}
    for nodes in range(smallest, spec.slurm.nodes):
        slurm = spec.slurm.model_copy(update={"nodes": nodes})
        restart = spec.restart.model_copy(update={"min_nodes": nodes})
        try:
            smaller = spec.model_copy(update={"slurm": slurm, "restart": restart})
            plans[nodes] = Plan(smaller, _advise(smaller))
        except SpecError as error:
            misfits[nodes] = error.problems[0]
    if not misfits:
        text = "it is slurm.nodes; lower it, or leave it out"
    else:
        from slurmray.presets.ranks import spans

        most = max(misfits)
        text = f"no start on {spans(misfits)}; on {counted(most, 'node')}: {misfits[most]}"
    if not plans:
        raise SpecError([Problem("", f"restart.min_nodes: {text}", ("restart", "min_nodes"))])
    return plans, [f"restart.min_nodes: {text}"] if misfits else []


def find_missing_files(
    data: Mapping[str, object], known: Sequence[Problem], *, is_submitted_here: bool
) -> list[Problem]:
    """Return missing files of an invalid job spec, for fields without a known problem."""
    container = data.get("container")
    build = container.get("build") if isinstance(container, Mapping) else None
    wrong = {problem.path[:3] for problem in known}
    if not isinstance(build, Mapping) or _BUILD in wrong:
        return []
    given = {name: value for name, value in build.items() if (*_BUILD, name) not in wrong}
    return _missing_files(given, is_submitted_here)


def _missing_files(build: Mapping[str, object], is_submitted_here: bool) -> list[Problem]:
    given = ((name, build.get(name)) for name in ("file", "context"))
    return [
        problem
        for name, value in given
        if isinstance(value, str) and (is_submitted_here or not value.startswith(("/", "~")))
        for problem in _missing_file(name, value)
    ]


def _missing_file(name: str, value: str) -> list[Problem]:
    try:
        target = Path(value).expanduser()
        if target.is_file() if name == "file" else target.is_dir():
            return []
        kind = "file" if name == "file" else "folder"
        if target.is_dir():
            text = f"{target} is a folder; set it to the file in it"
        else:
            text = f"{target} is not a {kind}" if target.exists() else f"no such {kind}: {target.absolute()}"
    except RuntimeError:
        text = f"{value}: no such home folder here; write the path without ~"
    except OSError as error:
        text = f"{shown(value)}: cannot be read: {error.strerror}"
    return [Problem("", f"container.build.{name}: {text}", (*_BUILD, name))]
