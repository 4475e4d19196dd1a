"""What the nodes of a job use: samples, as the job writes them into its run directory."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean
from typing import Any, NamedTuple

from slurmray.slurm.timeline import duration

_MAX_NODES = 1 << 16
_TEXTS = ("error", "other")  # fields of NodeUse
_IDLE = 120  # seconds at 0 % that are worth a line: data loading and checkpoints are shorter
_OLD = 180  # seconds


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


def parse_usage(data: bytes) -> Usage | None:
    """Return what usage.json has; None if it is not what a job writes."""
    try:
        content = json.loads(data)
    except (ValueError, RecursionError):
        return None
    if not isinstance(content, dict) or not isinstance(content.get("nodes"), dict):
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
        try:
            sample = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if not isinstance(sample, dict):
            continue
        names = sample.get("columns")
        if isinstance(names, list) and "utilization" in names:
            place = names.index("utilization")
        rows, time = sample.get("gpus"), amount(sample.get("time"))
        if time is None or not isinstance(rows, list):
            continue
        values = [amount(row[place]) for row in rows if isinstance(row, list) and len(row) > place]
        if known := [value for value in values if value is not None]:
            yield Sample(time, [min(100.0, value) for value in known])


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
