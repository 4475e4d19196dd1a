"""What is wrong with a job spec besides its fields: files that are not there, and what its preset finds."""

from __future__ import annotations

from pathlib import Path

from slurmray.container_options import Build
from slurmray.errors import Problem, SpecError
from slurmray.presets import advise
from slurmray.spec import JobSpec
from slurmray.values import shown


def review(spec: JobSpec) -> list[Problem]:
    """Return all of it; a problem with a `where` is one of the trainer's own file, the others have a `path`.

    Relative paths are looked up in the current folder: a job is submitted where it was rendered.
    """
    found = _missing(spec.container.build) if spec.container.build else []
    try:
        advice = advise(spec)
    except SpecError as error:
        return found + error.problems
    found += [Problem("", finding.text, finding.path) for finding in advice.problems]
    return found + advice.config_problems


def _missing(build: Build) -> list[Problem]:
    return _absent("file", build.file) + _absent("context", build.context)


def _absent(name: str, value: str) -> list[Problem]:
    try:
        target = Path(value).expanduser()
        if target.is_file() if name == "file" else target.is_dir():
            return []
        words = f"no such {'file' if name == 'file' else 'folder'}: {target}"
    except RuntimeError:
        words = f"{value}: there is no such home folder here; write the path without ~"
    except OSError as error:
        words = f"{shown(value)}: can't be read: {error.strerror}"
    return [Problem("", f"container.build.{name}: {words}", ("container", "build", name))]
