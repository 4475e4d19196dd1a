"""ROLL: `device_mapping` of each worker in its YAML file; its programs take no overrides.

Facts from github.com/alibaba/ROLL at v0.3.0: roll/distributed/scheduler/initialize.py and driver_utils.py (it
joins the Ray that `ray status` finds, that of RAY_ADDRESS, or starts one; MASTER_PORT is Ray's),
resource_manager.py (GPUs by number, NODE_RANK), roll/configs/base_config.py and worker_config.py (the file).
ROLL_RAY_TEMP_DIR and ROLL_RAY_FORCE_NEW_CLUSTER are not in v0.3.0; copies that have them start their own Ray.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

from slurmray.presets.context import MOST, Case, Finding
from slurmray.presets.ranks import spans
from slurmray.spec.types import shown
from slurmray.yaml_source import Path

_OWN_RAY = {
    "ROLL_RAY_TEMP_DIR": "leave it out, and use ray.temp_dir",
    "ROLL_RAY_FORCE_NEW_CLUSTER": "leave it out",
}
_PARALLEL = ("tensor_model_parallel_size", "pipeline_model_parallel_size", "context_parallel_size")


class _TooMany(Exception):
    """A number, or a list, that is beyond any cluster."""


class _Worker(NamedTuple):
    """A worker and its GPUs. path: of its device_mapping."""

    path: Path
    gpus: list[int]

    @property
    def name(self) -> str:
        return ".".join(str(part) for part in self.path).removesuffix(".device_mapping")

    @property
    def shown(self) -> str:
        return f"{self.name} {spans(self.gpus)} ({len(self.gpus)})"


def advise(case: Case) -> None:
    """Say who is who in ROLL's own words, and check the mappings of the workers."""
    case.node_env |= {"MASTER_ADDR": "head", "MASTER_PORT": "ray_port", "WORLD_SIZE": "nodes"}
    case.node_env |= {"RANK": "rank", "NODE_RANK": "rank"}
    for name, remedy in _OWN_RAY.items():
        reason = f"{name}: with it ROLL starts a Ray of its own instead of joining the job's: {remedy}"
        if name in case.spec.env:
            case.problems.append(Finding(("env", name), reason))
        if any(f"{name}=" in word for word in _words(case.spec.run)):
            case.problems.append(Finding(("run",), reason))
        if name in (case.lookup(("system_envs",)) or ()):
            case.refuse_config(("system_envs", name), reason)
    if "RAY_ADDRESS" in (case.lookup(("system_envs",)) or ()):
        text = "RAY_ADDRESS: ROLL joins the job's Ray by the one that slurmray sets: leave it out"
        case.refuse_config(("system_envs", "RAY_ADDRESS"), text)
    if not case.words.words:
        return
    if case.config is None:
        case.notes.append("the placement is not checked: name ROLL's YAML file in preset.config")
    else:
        _file(case)
    if case.spec.requeue.max and case.lookup(("resume_from_checkpoint",)) in (None, "false", "False"):
        case.notes.append(
            "after a requeue ROLL starts anew: set resume_from_checkpoint: true in its YAML file"
        )


def _words(run: list[str] | str | None) -> list[str]:
    return [run] if isinstance(run, str) else run or []


def _file(case: Case) -> None:
    stated = _number(case, ("num_gpus_per_node",))
    # Since v0.2 it is overwritten with what the driver counts.
    if stated is not None and stated != case.gpus and not case.preset.since(0, 2):
        remedy = f"write {case.gpus}, or {case.gpus_remedy(stated)}"
        case.refuse_config(
            ("num_gpus_per_node",), f"num_gpus_per_node is {stated}, {case.allocation}: {remedy}"
        )
    found = list(_mappings((), case.config.data if case.config else None))
    if not found:
        case.note_unplaced("device_mapping")
    workers = []
    for path, value in found:
        try:
            gpus = _gpus(value)
        except ValueError as error:
            case.refuse_config(path, f"{_Worker(path, []).name}: device_mapping {error}")
        else:
            workers += [_Worker(path, gpus)] if gpus else []
    beyond = [worker for worker in workers if max(worker.gpus) >= case.total]
    parts = [worker.shown for worker in workers]
    if beyond:
        asked = sum(len(worker.gpus) for worker in workers)
        highest = max(max(worker.gpus) for worker in beyond)
        case.refuse_config(beyond[0].path, case.too_far(parts, asked, highest))
    elif workers and len(workers) == len(found):
        case.note_idle(parts, {number for worker in workers for number in worker.gpus})
    for worker in workers:
        _divides(case, worker)


