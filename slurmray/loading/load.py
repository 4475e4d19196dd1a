"""Loads a job spec from a YAML file and the command line, or lists all mistakes in them."""

from __future__ import annotations

import copy
import os
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from slurmray import yaml_source
from slurmray.errors import Problem, SpecError
from slurmray.loading.places import LAST, Setting, place_problem
from slurmray.loading.profile import Profile
from slurmray.loading.validate import find_missing_files, make_plan
from slurmray.plan import Plan
from slurmray.slurm import syntax
from slurmray.spec.job_spec import JobSpec
from slurmray.spec.types import check_line, check_path, shown
from slurmray.spec.validation_errors import dotted
from slurmray.yaml_source import Source

STDIN = Path("-")
_HIDDEN = "..."  # instead of a value of an environment, in commands for users
_ENV = {"env", "env_vars"}
_MOST_UNKNOWN = 3  # fields of a file that is a job spec
_MAX_FILES = 64  # of a job spec: files that include each other twice would take forever

# Flag -> the field that it sets, to the unparsed value.
FLAGS = {
    "--image": "container.image",
    "--template": "template",
    "--job-name": "name",
    **{
        f"--{name}": f"slurm.{name.replace('-', '_')}"
        for name in syntax.OPTIONS
        if name not in ("output", "extra", "profile")
    },
    "--runtime": "container.runtime",
}


class _TooLargeError(SpecError):
    """A job spec that is too large with the files that it includes: reading it ends."""


class _Files:
    """Counts the files of a job spec and their bytes."""

    def __init__(self) -> None:
        self.count = self.bytes = 0

    def add(self, name: str, size: int) -> None:
        """Add a file; _TooLargeError if there are too many, or too many bytes in all."""
        self.count += 1
        self.bytes += size
        if self.bytes > yaml_source.MAX_BYTES:
            limit = f"{yaml_source.MAX_BYTES >> 10} KB"
            text = f"the job spec and what it includes are larger than {limit}; put data into other files"
            raise _TooLargeError([Problem(name, text)])
        if self.count > _MAX_FILES:
            text = f"the job spec includes more than {_MAX_FILES} files, some of them several times"
            raise _TooLargeError([Problem(name, f"{text}; include each once")])


def load_plan(
    path: Path | None,
    settings: Sequence[tuple[str, str]] = (),
    trainer: Sequence[str] = (),
    check: Callable[[Plan], object] = lambda _: None,
    fields: Mapping[str, Any] | None = None,
    profile: Profile | None = None,
) -> Plan:
    """Return the plan of a file, with settings from the command line. SpecError lists all mistakes.

    path: None for defaults, `-` for standard input. settings: (name, value) pairs; later ones override. A
    name is one of FLAGS, `--mount` (adds one), `--env` (`NAME=VALUE`, or `NAME` for the submitter's value) or
    the dotted path of a field, for --set. Then null, lists, mappings and quoted values are parsed as YAML,
    and with a + at its end the value, or each item of a list, is added to a list. trainer: the command after
    `--`, which overrides `run`. check: raises SpecError for more problems in a plan. fields: of the job spec,
    which override those of the file; those of a section one by one. profile: has the fields that the file and
    those that it includes lack, and demands on the result.
    """
    stdin = read_stdin(path)
    try:
        return _load(path, stdin, settings, trainer, check, fields or {}, profile, is_fast=True)
    except SpecError:  # once more, for the exact places of the mistakes
        return _load(path, stdin, settings, trainer, check, fields or {}, profile, is_fast=False)


def _load(
    path: Path | None,
    stdin: bytes,
    settings: Sequence[tuple[str, str]],
    trainer: Sequence[str],
    check: Callable[[Plan], object],
    fields: Mapping[str, Any],
    profile: Profile | None,
    *,
    is_fast: bool,
) -> Plan:
    """The same. stdin: its content. is_fast: places of mistakes may be wrong."""
    source = read_merged(path, stdin, profile, is_fast)
    data = source.data
    is_here = not (profile and profile.host)
    problems = list(source.problems)
    given: list[Setting] = []
    for name, value in settings:
        try:
            for setting in _parse_settings(name, value, data):
                _put(data, setting.path, setting.value)
                given.append(setting)
        except ValueError as error:
            problems.append((LAST, Problem(_name_option(name), str(error))))
    for setting in _split_fields(fields):
        given.append(setting)
        try:
            _put(data, setting.path, setting.value)
        except ValueError as error:
            problems.append((LAST, Problem(setting.place, str(error))))
    if trainer:
        data["run"] = list(trainer)
        given.append(Setting("after --", ("run",), data["run"]))
    plan = None
    try:
        spec = JobSpec(**data)
    except SpecError as error:
        missing = find_missing_files(data, error.problems, is_submitted_here=is_here)
        mistakes = error.problems + missing
    else:
        try:
            plan = make_plan(spec, is_submitted_here=is_here)
            check(plan)
            mistakes = list(profile.refusals(spec) if profile else ())
        except SpecError as error:
            mistakes = error.problems
    problems += [place_problem(source, given, problem) for problem in mistakes]
    if problems or plan is None:
        ordered = [problem for _, problem in sorted(problems, key=lambda pair: pair[0])]
        raise SpecError([*_shorten_unknown(ordered)])
    return plan


