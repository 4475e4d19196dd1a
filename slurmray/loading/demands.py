"""What a profile demands of a job spec: fields that may not be set, and values that fields must have."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from pydantic import BaseModel, ValidationError, create_model

from slurmray.errors import Problem
from slurmray.slurm import syntax
from slurmray.spec.job_spec import JobSpec
from slurmray.spec.slurm_section import Component, Model, SlurmGroup, SlurmOptions
from slurmray.spec.types import shown
from slurmray.spec.validation_errors import dotted, explain_unknown, list_problems, walk_models
from slurmray.yaml_source import Path

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo


class Demand(NamedTuple):
    """A demand on a field, named by its dotted path. where: its place in a configuration file.

    allowed: the values that the field may have; None: it may not be set. reason: why not.
    """

    field: str
    where: str
    allowed: list[Any] | None = None
    reason: str = ""

    def __str__(self) -> str:
        if self.allowed is None:
            return f"{self.field} is not allowed: {self.reason} ({self.where})"
        return f"{self.field} must be {_alternatives(self.allowed)} ({self.where})"

    def problems(self, spec: JobSpec) -> Iterator[Problem]:
        """Yield a problem for each value in a job spec that does not meet the demand."""
        default = find_field(self.field).get_default(call_default_factory=True)
        for path, value in dict(_values(spec, tuple(self.field.split(".")))).items():
            if self.allowed is None and value not in (None, default):
                wanted = self.reason
            elif self.allowed is not None and value not in self.allowed:
                wanted = f"expected {_alternatives(self.allowed)}"
            else:
                continue
            text = f"{dotted(path)}: {shown(value)} is not allowed: {wanted} ({self.where})"
            yield Problem("", text, path)


def find_field(field: str) -> FieldInfo:
    """Return a field of the job spec by its dotted path; ValueError if there is none."""
    names = tuple(field.split("."))
    models: list[type[BaseModel]] = [JobSpec]
    for depth, name in enumerate(names, start=1):
        if not models:
            raise ValueError(f"{dotted(names[: depth - 1])} has no fields")
        fields = [model.model_fields[name] for model in models if name in model.model_fields]
        if not fields:
            raise ValueError(explain_unknown(names[:depth], JobSpec))
        models = list(walk_models(fields[0].annotation))
    return fields[0]


def parse_allowed(field: str, value: object) -> list[Any]:
    """Return the values that a field may have, as the field has them. value: one of them, or a list.

    null stands for the default. ValueError for values that the field cannot have.
    """
    info, (section, _, name) = find_field(field), field.rpartition(".")
    model = create_model("Field", __base__=Model, **{name: (info.annotation, copy.copy(info))})  # type: ignore[call-overload]
    allowed, wrong = [], []
    for alternative in value if isinstance(value, list) else [value]:
        try:
            allowed.append(getattr(model(**{name: alternative}), name))
        except ValidationError as error:
            wrong += [f"{section and section + '.'}{problem.text}" for problem in list_problems(error, model)]
    if wrong or not allowed:
        raise ValueError(*wrong or [f"{field}: expected a value, or a list of values"])
    return allowed


def _alternatives(values: list[Any]) -> str:
    return " or ".join(map(shown, values))


def _values(spec: JobSpec, names: tuple[str, ...]) -> Iterator[tuple[Path, Any]]:
    """Yield the path and value of a field, for each item of a list; None in a section that is not set."""
    if names[0] == "slurm" and len(names) == 2:
        return _slurm_values(spec.slurm, names[1])
    return _walk(spec, names, ())


def _walk(value: Any, names: tuple[str, ...], path: Path) -> Iterator[tuple[Path, Any]]:
    if names and isinstance(value, list):
        for number, item in enumerate(value):
            yield from _walk(item, names, (*path, number))
    elif names and isinstance(value, BaseModel):
        yield from _walk(getattr(value, names[0]), names[1:], (*path, names[0]))
    else:
        yield (*path, *names), None if names else value


def _slurm_values(slurm: SlurmOptions, name: str) -> Iterator[tuple[Path, Any]]:
    """In a job with groups, yield the values of the groups, by the path of the section that sets them."""
    common = _option(slurm, name)
    if not slurm.groups or name not in SlurmGroup.model_fields:
        yield ("slurm", name), common
        return
    for number, group in enumerate(slurm.groups):
        value = _option(group, name)
        yield ("slurm", name) if value == common else ("slurm", "groups", number, name), value


def _option(section: Component, name: str) -> Any:
    """Return the value of a field, which may also be an option in `extra`."""
    extra = {} if name == "extra" else dict(map(syntax.split_extra, section.extra))
    value = extra.get(option := name.replace("_", "-"), getattr(section, name))
    return True if value is None and option in extra else value
