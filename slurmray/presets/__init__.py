"""Presets: the arguments of each trainer that describe the cluster, and checks of its placement."""

from __future__ import annotations

import importlib
import pathlib

from slurmray import files, yaml_source
from slurmray.errors import Problem, SpecError
from slurmray.plan import Advice, Finding
from slurmray.presets.command_line import parse_command
from slurmray.presets.context import MAX_GPUS, PresetContext
from slurmray.presets.placement import check_placement
from slurmray.presets.precision import uses_bf16
from slurmray.spec.job_spec import JobSpec
from slurmray.spec.preset import Preset
from slurmray.spec.types import as_argv
from slurmray.yaml_source import Source

_WITH_CONFIG = ("rlinf", "roll")
# RLinf numbers all nodes that are alive in Ray (rlinf 0.2, scheduler/cluster/cluster.py), so one without GPUs
# would shift its placement. Not tried: ROLL.
_ON_ALL_NODES = ("rlinf", "roll")


def advise(spec: JobSpec) -> Advice:
    """Return the advice of a job spec's preset; SpecError if the trainer's own file is not valid YAML.

    Reads no file except that one, if the job spec names it.
    """
    preset, run = spec.preset, as_argv(spec.run)
    if preset is None:
        return Advice(run)
    if finding := _skip_reason(spec, preset):
        return Advice(run, problems=[finding])
    try:
        config = _read_config(preset.config) if preset.config else None
    except ValueError as error:
        return Advice(run, problems=[Finding(("preset", "config"), f"{preset.config}: {error}")])
    context = PresetContext(spec, preset, parse_command(spec.run), config)
    module = importlib.import_module(f"slurmray.presets.{preset.name.replace('-', '_')}")
    module.advise(context)
    if context.demands and not context.problems:
        check_placement(context)
    return _make_advice(context)


def _skip_reason(spec: JobSpec, preset: Preset) -> Finding | None:
    """Return why the preset cannot check this job; None if it can."""
    if spec.gpus and not spec.ray_gpus:
        text = f"{preset.name} needs GPUs, and services use all {spec.gpus} of each node"
        fix = f"give them fewer, or request more with {spec.gpus_field}"
        return Finding(("preset",), f"{text}, {spec.gpus_of_services}: {fix}")
    if not spec.ray_gpus:
        text = f"{preset.name} needs GPUs, and the job requests none: set slurm.gpus_per_node"
        return Finding(("preset",), text)
    if preset.name in _ON_ALL_NODES and spec.trainer_nodes < spec.ray_nodes:
        text = f"{preset.name} places its parts on all nodes in Ray:"
        fix = "leave ray.head.gpus out"
        if spec.slurm.groups:
            fix = "give all groups in slurm.groups the same number of GPUs"
        return Finding(("ray", "head", "gpus"), f"{text} {fix}")
    if spec.ray_nodes * spec.ray_gpus > MAX_GPUS:
        text = f"the job has {spec.ray_nodes} x {spec.ray_gpus} GPUs, placement is checked up to {MAX_GPUS}"
        return Finding(("preset",), f"{text}: request fewer, or leave preset out")
    if preset.config and preset.name not in _WITH_CONFIG:
        text = f"{preset.name} has all its arguments in `run`: leave preset.config out"
        return Finding(("preset", "config"), text)
    return None


def _read_config(name: str) -> Source:
    """Return the trainer's own file; ValueError if it cannot be read."""
    try:
        raw = files.read(pathlib.Path(name).expanduser())
    except OSError as error:
        fix = "set it to the trainer's YAML file, relative to the current folder"
        raise ValueError(f"{error.strerror}; {fix}") from None
    except RuntimeError:
        raise ValueError("no such home folder here; write the path without ~") from None
    config = yaml_source.read(name, yaml_source.decode(name, raw))
    if not isinstance(config.data, dict | None):
        text = "expected `name: value` lines, as the trainer reads them"
        raise SpecError([Problem(config.where(config.values[()]), text)])
    return config


def _make_advice(context: PresetContext) -> Advice:
    """Return the advice from a context that the trainer's module has filled in."""
    run, remarks = as_argv(context.spec.run), list(context.remarks)
    for name, fact in context.node_env.items():
        if name in context.spec.env and fact != "interface":
            text = f"{name}: slurmray sets it on each node for {context.preset.name}: leave it out"
            context.problems.append(Finding(("env", name), text))
    if isinstance(context.spec.run, str) and not context.command.is_parsed:
        remarks.append("run is not checked: it has not one Python command whose arguments are all certain")
    resume = context.resume if context.spec.may_resume and run is not None else []
    if run is not None and context.command.is_extensible:
        run = [*run, *context.arguments]
    elif run is not None:
        kind, fix = "a script", "pass"
        if isinstance(context.spec.run, str):
            kind, fix = 'a text without "$@"', 'write "$@" behind the trainer\'s arguments, or pass'
        if context.shell_arguments:
            arguments = " ".join(context.shell_arguments)
            remarks.append(f"run is {kind}, so nothing is added to it: {fix} {arguments}")
        if resume:
            arguments = " ".join(resume)
            remarks.append(f"run is {kind}: after a restart, if SLURMRAY_ATTEMPT is not 0, pass {arguments}")
    return Advice(
        run,
        {name: value for name, value in context.env.items() if name not in context.spec.env},
        {name: fact for name, fact in context.node_env.items() if name not in context.spec.env},
        resume if context.command.is_extensible else [],
        uses_bf16(context.command.argv, context.config.data if context.config else None),
        [finding for finding in context.problems if not finding.in_config],
        _config_problems(context.config, context.problems) if context.config else [],
        remarks,
    )


def _config_problems(config: Source, findings: list[Finding]) -> list[Problem]:
    """Return the problems of the trainer's own file, by position."""
    placed = []
    for finding in findings:
        if finding.in_config:
            above = (finding.path[:length] for length in range(len(finding.path), 0, -1))
            place = next((config.keys[path] for path in above if path in config.keys), (1, 1))
            placed.append((place, Problem(config.where(place), finding.text)))
    return [problem for _, problem in sorted(placed, key=lambda pair: pair[0])]
