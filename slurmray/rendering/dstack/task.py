"""Renders a job spec as a dstack task: the same Ray cluster and trainer, in containers that dstack starts.

Sources in dstack 0.22: fields of a task, dstack._internal.core.models; how a task runs, JobConfigurator of
the server and runner/internal/runner/executor.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import yaml
from pydantic import BaseModel

from slurmray._version import __version__
from slurmray.agent.container import ports as port_places
from slurmray.agent.paths import VARIABLE
from slurmray.errors import Problem, SpecError
from slurmray.plan import Plan
from slurmray.rendering.dstack.node_commands import FACTS, choose_ports, make_commands, make_environment
from slurmray.slurm import syntax
from slurmray.spec.job_spec import JobSpec
from slurmray.spec.mounts import Mount
from slurmray.spec.types import shown
from slurmray.spec.validation_errors import dotted

# Fields and sections that a task uses.
USED = {
    *("include", "name", "preset", "setup", "env", "prepare", "run", "stop.signal", "requeue.max"),
    *("ray.port", "ray.dashboard_port", "ray.ready_timeout", "ray.temp_dir", "ray.auth", "ray.metrics"),
    *("ray.args", "ray.head_args", "ray.worker_args", "ray.gpus_per_node"),
    *("slurm.nodes", "slurm.gpus_per_node", "slurm.gres", "slurm.cpus_per_task", "slurm.mem", "slurm.time"),
    *("container.image", "container.user", "container.accelerator", "container.mounts"),
    *("container.workdir", "container.shm_size"),
}
# Fields and sections that dstack has no use for; leaving them out does not change the trainer's results.
LEFT_OUT = {
    *("slurm", "run_dir", "container.pull", "container.stage", "container.ulimits", "checks"),
    *("preflight", "stop.lead", "stop.grace", "ray.start", "ray.keep_logs", "heartbeat_timeout", "watch"),
}
# What to do about some of the other fields, which are all refused.
FIXES = {
    "container.build": "dstack builds no image; push yours to a registry and name it in container.image",
    "container.runtime": "dstack runs containers with Docker; set it to auto",
    "container.python": "dstack starts the Ray of PATH; activate its environment in setup",
    "network.family": "dstack chooses the addresses of the nodes; set it to auto",
    "ray.head": "under dstack all nodes offer the same; leave ray.head out",
    "notify": "dstack sends no notices; leave notify out",
    "sync": "dstack copies files by its own `files`; leave sync out",
    "sweep": "dstack has no arrays; submit one run for each combination",
    "spares": "dstack replaces no nodes; leave spares out",
    "on_node_loss": "dstack ends a run when it loses a node; set it to fail",
}
_NO_VARIABLES = "dstack expands no variables; write the path"
_UNITS = {"d": 86400, "h": 3600, "m": 60, "s": 1}


class _Dumper(yaml.SafeDumper):
    """Writes multi-line texts as YAML blocks."""


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.Node:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Dumper.add_representer(str, _represent_text)


def render_task(plan: Plan) -> str:
    """Return the task as YAML, the same for the same input; SpecError lists what dstack cannot do."""
    header = f"# Rendered by slurmray {__version__} from a job spec: render it again rather than edit it.\n"
    task = make_task(plan)
    return header + yaml.dump(task, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=110)


def remarks(plan: Plan) -> list[str]:
    """Return the preset's remarks, and one line for each difference from the same job on Slurm."""
    spec, advice = plan.spec, plan.advice
    lines = list(advice.remarks)
    unused = [path for path in _list_changed(spec) if _find_section(path) in LEFT_OUT]
    others = (name for name in syntax.gres_elements(spec.slurm.gres or "none") if not syntax.is_gpu(name))
    unused += [f"{name} of slurm.gres" for name in others if name not in ("", "none")]
    if unused:
        lines.append(f"not used by dstack, left out: {', '.join(unused)}")
    for name in (name for name, fact in advice.node_env.items() if fact not in FACTS):
        lines.append(
            f"{name} is not set, because dstack chooses the network; if it chooses a wrong interface, set "
            f"{name} in env"
        )
    if spec.setup:
        lines.append("setup runs in the container under dstack: remove commands that are for the host")
    if spec.requeue.max:
        lines.append("requeue.max: dstack restarts the run after every interruption, without a limit")
        if any(item.once for item in spec.prepare):
            lines.append("prepare: steps with `once: true` run again after each restart")
    if not spec.container.shm_size:
        lines.append(
            "container.shm_size is not set: /dev/shm has 64 MB under dstack; set a larger size, e.g. 64g"
        )
    return lines


