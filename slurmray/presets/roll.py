"""ROLL: `device_mapping` of each worker in its YAML file; its programs take no overrides.

Sources, in github.com/alibaba/ROLL at v0.3.0: roll/distributed/scheduler/initialize.py and driver_utils.py
(it joins the Ray that `ray status` finds by RAY_ADDRESS, or starts one; MASTER_PORT is Ray's port),
resource_manager.py (numbering of GPUs, NODE_RANK), roll/configs/base_config.py and worker_config.py.
ROLL_RAY_TEMP_DIR and ROLL_RAY_FORCE_NEW_CLUSTER are not in v0.3.0; forks that have them start their own Ray.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

from slurmray.plan import Finding
from slurmray.presets.context import MAX_GPUS, PresetContext
from slurmray.presets.ranks import spans
from slurmray.spec.types import shown
from slurmray.yaml_source import Path

_OWN_RAY = {
    "ROLL_RAY_TEMP_DIR": "leave it out, and use ray.temp_dir",
    "ROLL_RAY_FORCE_NEW_CLUSTER": "leave it out",
}
_PARALLEL = ("tensor_model_parallel_size", "pipeline_model_parallel_size", "context_parallel_size")


class _TooManyGpus(Exception):
    """A GPU's number, or the length of a list of GPUs, is above MAX_GPUS."""


class _Worker(NamedTuple):
    """A worker and its GPUs. path: of its device_mapping."""

    path: Path
    gpus: list[int]

    @property
    def name(self) -> str:
        return ".".join(str(part) for part in self.path).removesuffix(".device_mapping")

    @property
    def summary(self) -> str:
        return f"{self.name} {spans(self.gpus)} ({len(self.gpus)})"


def advise(context: PresetContext) -> None:
    """Set the variables by which ROLL knows its nodes, and check the device mappings."""
    context.node_env |= {"MASTER_ADDR": "head", "MASTER_PORT": "ray_port", "WORLD_SIZE": "nodes"}
    context.node_env |= {"RANK": "rank", "NODE_RANK": "rank"}
    run = context.spec.run
    arguments = [run] if isinstance(run, str) else run or []
    for name, fix in _OWN_RAY.items():
        text = f"{name}: with it ROLL starts its own Ray instead of joining the job's: {fix}"
        if name in context.spec.env:
            context.problems.append(Finding(("env", name), text))
        if any(f"{name}=" in argument for argument in arguments):
            context.problems.append(Finding(("run",), text))
        if name in (context.lookup(("system_envs",)) or ()):
            context.add_problem(("system_envs", name), text)
    if "RAY_ADDRESS" in (context.lookup(("system_envs",)) or ()):
        text = "RAY_ADDRESS: slurmray sets it to the job's Ray, which ROLL joins: leave it out"
        context.add_problem(("system_envs", "RAY_ADDRESS"), text)
    if not context.command.argv:
        return
    # A placement group has half of a node's CPUs; its workers hold little of them, and a task needs one more.
    context.ask("ROLL's tasks", [(3, 0)] * context.spec.ray_nodes, "STRICT_SPREAD", stays=False)
    if context.config is None:
        context.remarks.append("the placement is not checked: set preset.config to ROLL's YAML file")
    else:
        _check_config(context)
    if context.spec.may_resume and context.lookup(("resume_from_checkpoint",)) in (None, "false", "False"):
        context.remarks.append(
            "after a restart ROLL starts from the beginning: set resume_from_checkpoint: true in its file"
        )


def _check_config(context: PresetContext) -> None:
    gpus_per_node = _read_count(context, ("num_gpus_per_node",))
    # Since v0.2 ROLL overwrites it with the number that its driver counts.
    if gpus_per_node is not None and gpus_per_node != context.gpus and not context.preset.since(0, 2):
        fix = f"write {context.gpus}, or {context.gpus_fix(gpus_per_node)}"
        context.add_problem(
            ("num_gpus_per_node",), f"num_gpus_per_node is {gpus_per_node}, {context.allocation}: {fix}"
        )
    mappings = list(_find_mappings((), context.config.data if context.config else None))
    if not mappings:
        context.note_unplaced("device_mapping")
    workers = []
    for path, value in mappings:
        try:
            gpus = _parse_gpus(value)
        except ValueError as error:
            context.add_problem(path, f"{_Worker(path, []).name}: device_mapping {error}")
        else:
            workers += [_Worker(path, gpus)] if gpus else []
    placed = [(worker.summary, len(worker.gpus), max(worker.gpus), worker.path) for worker in workers]
    if context.check_range(placed) and workers and len(workers) == len(mappings):
        used = {number for worker in workers for number in worker.gpus}
        context.note_idle([worker.summary for worker in workers], used)
    for worker in workers:
        _check_divisors(context, worker)