def _shorten_unknown(problems: Iterable[Problem]) -> Iterator[Problem]:
    """Yield the problems, the known fields of a section once, and of a file that is no job spec only some."""
    listed: set[str] = set()
    unknown: Counter[str] = Counter()  # by file
    for problem in problems:
        text, _, known = problem.text.partition("; known here: ")
        file = problem.where.rsplit(":", 2)[0]
        is_unknown = len(problem.path) == 2 and text.endswith(": unknown field")
        unknown[file] += is_unknown
        if not is_unknown or unknown[file] <= _MOST_UNKNOWN:
            yield problem._replace(text=text) if known in listed else problem
        elif unknown[file] == _MOST_UNKNOWN + 1:
            yield Problem(file, "is no job spec; `slurmray init` can write one")
        listed.add(known)


def read_merged(path: Path | None, stdin: bytes, profile: Profile | None, is_fast: bool) -> Source:
    """Return the fields of a file, of those that it includes, and of a profile, as `load_plan` does.

    stdin: what `read_stdin` returned.
    """
    source = Source("") if path is None else _read(path, stdin, is_fast, _Files())
    if source.data is None:
        source.data = {}
    if not isinstance(source.data, dict):
        source.add_problem(source.values[()], "expected `name: value` lines, e.g. `name: my-job`")
        raise SpecError([problem for _, problem in source.problems])
    if profile:
        source.fill(copy.deepcopy(profile.source))
    return source


def hide_env(name: str, value: str) -> str:
    """Return the value of a valid setting, or `...` if it may have values of an environment."""
    if name == "--env":
        variable, equals, _ = value.partition("=")
        return f"{variable}={_HIDDEN}" if equals else value
    if name.startswith("--"):
        return value
    data = _parse_value(value)
    is_secret = data is not None and (not _ENV.isdisjoint(name.split(".")) or _has_env(data))
    return _HIDDEN if is_secret else value


def is_switch(flag: str) -> bool:
    """Return whether a flag of FLAGS has no value on the command line."""
    option = syntax.OPTIONS.get(flag.removeprefix("--"))
    return option is not None and flag != "--runtime" and option.kind in ("flag", "optional")


def _has_env(data: Any) -> bool:
    if isinstance(data, dict):
        return not _ENV.isdisjoint(data) or any(map(_has_env, data.values()))
    return isinstance(data, list) and any(map(_has_env, data))


def _read(path: Path, stdin: bytes, is_fast: bool, counted: _Files, above: tuple[Path, ...] = ()) -> Source:
    """Read a job spec, and those that it includes. above: the files that include it."""
    source = _read_file(path, stdin, is_fast, counted)
    names = source.data.pop("include", None) if isinstance(source.data, dict) else None
    files = [names] if isinstance(names, str) else names or []
    if not isinstance(files, list) or not all(isinstance(file, str) for file in files):
        source.add_problem(source.values["include",], "include: expected a path, or a list of paths")
        return source
    for number in reversed(range(len(files))):  # the last one has priority
        place = source.values["include", number] if names is files else source.values["include",]
        try:
            other = _include(files[number], path.parent, is_fast, counted, (*above, path.resolve()))
        except _TooLargeError:
            raise
        except SpecError as error:
            for problem in error.problems:
                where = problem.where or source.where(place)
                source.problems.append((place, Problem(where, problem.text)))
        else:
            source.problems += other.problems
            source.fill(other)
    return source


def _include(name: str, folder: Path, is_fast: bool, counted: _Files, above: tuple[Path, ...]) -> Source:
    """Read a job spec that one in `folder` includes. SpecError, without a place if it cannot be read."""
    try:
        path = folder / Path(check_path(check_line(name))).expanduser()
        is_own, is_file = Path(os.path.realpath(path)) in above, path.is_file()
    except ValueError as error:
        raise SpecError([Problem("", f"include: {shown(name)}: {error}")]) from None
    except RuntimeError:  # without a home folder
        raise SpecError([Problem("", f"include: {name}: no such home folder here")]) from None
    except OSError as error:
        raise SpecError([Problem("", f"include: {path}: cannot be read: {error.strerror}")]) from None
    if is_own:
        raise SpecError([Problem("", f"include: {name} includes itself; leave it out")])
    if not is_file:
        raise SpecError([Problem("", f"include: {path} is not a file; correct the path")])
    other = _read(path, b"", is_fast, counted, above)
    if other.data is None:
        other.data = {}
    if not isinstance(other.data, dict):
        raise SpecError([Problem(str(path), "expected `name: value` lines, e.g. `name: my-job`")])
    return other


