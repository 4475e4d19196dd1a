"""Options of `ray start` and `ray job submit`, as fields of a job spec."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from slurmray.agent.paths import TEMP_DIR_MAX
from slurmray.importing.draft import Draft
from slurmray.importing.known import RAY
from slurmray.importing.options import (
    ABSOLUTE_PATH,
    PATH,
    Action,
    Option,
    Table,
    Target,
    append,
    field,
    look,
    skip,
    when,
)
from slurmray.importing.slurm_options import count_gpus


def set_gpus(draft: Draft, count: str, lines: Sequence[int]) -> None:
    """Set the GPUs of each node, which the directives do not ask for."""
    draft.set("ray.gpus_per_node", count, lines)
    draft.look(lines, "the directives ask for no GPUs: set slurm.gpus_per_node if Slurm has them")


def merge_arguments(draft: Draft) -> None:
    """Move the arguments that head node and workers have in common to ray.args."""
    places: dict[str, dict[str, set[int]]] = {}
    for place in ("head_args", "worker_args"):
        for number, argument in enumerate(draft.fields.pop(("ray", place), [])):
            places.setdefault(argument, {})[place] = draft.lines.pop(("ray", place, str(number)))
    for argument, lines in places.items():
        path = "ray.args" if len(lines) > 1 else f"ray.{next(iter(lines))}"
        draft.add(path, argument, sorted(set().union(*lines.values())))


def _num_gpus(target: Target, option: Option) -> None:
    ours, its = count_gpus(target.draft), option.text or ""
    if its == ours or not its.isdecimal():
        target.draft.skip(option.lines, "Ray gets slurm.gpus_per_node")
    elif ours is None:
        set_gpus(target.draft, its, option.lines)
    else:
        look(f"Ray had {its} GPUs of {ours}: see ray.head.gpus and services[].gpus")(target, option)


def set_temp_dir(target: Target, option: Option) -> None:
    """Set the folder of Ray's sessions."""
    field("ray.temp_dir", ABSOLUTE_PATH)(target, option)
    path = option.value.path or ""
    if "$" in path or len(path) > TEMP_DIR_MAX:
        look(f"the path may have {TEMP_DIR_MAX} characters at most on each node")(target, option)


def _start(path: str, *rows: tuple[str, Action]) -> Table:
    """Return the options of a `ray start`. path: of the list for those that have no field. rows: they win."""
    free = skip("slurmray takes a free port")
    return Table(
        ("--head --block --address= --node-ip-address= --node-name= --min-nodes=", skip(RAY)),
        ("--dashboard-host= --include-dashboard=", skip("see slurmray dashboard")),
        ("-v --verbose --no-redirect-output --log-style=", skip("the job's log has Ray's output")),
        ("--disable-usage-stats", skip("usage statistics are off")),
        ("--num-cpus=", skip("Ray gets slurm.cpus_per_task")),
        ("--num-gpus=", _num_gpus),
        ("--redis-password=", skip("the job has a token instead")),
        ("--port=", when("(?!6379$)[0-9]+", field("ray.port"), free)),
        ("--dashboard-port=", when("(?!8265$)[0-9]+", field("ray.dashboard_port"), free)),
        ("--temp-dir=", set_temp_dir),
        ("--ray-debugger-external", field("ray.debug", lambda _: "legacy")),
        ("--metrics-export-port=", field("ray.metrics", lambda _: "true")),
        *rows,
        flags="--no-monitor --no-redirect-worker-output --enable-object-reconstruction",
        other=append(path),
    )


_NONE = (
    ("--num-cpus=", when("0", field("ray.head.cpus"), skip("Ray gets slurm.cpus_per_task"))),
    ("--num-gpus=", when("0", field("ray.head.gpus"), _num_gpus)),
)
HEAD = _start("ray.head_args", *_NONE)
WORKER, ALL = _start("ray.worker_args"), _start("ray.args")


def _environment(read: Callable[[Option], Any]) -> Action:
    """Return what sets ray.runtime_env without its secrets, which env then has."""

    def set_environment(target: Target, option: Option) -> None:
        draft, value = target.draft, read(option)
        variables = value.get("env_vars") if isinstance(value, dict) else None
        variables = variables if isinstance(variables, dict) else {}
        for name, text in list(variables.items()):
            if draft.is_secret(name, str(text)):
                del variables[name]
                draft.set_variable(name, None, option.lines)
        before = draft.get("ray.runtime_env")
        if isinstance(before, dict) and isinstance(value, dict):
            value = draft.fields["ray", "runtime_env"] = {**before, **value}
        field("ray.runtime_env", lambda _: value or None)(target, option)
        if value:
            draft.set("launch", "ray-job", option.lines)

    return set_environment


def _json(option: Option) -> object:
    try:
        return json.loads(option.text or "")
    except (ValueError, RecursionError):
        return None


SUBMIT = Table(
    ("--runtime-env=", _environment(PATH)),
    ("--runtime-env-json=", _environment(_json)),
    ("--working-dir=", _environment(lambda option: option.value.path and {"working_dir": option.value.path})),
    (
        "--address= --headers= --log-style= --submission-id= --no-wait --no-verify -v --verbose --follow",
        skip("the trainer starts on the head node, and the job waits for it"),
    ),
    other=look("see launch: ray-job and ray.runtime_env"),
)