def make_task(plan: Plan) -> dict[str, Any]:
    """Return the fields of the task (dstack.ai/docs/reference/dstack.yml/task); errors as in render_task."""
    spec, advice = plan.spec, plan.advice
    problems = [
        _refusal(path, FIXES.get(path, f"not supported by dstack; leave it out: --set {path}=null"))
        for path in _list_changed(spec)
        if _find_section(path) not in USED | LEFT_OUT
    ]
    problems += [
        _refusal(
            "prepare",
            f"{item.name}: under dstack prepare steps run on the head node only; move it to setup",
            number,
        )
        for number, item in enumerate(spec.prepare)
        if item.where == "all"
    ]
    problems += [
        _refusal(path, _NO_VARIABLES)
        for path, value in (
            ("container.workdir", spec.container.workdir),
            ("ray.temp_dir", spec.ray.temp_dir),
        )
        if re.search(VARIABLE, value or "")
    ]
    if dict(spec.slurm.given()).get("array"):
        problems.append(_refusal("slurm.array", "dstack has no arrays; submit one run for each index"))
    if spec.slurm.groups:
        problems.append(
            _refusal("slurm.groups", "under dstack all nodes are alike; use nodes and gpus_per_node")
        )

    def convert(path: str, make: Callable[..., Any], *given: object, items: tuple[int, ...] = ()) -> Any:
        try:
            return make(*given)
        except ValueError as error:
            problems.append(_refusal(path, str(error), *items))

    spec = spec.model_copy(update={"run": advice.run, "env": {**advice.env, **spec.env}})
    container = spec.container
    sbatch = dict(spec.slurm.given())
    resources = {
        "cpu": f"{spec.slurm.cpus_per_task}.." if spec.slurm.cpus_per_task else None,
        "memory": _convert_memory(sbatch.get("mem")),
        "gpu": _convert_gpus(spec),
        "shm_size": _convert_size(container.shm_size, "B") if container.shm_size else None,
    }
    task = {
        "type": "task",
        "name": convert("name", _check_name, spec.name),
        "nodes": spec.slurm.nodes,
        "stop_criteria": "master-done",  # Ray on the worker nodes would not end by itself
        "max_duration": _convert_duration(sbatch.get("time")),
        "retry": {"on_events": ["interruption"]} if spec.requeue.max else None,
        "image": container.image,
        "user": container.user if container.user not in ("auto", "image") else None,
        "working_dir": container.workdir,
        "env": make_environment(spec),
        "shell": "bash",
        "commands": convert("ray", make_commands, spec, advice.node_env),
        "ports": [choose_ports(spec)[port_places.DASHBOARD]],
        "resources": _drop_unset(resources),
        "volumes": [
            convert("container.mounts", _convert_mount, mount, items=(number,))
            for number, mount in enumerate(container.mounts)
        ],
    }
    if problems:
        raise SpecError(problems)
    return _drop_unset(task)


def _refusal(dotted_path: str, text: str, *items: int) -> Problem:
    path: tuple[str | int, ...] = (*dotted_path.split("."), *items)
    return Problem("", f"{dotted(path)}: {text}", path)


def _drop_unset(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value not in (None, [], {})}


def _list_changed(model: BaseModel, above: str = "") -> Iterator[str]:
    """Yield the dotted path of each field whose value is not the default."""
    for name, field in type(model).model_fields.items():
        value, path = getattr(model, name), above + name
        if value == field.get_default(call_default_factory=True):
            continue
        if isinstance(value, BaseModel) and path not in FIXES:
            yield from _list_changed(value, f"{path}.")
        elif (path, value) != ("container.runtime", "docker"):
            yield path


def _find_section(path: str) -> str | None:
    """Return the longest entry of USED and LEFT_OUT that contains a path; None if there is none."""
    names = path.split(".")
    sections = (".".join(names[:length]) for length in range(len(names), 0, -1))
    return next((section for section in sections if section in USED | LEFT_OUT), None)


# -- fields ----------------------------------------------------------------------------------------


def _check_name(name: str) -> str:
    rule = r"[a-z][a-z0-9-]{1,40}"  # core/services: is_valid_dstack_resource_name
    if re.fullmatch(rule, name):
        return name
    guess = re.sub(r"[^a-z0-9]+", "-", name.lower())[:41].strip("-")
    hint = f", e.g. --set name={guess}" if re.fullmatch(rule, guess) else ""
    raise ValueError(
        f"dstack expects 2 to 41 of a-z, 0-9 and -, beginning with a letter{hint}; got {shown(name)}"
    )


def _convert_gpus(spec: JobSpec) -> str | int | None:
    """Return the GPUs of a node for dstack. Slurm's GPU type is passed as the name: `h100` is in both."""
    if not spec.gpus or spec.container.accelerator == "none":
        return None
    if spec.slurm.gpus_per_node is not None:
        kind = syntax.gpus_in_count(spec.slurm.gpus_per_node)[0]
    else:
        kind = syntax.gpus_in_gres(spec.slurm.gres or "")[0]
    vendor = "" if spec.container.accelerator == "auto" else spec.container.accelerator
    parts = [part for part in (vendor, kind) if part]
    return ":".join([*parts, str(spec.gpus)]) if parts else spec.gpus


def _convert_memory(size: str | None) -> str | None:
    """Convert Slurm's --mem: MB without a unit, 0 for all. `..` in the result means "or more"."""
    if size is None:
        return None
    return f"{_convert_size(size, 'M')}.." if size.strip("0KMGTBkmgtb") else None


def _convert_size(size: str, unit: str) -> str:
    """Convert a size to GB or MB, which are powers of two in dstack. unit: that of a bare number."""
    mebibytes = -(-syntax.parse_size(size, unit) // 2**20)
    return f"{mebibytes}MB" if mebibytes % 1024 else f"{mebibytes // 1024}GB"


def _convert_duration(limit: str | None) -> str | None:
    """Convert Slurm's time limit to the largest unit that divides it; None: no limit."""
    if limit is None or (total := syntax.seconds(limit)) is None:
        return None
    unit, length = next((unit, length) for unit, length in _UNITS.items() if total % length == 0)
    return f"{total // length}{unit}"


def _convert_mount(mount: Mount) -> str:
    """Convert a mount to a volume: a folder of the instance (InstanceMountPoint of dstack)."""
    place = mount.destination or mount.source
    if re.search(VARIABLE, f"{mount.source}:{place}"):
        raise ValueError(_NO_VARIABLES)
    if not mount.source.startswith("/") or ".." in (mount.source + "/" + place).split("/"):
        raise ValueError(
            f"dstack mounts absolute paths of its instances, without `..`, got {shown(mount.source)}"
        )
    for option in mount.options:
        if option not in ("rw", "z", "Z"):
            raise ValueError(f"dstack mounts have no option {option}; leave it out")
    return f"{mount.source}:{place}"
