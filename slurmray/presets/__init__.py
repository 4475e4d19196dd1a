"""What slurmray knows about trainers: how each is told of the cluster, and whether its placement fits."""

from __future__ import annotations

import pathlib
from collections.abc import Callable
from dataclasses import dataclass, field

from slurmray import yaml_source
from slurmray.errors import Problem, SpecError
from slurmray.presets import openrlhf, rlinf, roll, search_r1, verl
from slurmray.presets.command_line import read_words
from slurmray.presets.context import MOST, Case, Fact, Finding
from slurmray.presets.precision import asks_for_bf16
from slurmray.spec.job import JobSpec
from slurmray.spec.preset import Preset
from slurmray.yaml_source import Source

_TRAINERS: dict[str, Callable[[Case], None]] = {
    "verl": verl.advise,
    "search-r1": search_r1.advise,
    "rlinf": rlinf.advise,
    "roll": roll.advise,
    "openrlhf": openrlhf.advise,
}
_WITH_CONFIG = ("rlinf", "roll")


@dataclass(frozen=True)
class Advice:
    """What comes of a preset. Without one: the entrypoint as it is, and nothing else.

    run: the entrypoint. env, node_env: more variables for Ray and the trainer on every node, the latter with
    what is known there only; none that the user's own `env` has. resume: more words for the entrypoint of a
    job that was requeued. bf16: whether it is asked for. problems: mistakes in the job spec. config_problems:
    in the trainer's own file. notes: lines for the user.
    """

    run: list[str] | str | None
    env: dict[str, str] = field(default_factory=dict)
    node_env: dict[str, Fact] = field(default_factory=dict)
    resume: list[str] = field(default_factory=list)
    bf16: bool = False
    problems: list[Finding] = field(default_factory=list)
    config_problems: list[Problem] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def advise(spec: JobSpec) -> Advice:
    """Return what a job spec's preset makes of it; SpecError if the trainer's own file is no YAML.

    Reads nothing but that file, if the spec names one.
    """
    preset = spec.preset
    if preset is None:
        return Advice(spec.run)
    if finding := _hindrance(spec, preset):
        return Advice(spec.run, problems=[finding])
    try:
        config = _read(preset.config) if preset.config else None
    except ValueError as error:
        return Advice(spec.run, problems=[Finding(("preset", "config"), f"{preset.config}: {error}")])
    case = Case(spec, preset, read_words(spec.run), config)
    _TRAINERS[preset.name](case)
    return _closed(case)


def _hindrance(spec: JobSpec, preset: Preset) -> Finding | None:
    """Return why there is nothing to check."""
    if spec.gpus and not spec.ray_gpus:
        text = f"{preset.name} is placed on GPUs, and services take all {spec.gpus} of a node"
        remedy = "give them fewer, or ask for more in slurm.gpus_per_node"
        return Finding(("preset",), f"{text}, {spec.gpus_of_services}: {remedy}")
    if not spec.ray_gpus:
        text = f"{preset.name} is placed on GPUs, and the job asks for none: set slurm.gpus_per_node"
        return Finding(("preset",), text)
    if spec.slurm.nodes * spec.ray_gpus > MOST:
        text = f"the job has {spec.slurm.nodes} x {spec.ray_gpus} GPUs, placement is checked for up to {MOST}"
        return Finding(("preset",), f"{text}: ask for fewer, or leave preset out")
    if preset.config and preset.name not in _WITH_CONFIG:
        text = f"{preset.name} is checked by the words of `run`: leave preset.config out"
        return Finding(("preset", "config"), text)
    return None


def _read(name: str) -> Source:
    """Return the trainer's own file; ValueError if it can't be read."""
    try:
        raw = pathlib.Path(name).expanduser().read_bytes()
    except OSError as error:
        text = f"{error.strerror}; name the trainer's YAML file, from the current folder on"
        raise ValueError(text) from None
    except RuntimeError:
        raise ValueError("there is no such home folder here; write the path without ~") from None
    config = yaml_source.read(name, yaml_source.decode(name, raw))
    if not isinstance(config.data, dict | None):
        text = "expected `name: value` lines, as the trainer reads them"
        raise SpecError([Problem(config.where(config.values[()]), text)])
    return config


def _closed(case: Case) -> Advice:
    run, notes = case.spec.run, list(case.notes)
    for name, fact in case.node_env.items():
        if name in case.spec.env and fact != "interface":
            text = f"{name}: slurmray sets it on each node, as {case.preset.name} wants it: leave it out"
            case.problems.append(Finding(("env", name), text))
    resume = case.resume if case.spec.requeue.max and run is not None else []
    if isinstance(run, list) and case.words.open:
        run = [*run, *case.added]
    elif run is not None:
        what = "a text for bash" if isinstance(run, str) else "a script"
        if case.to_pass:
            notes.append(f"run is {what}, so nothing is added to it: pass {' '.join(case.to_pass)}")
        if resume:
            words = " ".join(resume)
            notes.append(f"run is {what}: pass {words} when SLURMRAY_ATTEMPT is not 0, after a requeue")
    return Advice(
        run,
        {name: value for name, value in case.env.items() if name not in case.spec.env},
        {name: fact for name, fact in case.node_env.items() if name not in case.spec.env},
        resume if case.words.open else [],
        asks_for_bf16(case.words.words, case.config.data if case.config else None),
        [finding for finding in case.problems if not finding.in_config],
        _in_file(case.config, case.problems) if case.config else [],
        notes,
    )


def _in_file(config: Source, findings: list[Finding]) -> list[Problem]:
    """Return the problems of the trainer's own file, in its order."""
    found = []
    for finding in findings:
        if finding.in_config:
            above = (finding.path[:length] for length in range(len(finding.path), 0, -1))
            place = next((config.keys[path] for path in above if path in config.keys), (1, 1))
            found.append((place, Problem(config.where(place), finding.text)))
    return [problem for _, problem in sorted(found, key=lambda pair: pair[0])]