def _mappings(path: Path, data: Any) -> Iterator[tuple[Path, Any]]:
    """Yield where each device_mapping is, and what it says."""
    for name, value in data.items() if isinstance(data, dict) else ():
        if name.rpartition(".")[2] == "device_mapping":
            yield (*path, name), value
        else:
            yield from _mappings((*path, name), value)


def _divides(case: Case, worker: _Worker) -> None:
    """Processes of several GPUs, and the parts of a model, must come out even."""
    above = worker.path[:-1]
    each = _number(case, (*above, "num_gpus_per_worker"))
    if each and len(worker.gpus) % each:
        text = f"{len(worker.gpus)} GPUs in processes of {each}, {each} is no divisor: change one of the two"
        case.refuse_config((*above, "num_gpus_per_worker"), f"{worker.name}: {text}")
    strategy = (*above, "strategy_args", "strategy_config")
    sizes = {name: _number(case, (*strategy, name)) for name in _PARALLEL}
    product, words = 1, []
    for name, size in sizes.items():
        if size and size > 1:
            product *= size
            words.append(f"{name} {size}")
    if len(worker.gpus) % product:
        text = f"{' x '.join(words)} = {product} is no divisor of its {len(worker.gpus)} GPUs"
        case.refuse_config(worker.path, f"{worker.name}: {text}: change one of the two")


def _number(case: Case, path: Path) -> int | None:
    return case.number(path, str(path[-1]), case.lookup(path))


def _gpus(value: Any) -> list[int] | None:
    """Return the GPUs that ROLL's `eval` would find; None if it is not known; ValueError if it is wrong."""
    if value is None or (isinstance(value, str) and "$" in value):
        return None
    if not isinstance(value, str):
        raise ValueError("is evaluated by ROLL, so it must be a text: quote the list")
    try:
        tree = ast.parse(value.strip(), mode="eval")
        found = _listed(tree.body)
    except _TooMany:
        raise ValueError(
            f"{shown(value)}: a GPU's number is at most {MOST}: write those of the job"
        ) from None
    except (SyntaxError, RecursionError, MemoryError):
        tree, found = ast.Expression(ast.Constant(None)), None
    if found is None:
        if any(isinstance(node, ast.Name | ast.List | ast.Tuple) for node in ast.walk(tree)):
            return None
        raise ValueError(f"{shown(value)} is no list, as list(range(0,8)) or [0, 1]")
    if any(number < 0 for number in found):
        raise ValueError(f"{value}: GPUs count from 0")
    if twice := {number for number, times in Counter(found).items() if times > 1}:
        raise ValueError(f"{value} has {spans(twice)} twice; name each GPU once")
    return list(found)


def _listed(node: ast.expr) -> list[int] | range | None:
    """Return the value of what may stand in a mapping: lists, ranges, sums of lists; None for all else."""
    found: list[int] | range | None = None
    match node:
        case ast.List(elts=parts) | ast.Tuple(elts=parts):
            numbers = [_whole(part) for part in parts]
            found = [number for number in numbers if number is not None]
            return found if len(found) == len(parts) else None
        case ast.Call(func=ast.Name(id="range"), args=[*parts], keywords=[]):
            numbers = [_whole(part) for part in parts]
            if 1 <= len(parts) <= 3 and None not in numbers and numbers[2:] != [0]:
                found = range(*numbers)  # type: ignore[arg-type]
        case ast.Call(func=ast.Name(id="list"), args=[inner], keywords=[]):
            found = _listed(inner)
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            one, other = _listed(left), _listed(right)
            if one is not None and other is not None:
                found = [*one, *other]
    if found is not None and len(found) > MOST:
        raise _TooMany
    return found


def _whole(node: ast.expr) -> int | None:
    match node:
        case ast.Constant(value=int(number)) if not isinstance(number, bool):
            if number > MOST:
                raise _TooMany
            return number
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant() as operand):
            size = _whole(operand)
            return None if size is None else -size
    return None
