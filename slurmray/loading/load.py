"""From a YAML file and the command line to a job spec, or to a list of everything that is wrong with them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from slurmray import yaml_source
from slurmray.errors import Problem, SpecError
from slurmray.loading.validate import missing_besides, review
from slurmray.spec.job import JobSpec
from slurmray.spec.messages import dotted
from slurmray.spec.types import shown
from slurmray.yaml_source import Source

STDIN = Path("-")
_LAST = (sys.maxsize, 0)  # the command line's mistakes come after the file's
_BLANK = "..."  # in a command that is shown, for a value that is not
_ENV = {"env", "env_vars"}

# Flags of the command line and the field that each one sets; their values are taken as they are.
FLAGS = {
    "--nodes": "slurm.nodes",
    "--gpus-per-node": "slurm.gpus_per_node",
    "--cpus-per-task": "slurm.cpus_per_task",
    "--mem": "slurm.mem",
    "--time": "slurm.time",
    "--partition": "slurm.partition",
    "--account": "slurm.account",
    "--image": "container.image",
    "--runtime": "container.runtime",
    "--template": "template",
}


class _Setting(NamedTuple):
    """A value from the command line. place: what the user typed, for messages."""

    place: str
    path: yaml_source.Path
    value: Any


def load_spec(
    path: Path | None,
    settings: Sequence[tuple[str, str]] = (),
    entrypoint: Sequence[str] = (),
    refusals: Callable[[JobSpec], list[Problem]] = lambda _: [],
) -> JobSpec:
    """Return the job spec of a file with the command line's settings over it; SpecError holds all mistakes.

    path: None for defaults, `-` for standard input. settings: (name, value) in the order given; a name is
    one of FLAGS, `--mount` (one more), `--env` (`NAME=VALUE`, or `NAME` for the submitter's own value), or
    the dotted path of a field, as --set has it; then `[a, b]`, `{a: b}`, quotes and null mean what they mean
    in YAML. entrypoint: the words after `--`. refusals: what else is wrong with a job spec that is sound.
    """
    text = Source("") if path is None else _read(path)
    data = text.data if text.data is not None else {}
    if not isinstance(data, dict):
        text.refuse(text.values[()], "expected `name: value` lines, as `name: my-job`")
        raise SpecError([problem for _, problem in text.problems])
    problems = list(text.problems)
    given: list[_Setting] = []
    for name, value in settings:
        try:
            setting = _setting(name, value, data)
            _put(data, setting.path, setting.value)
        except ValueError as error:
            problems.append((_LAST, Problem(_typed(name), str(error))))
        else:
            given.append(setting)
    if entrypoint:
        if data.get("run") is not None:
            twice = Problem("", "run: given here and after --; keep one of the two", ("run",))
            problems.append(_placed(text, given, twice))
        data["run"] = list(entrypoint)
        given.append(_Setting("after --", ("run",), data["run"]))
    try:
        spec = JobSpec(**data)
    except SpecError as error:
        found = error.problems + missing_besides(data, error.problems)
    else:
        found = review(spec) or refusals(spec)
    problems += [_placed(text, given, problem) for problem in found]
    if problems:
        raise SpecError([problem for _, problem in sorted(problems, key=lambda pair: pair[0])])
    return spec


def without_env(name: str, value: str) -> str:
    """Return the value of a valid setting as it can be shown: a blank for what an environment is to hold."""
    if name == "--env":
        variable, equals, _ = value.partition("=")
        return f"{variable}={_BLANK}" if equals else value
    if name.startswith("--"):
        return value
    data = _scalar_or_flow(value)
    secret = data is not None and (not _ENV.isdisjoint(name.split(".")) or _holds_env(data))
    return _BLANK if secret else value


def _holds_env(data: Any) -> bool:
    if isinstance(data, dict):
        return not _ENV.isdisjoint(data) or any(map(_holds_env, data.values()))
    return isinstance(data, list) and any(map(_holds_env, data))


def _read(path: Path) -> Source:
    name = "stdin" if path == STDIN else str(path)
    try:
        return yaml_source.read(name, yaml_source.decode(name, _raw(path)))
    except FileNotFoundError:
        text = "no such file; `slurmray init` writes one to begin with"
    except IsADirectoryError:
        text = "a folder; name the job spec's file in it"
    except OSError as error:
        text = f"can't be read: {error.strerror}"
    raise SpecError([Problem(name, text)])


def _raw(path: Path) -> bytes:
    if path != STDIN:
        return path.read_bytes()
    if sys.stdin is None:
        raise SpecError([Problem("stdin", "is closed; pipe the job spec into it, or name a file")])
    return sys.stdin.buffer.read()


def _typed(name: str) -> str:
    return name if name.startswith("--") else f"--set {name}"


def _setting(name: str, value: str, data: dict[str, Any]) -> _Setting:
    if value == _BLANK:
        raise ValueError(f"write the value where {_BLANK} stands")
    if name in FLAGS:
        return _Setting(name, tuple(FLAGS[name].split(".")), value)
    if name == "--env":
        variable, equals, text = value.partition("=")
        if text == _BLANK:
            raise ValueError(f"{variable}: write the value where {_BLANK} stands")
        return _Setting(f"--env {variable}", ("env", variable), text if equals else None)
    if name == "--mount":
        container = data.get("container")
        mounts = container.get("mounts") if isinstance(container, dict) else None
        return _Setting(
            f"--mount {value}", ("container", "mounts", len(mounts) if isinstance(mounts, list) else 0), value
        )
    path = tuple(name.split("."))
    if not all(path):
        raise ValueError("expected the dotted path of a field, as container.shm_size")
    return _Setting(_typed(name), path, _scalar_or_flow(value))


def _scalar_or_flow(text: str) -> Any:
    if text in ("", "~", "null"):
        return None
    if text.lstrip()[:1] not in ("[", "{", '"', "'"):
        return text
    try:
        found = yaml_source.read("", text)
        problems = [problem for _, problem in found.problems]
    except SpecError as error:
        problems = error.problems
    if problems:
        raise ValueError("; ".join(problem.text for problem in problems))
    return found.data


def _put(data: dict[str, Any], path: yaml_source.Path, value: Any) -> None:
    """Set a value at a path; ValueError where something else stands in its way."""
    *sections, last = path
    here: Any = data
    for depth, name in enumerate(sections, start=1):
        kind, words = (list, "a list") if isinstance(path[depth], int) else (dict, "`name: value` pairs")
        if here.get(name) is None:
            here[name] = kind()
        if not isinstance(here[name], kind):
            raise ValueError(f"{dotted(path[:depth])}: expected {words}, got {shown(here[name])}")
        here = here[name]
    if isinstance(here, list):
        here.append(value)
    else:
        here[last] = value


def _where(text: Source, given: Iterable[_Setting], path: yaml_source.Path) -> tuple[yaml_source.Place, str]:
    """Return where to sort it, and the place of a problem's path as users see it."""
    loc = _field(path)
    settings = list(given)
    for setting in reversed(settings):
        if loc[: len(setting.path)] == setting.path:
            return _LAST, setting.place
    if loc != path and loc in text.keys:
        return text.keys[loc], text.where(text.keys[loc])
    for length in range(len(loc), 0, -1):
        if place := text.values.get(loc[:length]):
            return place, text.where(place)
    for setting in reversed(settings):
        if setting.path[: len(loc)] == loc:
            return _LAST, setting.place
    return (0, 0), text.name


def _placed(text: Source, given: list[_Setting], problem: Problem) -> tuple[yaml_source.Place, Problem]:
    """Return a problem with its place, and where to sort it."""
    if problem.where:
        return _LAST, problem
    at, where = _where(text, given, problem.path)
    field, words = _field(problem.path), problem.text
    if at == _LAST and any(setting.path == field for setting in given):
        words = words.removeprefix(f"{dotted(field)}: ")  # the place says it already
    return at, Problem(where, words)


def _field(loc: yaml_source.Path) -> yaml_source.Path:
    """A path without the mark for the name of an entry."""
    return loc[:-1] if loc[-1:] == ("[key]",) else loc
