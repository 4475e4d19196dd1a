"""Turns pydantic's errors into messages for users."""

from __future__ import annotations

import difflib
import typing
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

from slurmray.errors import MAX_SHOWN, Problem
from slurmray.slurm import syntax
from slurmray.spec.types import shown
from slurmray.yaml_source import Path

if TYPE_CHECKING:
    from pydantic import ValidationError
    from pydantic_core import ErrorDetails


# pydantic's type of error (docs.pydantic.dev, "Validation Errors") -> message.
_MESSAGES = {
    "string_type": "expected text, got {got}",
    "string_unicode": "not UTF-8; a job spec holds text only",
    "list_type": "expected a list, got {got}",
    "dict_type": "expected `name: value` pairs, got {got}",
    "model_type": "expected `name: value` pairs, got {got}",
    "literal_error": "expected {expected}, got {got}",
    "greater_than_equal": "expected {ge} or more, got {got}",
    "less_than_equal": "expected {le} or less, got {got}",
    "missing": "is required",
}


_OTHER_SHAPES = (
    "list_type",
    "dict_type",
    "model_type",
    "string_type",
)  # a list, a section or text is expected

_SIMILAR = 0.7  # of difflib: `requirements` is not meant as `requeue`

# What people write for a field, in any section -> what it is called here.
_OTHER_NAMES = {
    **dict.fromkeys(("cmd", "command", "entrypoint", "script", "trainer"), "run"),
    **dict.fromkeys(("environment", "env_vars", "envs"), "env"),
    **dict.fromkeys(("volumes", "binds"), "container.mounts"),
    **dict.fromkeys(("container_image", "docker_image"), "container.image"),
    **dict.fromkeys(("num_nodes", "nnodes"), "slurm.nodes"),
    **dict.fromkeys(("num_gpus", "gpus_per_worker", "ngpus"), "slurm.gpus_per_node"),
    **dict.fromkeys(("num_cpus", "cpus"), "slurm.cpus_per_task"),
    **dict.fromkeys(("mem_per_node", "memory"), "slurm.mem"),
    **dict.fromkeys(("walltime", "time_limit"), "slurm.time"),
    **dict.fromkeys(("queue",), "slurm.partition"),
    **dict.fromkeys(("modules", "module"), "setup: module load NAME"),
    **dict.fromkeys(("pip", "conda", "requirements", "dependencies"), "ray.runtime_env"),
    **dict.fromkeys(("working_dir", "cwd"), "container.workdir"),
    **dict.fromkeys(("shm", "shm_size"), "container.shm_size"),
}


# What people write in a section -> where it comes from instead.
_ELSEWHERE: dict[Path, str] = {
    ("ray", "version"): "Ray is that of the image, container.image",
    ("ray", "address"): "the job starts a Ray cluster of its own, so leave it out",
}

# Field -> an example of its value.
_EXAMPLES = {
    "container": "{image: my/image:1}",
    "env": "{NCCL_DEBUG: INFO}",
    "mounts": "[/data, /scratch/me:/work]",
    "notify": "{url: env:SLACK_WEBHOOK, on: [end]}",
    "partition": "gpu,cpu",
    "paths": "[/data]",
    "prepare": "[{name: data, run: python3 get.py}]",
    "ready": "{http: http://localhost:8000/health}",
    "requeue": "{max: 2}",
    "restart": "{max: 3}",
    "services": "[{name: judge, run: python3 judge.py}]",
    "slurm": "{nodes: 2}",
    "setup": "module load cuda && . venv/bin/activate",
    "sync": "[train.py]",
    "watch": "{stall: 30m}",
}


def list_problems(error: ValidationError, model: type[BaseModel]) -> list[Problem]:
    """Return the problems in an error. model: the class whose fields have them."""
    details = error.errors(include_url=False)
    return [
        problem
        for number, detail in enumerate(details)
        for problem in _describe(detail, model, has_hint=number < MAX_SHOWN)
    ]


def _describe(error: ErrorDetails, model: type[BaseModel], *, has_hint: bool) -> Iterator[Problem]:
    """Yield the problems in an error. has_hint: whether to look for what an unknown field stands for."""
    path = error["loc"]
    if error["type"] == "extra_forbidden":
        text = explain_unknown(path, model) if has_hint else "unknown field"
        yield Problem("", f"{dotted(path)}: {text}", (*path, "[key]"))
        return
    field = path[:-1] if path[-1:] == ("[key]",) else path
    named = [part for part in path if isinstance(part, str)]
    example = _EXAMPLES.get(named[-1], "") if named and error["type"] in _OTHER_SHAPES else ""
    for text in _format_messages(error["type"], error["input"], error.get("ctx", {}), error["msg"]):
        text += f", e.g. {named[-1]}: {example}" if example else ""  # noqa: PLW2901
        yield Problem("", f"{dotted(field)}: {text}" if field else text, path)


def dotted(path: Path) -> str:
    """Return a path for messages, e.g. `container.mounts, item 2` or `services, item 1, ready.http`."""
    text = ""
    for number, part in enumerate(path):
        if isinstance(part, int):
            text += f", item {part + 1}"
        elif number:
            text += ("." if isinstance(path[number - 1], str) else ", ") + part
        else:
            text = part
    return text


def _format_messages(kind: str, value: object, context: dict[str, Any], message: str) -> list[str]:
    if kind == "value_error":
        return [str(text) for text in context["error"].args]
    expected = str(context.get("expected", "")).replace("'", "")
    return [_MESSAGES.get(kind, message).format(**{**context, "expected": expected, "got": shown(value)})]


def _walk_sections(model: type[BaseModel], path: Path = ()) -> Iterator[tuple[Path, list[str]]]:
    """Yield the path, without positions, and the field names of every section of the job spec."""
    yield path, list(model.model_fields)
    for name, info in model.model_fields.items():
        for part in walk_models(info.annotation):
            yield from _walk_sections(part, (*path, name))


def walk_models(annotation: Any) -> Iterator[type[BaseModel]]:
    """Yield the sections in the type of a field."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for candidate in typing.get_args(annotation):
        yield from walk_models(candidate)


def explain_unknown(path: Path, model: type[BaseModel]) -> str:
    """Return a message about a field that does not exist. model: the class with all sections."""
    section, name = tuple(part for part in path[:-1] if isinstance(part, str)), str(path[-1])
    of_slurm = (("slurm",), ("slurm", "groups"))
    if section in ((), *of_slurm) and (instead := syntax.RESERVED.get(name.replace("_", "-"))):
        return instead
    if text := _ELSEWHERE.get((*section, name)):
        return f"unknown field; {text}"
    sections = dict(_walk_sections(model))
    if meant := _guess_field(section, name.replace("-", "_"), sections):
        return f"unknown field, did you mean {meant}?"
    if section in of_slurm:
        option = name.replace("_", "-")
        return (
            f"unknown field; if your Slurm has this option, put --{option}=VALUE into {dotted(section)}.extra"
        )
    return f"unknown field; known here: {', '.join(sections.get(section, []))}"


def _guess_field(section: Path, name: str, sections: dict[Path, list[str]]) -> str:
    """Return the field that an unknown one probably stands for; "" if there is none."""
    fields = sections.get(section, [])
    if name in fields:
        return name
    if name == "runtime" and not section:  # not slurm.runtime
        return "container.runtime"
    if name in _OTHER_NAMES:
        return _OTHER_NAMES[name]
    for other, names in sections.items():
        if name in names:
            return dotted((*other, name))
    return next(iter(difflib.get_close_matches(name, fields, n=1, cutoff=_SIMILAR)), "")
