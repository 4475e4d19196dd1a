"""Places a trainer's demands on the nodes of a job, as Ray does.

The rules are those of Ray 2.44 to 2.60, src/ray/raylet/scheduling/policy: bundle_scheduling_policy.cc and
scorer.cc. Only CPUs and GPUs count; no preset asks for another resource.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

MANY = 1 << 40  # bundles; more than any job has
ROUNDING = 1e-6  # Ray counts in steps of 0.0001
Strategy = Literal["PACK", "SPREAD", "STRICT_PACK", "STRICT_SPREAD"]


class Bundle(NamedTuple):
    """CPUs and GPUs that Ray takes from one node: for a bundle of a placement group, an actor or a task."""

    cpus: float
    gpus: float

    def __sub__(self, other: Bundle) -> Bundle:
        return Bundle(self.cpus - other.cpus, self.gpus - other.gpus)


class Group(NamedTuple):
    """A placement group, or an actor or task outside of any: a group of one bundle."""

    name: str  # for messages, e.g. `rollout`
    bundles: Sequence[Bundle]
    strategy: Strategy = "PACK"
    stays: bool = True  # to the end of the job; else it is removed before the next one comes


class Placed(NamedTuple):
    """Where groups are placed, up to the first one that would wait for ever."""

    waiting: Group | None  # None if all are placed
    free: Counter[Bundle]  # what is left on how many nodes, before the waiting group


def place(groups: Iterable[Group], nodes: Iterable[Bundle]) -> Placed:
    """Place groups one after the other. nodes: what is free on each."""
    free = Counter(nodes)
    for group in groups:
        left = _place_group(group, free)
        if left is None:
            return Placed(group, free)
        if group.stays:
            free = left
    return Placed(None, free)


def _place_group(group: Group, free: Counter[Bundle]) -> Counter[Bundle] | None:
    """What is left on the nodes after a group; None if it does not fit.

    Nodes with the same free resources are one entry, so that jobs of a thousand nodes take no longer.
    """
    bundles = Counter(group.bundles)
    if group.strategy == "STRICT_PACK":
        bundles = Counter(
            [Bundle(sum(each.cpus for each in group.bundles), sum(each.gpus for each in group.bundles))]
        )
    kinds = sorted(bundles, key=lambda bundle: (bundle.gpus, bundle.cpus), reverse=True)
    unused, used = Counter(free), Counter[Bundle]()  # nodes without and with bundles of the group
    for kind in kinds:
        while bundles[kind]:
            source, node = unused, _emptiest(kind, unused)
            if node is None and group.strategy == "SPREAD":
                source, node = used, _emptiest(kind, used)
            if node is None:
                return None
            source[node] -= 1
            bundles[kind] -= 1
            node -= kind
            for each in kinds if group.strategy == "PACK" else ():
                count = min(bundles[each], _count(each, node))
                bundles[each] -= count
                node -= Bundle(count * each.cpus, count * each.gpus)
            used[node] += 1
    return unused + used


def _count(bundle: Bundle, free: Bundle) -> int:
    """How often a bundle fits."""
    pairs = zip(bundle, free, strict=True)
    most = min((available / needed for needed, available in pairs if needed), default=0)
    return MANY if math.isinf(most) else int(most + ROUNDING)


def _emptiest(bundle: Bundle, nodes: Counter[Bundle]) -> Bundle | None:
    """The node on which the largest share of what a bundle needs stays free; None if it fits on none."""
    fitting = [node for node, count in nodes.items() if count and _count(bundle, node)]
    return max(fitting, key=lambda node: _score(bundle, node), default=None)


def _score(bundle: Bundle, free: Bundle) -> float:
    pairs = zip(bundle, free, strict=True)
    return sum(1 - needed / available for needed, available in pairs if needed and available)
