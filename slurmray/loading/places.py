"""Places of mistakes: in a file, on the command line, or in what load() was given."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any, NamedTuple

from slurmray import yaml_source
from slurmray.errors import Problem
from slurmray.spec.validation_errors import dotted
from slurmray.yaml_source import Source

LAST = (sys.maxsize, 0)  # sorts mistakes on the command line after those in the file


class Setting(NamedTuple):
    """A value from the command line. place: the option, for messages."""

    place: str
    path: yaml_source.Path
    value: Any


def place_problem(
    source: Source, given: Sequence[Setting], problem: Problem
) -> tuple[yaml_source.Place, Problem]:
    """Return the place of a problem as a sort key, and the problem with the place as text."""
    if problem.where:
        return LAST, problem
    at, where = _find_place(source, given, problem.path)
    field, message = _strip_mark(problem.path), problem.text
    if at == LAST and any(setting.path == field for setting in given):
        message = message.removeprefix(f"{dotted(field)}: ")  # the place names the field already
    return at, Problem(where, message, problem.path)


def _find_place(
    source: Source, given: Sequence[Setting], path: yaml_source.Path
) -> tuple[yaml_source.Place, str]:
    """Return the place of a path, as a sort key and as text for users."""
    loc = _strip_mark(path)
    for setting in reversed(given):
        if loc[: len(setting.path)] == setting.path:
            return LAST, setting.place
    if loc != path and loc in source.keys:
        return source.keys[loc], source.where(source.keys[loc], loc)
    for length in range(len(loc), 0, -1):
        if place := source.values.get(loc[:length]):
            return place, source.where(place, loc[:length])
    for setting in reversed(given):
        if setting.path[: len(loc)] == loc:
            return LAST, setting.place
    return (0, 0), source.name


def _strip_mark(loc: yaml_source.Path) -> yaml_source.Path:
    """Return a path without the mark `[key]`, which stands for the name of a field."""
    return loc[:-1] if loc[-1:] == ("[key]",) else loc