def _find_mappings(path: Path, data: Any) -> Iterator[tuple[Path, Any]]:
    """Yield path and value of each device_mapping."""
    for name, value in data.items() if isinstance(data, dict) else ():
        if name.rpartition(".")[2] == "device_mapping":
            yield (*path, name), value
        else:
            yield from _find_mappings((*path, name), value)


def _check_divisors(context: PresetContext, worker: _Worker) -> None:
    """Check that the GPUs of a process, and the product of the parallel sizes, divide a worker's GPUs."""
    above = worker.path[:-1]
    size = _read_count(context, (*above, "num_gpus_per_worker"))
    if size and len(worker.gpus) % size:
        text = f"processes of {size} GPUs do not divide its {len(worker.gpus)} GPUs: change one of the two"
        context.add_problem((*above, "num_gpus_per_worker"), f"{worker.name}: {text}")
    strategy = (*above, "strategy_args", "strategy_config")
    sizes = {name: _read_count(context, (*strategy, name)) for name in _PARALLEL}
    product, factors = 1, []
    for name, size in sizes.items():
        if size and size > 1:
            product *= size
            factors.append(f"{name} {size}")
    if len(worker.gpus) % product:
        text = f"{' x '.join(factors)} = {product} does not divide its {len(worker.gpus)} GPUs"
        context.add_problem(worker.path, f"{worker.name}: {text}: change one of the two")


def _read_count(context: PresetContext, path: Path) -> int | None:
    return context.parse_count(path, str(path[-1]), context.lookup(path))


def _parse_gpus(value: Any) -> list[int] | None:
    """Return the GPUs in a device_mapping, which ROLL passes to `eval`; None if they are not known yet.

    ValueError for a wrong value.
    """
    if value is None or (isinstance(value, str) and "$" in value):
        return None
    if not isinstance(value, str):
        raise ValueError("must be a text, which ROLL evaluates: quote the list")
    try:
        tree = ast.parse(value.strip(), mode="eval")
        gpus = _evaluate(tree.body)
    except _TooManyGpus:
        raise ValueError(
            f"{shown(value)}: more than {MAX_GPUS} GPUs: write the numbers of the job's GPUs"
        ) from None
    except (SyntaxError, RecursionError, MemoryError):
        tree, gpus = ast.Expression(ast.Constant(None)), None
    if gpus is None:
        if any(isinstance(node, ast.Name | ast.List | ast.Tuple) for node in ast.walk(tree)):
            return None
        raise ValueError(f"{shown(value)} is not a list; write e.g. list(range(0,8)) or [0, 1]")
    if any(number < 0 for number in gpus):
        raise ValueError(f"{value}: the first GPU is 0")
    if twice := {number for number, times in Counter(gpus).items() if times > 1}:
        raise ValueError(f"{value} has {spans(twice)} twice; list each GPU once")
    return list(gpus)


def _evaluate(node: ast.expr) -> list[int] | range | None:
    """Evaluate lists, ranges and sums of lists; None for any other expression."""
    result: list[int] | range | None = None
    match node:
        case ast.List(elts=parts) | ast.Tuple(elts=parts):
            numbers = [_evaluate_integer(part) for part in parts]
            result = [number for number in numbers if number is not None]
            return result if len(result) == len(parts) else None
        case ast.Call(func=ast.Name(id="range"), args=[*parts], keywords=[]):
            numbers = [_evaluate_integer(part) for part in parts]
            if 1 <= len(parts) <= 3 and None not in numbers and numbers[2:] != [0]:
                result = range(*numbers)  # type: ignore[arg-type]
        case ast.Call(func=ast.Name(id="list"), args=[inner], keywords=[]):
            result = _evaluate(inner)
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            first, second = _evaluate(left), _evaluate(right)
            if first is not None and second is not None:
                result = [*first, *second]
    if result is not None and len(result) > MAX_GPUS:
        raise _TooManyGpus
    return result


def _evaluate_integer(node: ast.expr) -> int | None:
    match node:
        case ast.Constant(value=int(number)) if not isinstance(number, bool):
            if number > MAX_GPUS:
                raise _TooManyGpus
            return number
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant() as operand):
            size = _evaluate_integer(operand)
            return None if size is None else -size
    return None