def _read_file(path: Path, stdin: bytes, is_fast: bool, counted: _Files) -> Source:
    name = "stdin" if path == STDIN else str(path)
    try:
        raw = stdin
        if path != STDIN:
            with path.open("rb") as file:
                raw = file.read(yaml_source.MAX_BYTES + 1)
        if path.suffix == ".py" or re.match(rb"#!.*\bpython", raw):
            text = (
                f"is a program, not a job spec; as the trainer's command it goes after --: -- python3 {name}"
            )
            raise SpecError([Problem(name, text)])
        if raw.startswith((b"#!", b"#SBATCH")):
            fix = f"to submit it: sbatch {name}"
            if b"\n# slurmray-sha256: " not in raw:
                fix = f"slurmray init --from {name} makes one from it"
            raise SpecError([Problem(name, f"is a script, not a job spec; {fix}")])
        counted.add(name, len(raw))
        return yaml_source.read(name, yaml_source.decode(name, raw), is_fast=is_fast)
    except FileNotFoundError:
        text = "no such file; `slurmray init` can write one"
        if path.suffix not in (".yaml", ".yml"):
            text = f"no such job spec; if it is the trainer's command, put -- before it: -- {path}"
    except IsADirectoryError:
        text = "is a folder; use the path of the job spec in it"
    except OSError as error:
        text = f"cannot be read: {error.strerror}"
    except ValueError as error:  # a NUL
        text = f"cannot be read: {error}"
    raise SpecError([Problem(name, text)])


def read_stdin(path: Path | None) -> bytes:
    """Return standard input for STDIN, and nothing for other files. SpecError if it is closed."""
    if path != STDIN:
        return b""
    if sys.stdin is None:
        raise SpecError([Problem("stdin", "is closed; pipe the job spec to it, or use a file")])
    return sys.stdin.buffer.read(yaml_source.MAX_BYTES + 1)


def _name_option(name: str) -> str:
    return name if name.startswith("--") else f"--set {name}"


def _split_fields(fields: Mapping[str, Any]) -> Iterator[Setting]:
    """Yield what fields of Python set: each field of a section by itself."""
    for name, value in fields.items():
        parts = {(name, key): part for key, part in value.items()} if isinstance(value, dict) else {}
        for path, part in parts.items():
            yield Setting(f"{dotted(path)}, given to load()", path, part)
        if not parts:
            yield Setting(f"{name}, given to load()", (name,), value)


def _parse_settings(name: str, value: str, data: dict[str, Any]) -> list[Setting]:
    """Return what a setting sets: one value, or items at the end of a list."""
    setting = _parse_setting(name.removesuffix("+"), value, data)
    if not name.endswith("+"):
        return [setting]
    here: Any = data
    for part in setting.path:
        here = here.get(part) if isinstance(here, dict) else None
    first = len(here) if isinstance(here, list) else 0
    items = setting.value if isinstance(setting.value, list) else [setting.value]
    return [Setting(_name_option(name), (*setting.path, first + n), item) for n, item in enumerate(items)]


def _parse_setting(name: str, value: str, data: dict[str, Any]) -> Setting:
    if value == _HIDDEN:
        raise ValueError(f"replace {_HIDDEN} by the value")
    if name in FLAGS:
        return Setting(name, tuple(FLAGS[name].split(".")), value)
    if name == "--env":
        variable, equals, text = value.partition("=")
        if text == _HIDDEN:
            raise ValueError(f"{variable}: replace {_HIDDEN} by the value")
        return Setting(f"--env {variable}", ("env", variable), text if equals else None)
    if name == "--mount":
        container = data.get("container")
        mounts = container.get("mounts") if isinstance(container, dict) else None
        return Setting(
            f"--mount {value}", ("container", "mounts", len(mounts) if isinstance(mounts, list) else 0), value
        )
    path = tuple(name.split("."))
    if not all(path):
        raise ValueError("expected the dotted path of a field, e.g. container.shm_size")
    return Setting(_name_option(name), path, _parse_value(value))


def _parse_value(text: str) -> Any:
    if text in ("", "~", "null"):
        return None
    if text.lstrip()[:1] not in ("[", "{", '"', "'"):
        return text
    try:
        source = yaml_source.read("", text)
        problems = [problem for _, problem in source.problems]
    except SpecError as error:
        problems = error.problems
    if problems:
        raise ValueError("; ".join(problem.text for problem in problems))
    return source.data


def _put(data: dict[str, Any], path: yaml_source.Path, value: Any) -> None:
    """Set a value at a path; ValueError if a section on the way is something else."""
    *sections, last = path
    here: Any = data
    for depth, name in enumerate(sections, start=1):
        kind, expected = (list, "a list") if isinstance(path[depth], int) else (dict, "`name: value` pairs")
        if here.get(name) is None:
            here[name] = kind()
        if not isinstance(here[name], kind):
            raise ValueError(f"{dotted(path[:depth])}: expected {expected}, got {shown(here[name])}")
        here = here[name]
    if isinstance(here, list):
        here.append(value)
    else:
        here[last] = value
