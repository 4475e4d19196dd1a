"""What the nodes of a job use: samples, as the job writes them into its run directory. No I/O."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from statistics import fmean
from typing import Any, NamedTuple

from slurmray.agent.node.gpu_samples import IDLE
from slurmray.slurm.timeline import duration

_MAX_NODES = 1 << 16
_TEXTS = ("error", "other")  # fields of NodeUse
_IDLE = 120  # seconds at 0 % that are worth a line: data loading and checkpoints are shorter
_OLD = 180  # seconds
_MOST_COLUMNS, _CELLS = 120, 24_000  # of a chart of all nodes over time


class NodeUse(NamedTuple):
    """What a node uses; None where it is not known."""

    gpu: float | None = None  # mean utilization of its GPUs, %
    lowest: float | None = None  # the lowest one, %
    idlest: float | None = None  # number of the GPU that has it, in the order of the job's GPUs there
    idle: float | None = None  # seconds for which one has been at 0 %, as far as samples show
    gpu_memory: float | None = None  # %
    power: float | None = None  # mean of the GPUs, W
    slowed: float | None = None  # number of a GPU whose hardware has lowered its clock
    cores: float | None = None  # CPUs that the job uses
    memory: float | None = None  # of the job, MiB
    shm: float | None = None  # of /dev/shm, MiB
    age: float | None = None  # of the sample, seconds
    error: str = ""  # why its GPUs cannot be read; "" if they can
    other: str = ""  # a process that holds memory of a GPU and is not the job's; "" for none


class Usage(NamedTuple):
    """What the nodes of a job use. output: when the job's log last grew; None if it is no file."""

    output: float | None
    nodes: Mapping[str, NodeUse]


class Sample(NamedTuple):
    """GPUs of a node. time: seconds since 1970. utilization: of those where it is known, at least one, %."""

    time: float
    utilization: Sequence[float]


class NodeHeat(NamedTuple):
    """A node. cells: mean utilization of its GPUs, %, in equal parts of the time; None without samples.

    mean: of all its samples. idle: the share of its samples in which all its GPUs were idle.
    """

    cells: Sequence[float | None]
    mean: float
    idle: float


def parse_usage(data: bytes) -> Usage | None:
    """Return what usage.json has; None if it is not what a job writes."""
    content = _parse_object(data)
    if not isinstance(content.get("nodes"), dict):
        return None
    if amount(content.get("time")) is None or len(content["nodes"]) > _MAX_NODES:
        return None
    nodes = {name: _node(row) for name, row in content["nodes"].items() if isinstance(row, dict)}
    return Usage(amount(content.get("output")), nodes)


def parse_samples(data: bytes) -> Iterator[Sample]:
    """Yield the samples of GPUs in a node's file, as docs/guides/watching.md describes it.

    What is not like that is skipped.
    """
    place = 0
    for line in data.splitlines():
        sample = _parse_object(line)
        names = sample.get("columns")
        if isinstance(names, list) and "utilization" in names:
            place = names.index("utilization")
        rows, time = sample.get("gpus"), amount(sample.get("time"))
        if time is None or not isinstance(rows, list):
            continue
        values = [amount(row[place]) for row in rows if isinstance(row, list) and len(row) > place]
        if known := [value for value in values if value is not None]:
            yield Sample(time, [min(100.0, value) for value in known])


def _parse_object(data: bytes) -> dict[str, Any]:
    """A JSON object; {} if it is none."""
    with suppress(ValueError, RecursionError):
        if isinstance(content := json.loads(data), dict):
            return content
    return {}


def _node(row: Mapping[str, Any]) -> NodeUse:
    numbers = {name: amount(row.get(name)) for name in NodeUse._fields if name not in _TEXTS}
    error, other = (text if isinstance(text := row.get(name), str) else "" for name in _TEXTS)
    return NodeUse(**numbers, error=error, other=other)


def amount(value: object) -> float | None:
    """Return a value of a file of a job if it is a number that is not negative, nor huge, else None."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return value if 0 <= value < 2**63 else None  # not NaN


def mean_utilization(usage: Usage) -> float | None:
    """Return the mean utilization of the nodes' GPUs, %; None if it is not known."""
    gpus = _known(usage, "gpu")
    return fmean(gpus.values()) if gpus else None


def describe_use(usage: Usage) -> str:
    """Return what the nodes use together, in a line; "" without samples."""
    utilization = mean_utilization(usage)
    parts = [] if utilization is None else [f"GPUs {utilization:.0f} % busy"]
    if gpu_memory := _known(usage, "gpu_memory"):
        parts.append(f"their memory {fmean(gpu_memory.values()):.0f} % full")
    if power := _known(usage, "power"):
        parts.append(f"{fmean(power.values()):.0f} W each")
    if cores := _known(usage, "cores"):
        parts.append(f"CPUs {sum(cores.values()):.1f} busy")
    if memory := _known(usage, "memory"):
        most = max(memory, key=memory.__getitem__)
        where = f", {memory[most] / 1024:.1f} of them on {most}" if len(memory) > 1 else ""
        parts.append(f"memory {sum(memory.values()) / 1024:.1f} GiB{where}")
    return "; ".join(parts)


def count_columns(nodes: int) -> int:
    """Into how many parts the time is divided for so many nodes, so that a page stays small."""
    return max(12, min(_MOST_COLUMNS, _CELLS // max(1, nodes)))


def measure_heat(samples: Iterable[Sample], began: float, seconds: float, columns: int) -> NodeHeat | None:
    """Return the utilization of a node's GPUs; None without samples in that time.

    began: seconds since 1970.
    """
    totals, counts, idle = [0.0] * columns, [0] * columns, 0
    for sample in samples:
        if began <= sample.time < began + seconds:
            column = int((sample.time - began) * columns / seconds)
            totals[column] += fmean(sample.utilization)
            counts[column] += 1
            idle += max(sample.utilization) <= IDLE
    number = sum(counts)
    if not number:
        return None
    cells = [total / count if count else None for total, count in zip(totals, counts, strict=True)]
    return NodeHeat(cells, sum(totals) / number, idle / number)


def find_unusual(usage: Usage) -> list[tuple[str, str]]:
    """Return (node, what is unusual there) of nodes that deserve a look, by their latest samples."""
    rows = []
    for name, node in sorted(usage.nodes.items()):
        if node.error:
            rows.append((name, f"its GPUs cannot be read: {node.error}"))
        if node.age is not None and node.age > _OLD:
            rows.append((name, f"no sample for {duration(node.age)}"))
        elif node.idle is not None and node.idlest is not None and node.idle >= _IDLE:
            rows.append((name, f"GPU {node.idlest:.0f} has been at 0 % for {duration(node.idle)}"))
        if node.other:
            rows.append((name, f"{node.other}, not of this job"))
        if node.slowed is not None:
            rows.append((name, f"GPU {node.slowed:.0f} has lowered its clock: heat, or its power supply"))
    return rows


def _known(usage: Usage, field: str) -> dict[str, float]:
    """{node: value} of the nodes where it is known."""
    values = {name: getattr(node, field) for name, node in usage.nodes.items()}
    return {name: value for name, value in values.items() if value is not None}
