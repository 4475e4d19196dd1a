"""Places a trainer's demands on the nodes of a job, as Ray does.

The rules are those of Ray 2.44 to 2.60, src/ray/raylet/scheduling/policy: bundle_scheduling_policy.cc and
scorer.cc. Only CPUs and GPUs count; no preset asks for another resource.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

Strategy = Literal["PACK", "SPREAD", "STRICT_PACK", "STRICT_SPREAD"]


class Bundle(NamedTuple):
    """CPUs and GPUs that Ray takes from one node: for a bundle of a placement group, an actor or a task."""

    cpus: float
    gpus: float

    def __sub__(self, other: Bundle) -> Bundle:
        return Bundle(self.cpus - other.cpus, self.gpus - other.gpus)

    def holds(self, other: Bundle) -> bool:
        """Whether a node on which this is free has room for another bundle."""
        return self.cpus >= other.cpus and self.gpus >= other.gpus


class Group(NamedTuple):
    """A placement group, or an actor or task outside of any: a group of one bundle."""

    name: str  # for messages, e.g. `trainer pool`
    bundles: Sequence[Bundle]
    strategy: Strategy = "PACK"


def place(groups: Iterable[Group], nodes: Sequence[Bundle]) -> Group | None:
    """Place groups one after the other; return the first one that would wait for ever, None if none does.

    nodes: what is free on each node. All groups are taken to stay until the end of the job.
    """
    free = list(nodes)
    for group in groups:
        chosen = _choose_nodes(group, free)
        if chosen is None:
            return group
        for bundle, node in chosen:
            free[node] -= bundle
    return None


def _choose_nodes(group: Group, free: Sequence[Bundle]) -> list[tuple[Bundle, int]] | None:
    """The index of a node for each bundle; None if they do not fit."""
    left = list(free)
    unused = list(range(len(left)))  # nodes that no bundle of the group is on
    bundles = sorted(group.bundles, key=lambda bundle: (bundle.gpus, bundle.cpus), reverse=True)
    if group.strategy == "STRICT_PACK":
        bundles = [Bundle(sum(each.cpus for each in bundles), sum(each.gpus for each in bundles))]
    chosen: list[tuple[Bundle, int]] = []
    while bundles:
        node = _emptiest(bundles[0], left, unused)
        if node is None and group.strategy == "SPREAD":
            node = _emptiest(bundles[0], left, sorted({node for _, node in chosen}))
        if node is None:
            return None
        if node in unused:
            unused.remove(node)
        waiting = []
        for index, bundle in enumerate(bundles):
            if (index == 0 or group.strategy == "PACK") and left[node].holds(bundle):
                left[node] -= bundle
                chosen.append((bundle, node))
            else:
                waiting.append(bundle)
        bundles = waiting
    return chosen


def _emptiest(bundle: Bundle, free: Sequence[Bundle], candidates: Iterable[int]) -> int | None:
    """The candidate on which the largest share of what the bundle needs stays free; None if it fits on none."""
    fitting = [node for node in candidates if free[node].holds(bundle)]
    return max(fitting, key=lambda node: _score(bundle, free[node]), default=None)


def _score(bundle: Bundle, free: Bundle) -> float:
    pairs = zip(bundle, free, strict=True)
    return sum((available - needed) / available for needed, available in pairs if needed and available)
