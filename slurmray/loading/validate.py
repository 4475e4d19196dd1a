"""What is wrong with a job spec besides its fields: files that are not there, and what its preset finds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from slurmray.errors import Problem, SpecError
from slurmray.presets import advise
from slurmray.spec.job import JobSpec
from slurmray.spec.types import shown

_BUILD = ("container", "build")


def review(spec: JobSpec) -> list[Problem]:
    """Return all of it; a problem with a `where` is one of the trainer's own file, the others have a `path`.

    Relative paths are looked up in the current folder: a job is submitted where it was rendered.
    """
    found = _missing(spec.container.build.model_dump()) if spec.container.build else []
    try:
        advice = advise(spec)
    except SpecError as error:
        return found + error.problems
    found += [Problem("", finding.text, finding.path) for finding in advice.problems]
    return found + advice.config_problems


def missing_besides(data: Mapping[str, object], known: Sequence[Problem]) -> list[Problem]:
    """Return which files are not there of a spec that is no JobSpec, for fields without a known mistake."""
    container = data.get("container")
    build = container.get("build") if isinstance(container, Mapping) else None
    wrong = {problem.path[:3] for problem in known}
    if not isinstance(build, Mapping) or _BUILD in wrong:
        return []
    return _missing({name: value for name, value in build.items() if (*_BUILD, name) not in wrong})


def _missing(build: Mapping[str, object]) -> list[Problem]:
    given = ((name, build.get(name)) for name in ("file", "context"))
    return [problem for name, value in given if isinstance(value, str) for problem in _absent(name, value)]


def _absent(name: str, value: str) -> list[Problem]:
    try:
        target = Path(value).expanduser()
        if target.is_file() if name == "file" else target.is_dir():
            return []
        kind = "file" if name == "file" else "folder"
        if target.is_dir():
            words = f"{target} is a folder; name the file in it"
        else:
            words = f"{target} is no {kind}" if target.exists() else f"no such {kind}: {target}"
    except RuntimeError:
        words = f"{value}: there is no such home folder here; write the path without ~"
    except OSError as error:
        words = f"{shown(value)}: can't be read: {error.strerror}"
    return [Problem("", f"container.build.{name}: {words}", (*_BUILD, name))]
