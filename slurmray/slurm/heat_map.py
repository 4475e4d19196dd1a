"""How busy the GPUs of each node were over time, from the nodes' files of samples. No I/O."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from slurmray.slurm.usage import amount

_IDLE = 2.0  # %: below, a GPU counts as idle
_MOST_COLUMNS, _CELLS = 120, 24_000


class NodeHeat(NamedTuple):
    """A node. cells: mean utilization of its GPUs, %, in equal parts of the time; None without samples.

    mean: of all its samples. idle: the share of its samples in which all its GPUs were idle.
    """

    cells: Sequence[float | None]
    mean: float
    idle: float


def count_columns(nodes: int) -> int:
    """Into how many parts the time is divided for so many nodes, so that a page stays small."""
    return max(12, min(_MOST_COLUMNS, _CELLS // max(1, nodes)))


def measure_heat(data: bytes, began: float, seconds: float, columns: int) -> NodeHeat | None:
    """Return the utilization of a node's GPUs; None without samples of GPUs in that time.

    data: its file, as docs/guides/watching.md describes it; what is not like that is skipped. began: seconds
    since 1970.
    """
    totals, counts = [0.0] * columns, [0] * columns
    idle, place = 0, 0
    for line in data.splitlines():
        sample = _parse(line)
        names = sample.get("columns")
        if isinstance(names, list) and "utilization" in names:
            place = names.index("utilization")
        rows, time = sample.get("gpus"), amount(sample.get("time"))
        if time is None or not isinstance(rows, list) or not began <= time < began + seconds:
            continue
        values = [amount(row[place]) for row in rows if isinstance(row, list) and len(row) > place]
        known = [value for value in values if value is not None]
        if known:
            column = int((time - began) * columns / seconds)
            mean = min(100.0, sum(known) / len(known))
            totals[column] += mean
            counts[column] += 1
            idle += max(known) < _IDLE
    number = sum(counts)
    if not number:
        return None
    cells = [total / count if count else None for total, count in zip(totals, counts, strict=True)]
    return NodeHeat(cells, sum(totals) / number, idle / number)


def _parse(line: bytes) -> Mapping[str, Any]:
    try:
        sample = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return sample if isinstance(sample, dict) else {}
