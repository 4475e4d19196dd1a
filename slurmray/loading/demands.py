"""What a profile demands of a job spec: fields that may not be set, and values that fields must have."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any, NamedTuple

from pydantic import BaseModel, ValidationError, create_model
from pydantic.fields import FieldInfo

from slurmray.errors import Problem
from slurmray.slurm import syntax
from slurmray.spec.job_spec import JobSpec
from slurmray.spec.slurm_section import Component, Model, SlurmGroup
from slurmray.spec.types import check_items, shown
from slurmray.spec.validation_errors import dotted, explain_unknown, list_problems, walk_models
from slurmray.yaml_source import Path, Source


class Demand(NamedTuple):
    """The values that a field may have. wanted: why no others, or which. rule: the demand in one line.

    Both texts name its place in a configuration file.
    """

    field: str
    allowed: list[Any]
    wanted: str
    rule: str

    def problems(self, spec: JobSpec) -> Iterator[Problem]:
        """Yield a problem for each value in a job spec that does not meet the demand."""
        *section, name = self.field.split(".")
        values = dict(_walk(spec, [*section, name], ()))
        if section == ["slurm"] and spec.slurm.groups and name in SlurmGroup.model_fields:
            of_groups = _walk(spec, ["slurm", "groups", name], ())
            common = values["slurm", name]
            values = {("slurm", name) if value == common else path: value for path, value in of_groups}
        for path, value in values.items():
            if value not in self.allowed:
                yield Problem("", f"{dotted(path)}: {shown(value)} is not allowed: {self.wanted}", path)


def take_demands(part: Source) -> Iterator[Demand]:
    """Remove `forbid` and `require` from a profile of a file, and yield what they demand."""
    for field, reason in (part.data.pop("forbid", None) or {}).items():
        default = find_field(field).get_default(call_default_factory=True)
        why = f"{reason} ({part.where(part.keys['forbid', field])})"
        yield Demand(field, [None, default], why, f"{field} is not allowed: {why}")
    for field, value in (part.data.pop("require", None) or {}).items():
        allowed = parse_allowed(field, value)
        values = f"{' or '.join(map(shown, allowed))} ({part.where(part.keys['require', field])})"
        yield Demand(field, allowed, f"expected {values}", f"{field} must be {values}")


def find_field(field: str) -> FieldInfo:
    """Return a field of the job spec by its dotted path; ValueError if there is none."""
    names: Path = tuple(field.split("."))
    models: list[type[BaseModel]] = [JobSpec]
    for depth, name in enumerate(names):
        if not models:
            raise ValueError(f"{dotted(names[:depth])} has no fields")
        if not (found := [model.model_fields[name] for model in models if name in model.model_fields]):
            raise ValueError(explain_unknown(names[: depth + 1], JobSpec))
        models = list(walk_models(found[0].annotation))
    return found[0]


def parse_allowed(field: str, value: object) -> list[Any]:
    """Return the values that a field may have, as the field has them. value: one of them, or a list.

    null stands for the default. ValueError for values that the field cannot have.
    """
    info, (section, dot, name) = find_field(field), field.rpartition(".")
    model = create_model("Field", __base__=Model, **{name: (info.annotation, copy.copy(info))})  # type: ignore[call-overload]

    def parse(item: object) -> Any:
        try:
            return getattr(model(**{name: item}), name)
        except ValidationError as error:
            texts = (problem.text for problem in list_problems(error, model))
            raise ValueError(*(section + dot + text for text in texts)) from None

    if value == []:
        raise ValueError(f"{field}: expected a value, or a list of values")
    return check_items(parse, (("", item) for item in (value if isinstance(value, list) else [value])))


def _walk(value: Any, names: list[str], path: Path) -> Iterator[tuple[Path, Any]]:
    """Yield the path and value of a field, for each item of a list; None in a section that is not set."""
    if names and isinstance(value, list):
        for number, item in enumerate(value):
            yield from _walk(item, names, (*path, number))
    elif names and isinstance(value, BaseModel):
        yield from _walk(_value(value, names[0]), names[1:], (*path, names[0]))
    else:
        yield (*path, *names), None if names else value


def _value(section: BaseModel, name: str) -> Any:
    """Return the value of a field, which may also be an option in `extra`."""
    extra = section.extra if isinstance(section, Component) and name != "extra" else []
    options = {option: value is None or value for option, value in map(syntax.split_extra, extra)}
    return options.get(name.replace("_", "-"), getattr(section, name))
