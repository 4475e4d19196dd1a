"""How busy the GPUs of each node were over time, from the nodes' samples. No I/O."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import fmean
from typing import NamedTuple

from slurmray.agent.node.gpu_samples import IDLE
from slurmray.slurm.usage import Sample

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
