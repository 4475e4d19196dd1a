"""Places a trainer's demands on the nodes of a job, as Ray does.

The rules are those of Ray 2.44 to 2.60, src/ray/raylet/scheduling/policy: bundle_scheduling_policy.cc,
scorer.cc and, for actors, hybrid_scheduling_policy.cc. Only CPUs and GPUs count: no preset asks for another
resource.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

MANY = 1 << 40  # bundles; more than any job has
HALF = 0.5  # an actor goes to the driver's node while less of it is used: RAY_scheduler_spread_threshold
ROUNDING = 1e-6  # Ray counts in steps of 0.0001
Strategy = Literal["ACTOR", "PACK", "SPREAD", "STRICT_PACK", "STRICT_SPREAD"]


class Bundle(NamedTuple):
    """CPUs and GPUs that Ray takes from one node: for a bundle of a placement group, or for an actor."""

    cpus: float
    gpus: float


class Node(NamedTuple):
    """What a node has free. size: all of its CPUs, for the node of the driver; 0 for others."""

    cpus: float
    gpus: float
    size: float = 0

    def without(self, bundle: Bundle, count: int = 1) -> Node:
        """The node once it has so many of a bundle."""
        return Node(self.cpus - count * bundle.cpus, self.gpus - count * bundle.gpus, self.size)

    def count(self, bundle: Bundle) -> int:
        """How often a bundle fits, at most MANY times."""
        needs = ((bundle.cpus, self.cpus), (bundle.gpus, self.gpus))
        most = min((free / needed for needed, free in needs if needed), default=0)
        return int(min(most + ROUNDING, MANY))

    def score(self, bundle: Bundle) -> float:
        """How large a share of what a bundle needs stays free."""
        needs = ((bundle.cpus, self.cpus), (bundle.gpus, self.gpus))
        return sum(1 - needed / free for needed, free in needs if needed and free)


class Group(NamedTuple):
    """A placement group; or an actor outside of any, which holds the CPUs of one bundle."""

    name: str  # for messages, e.g. `rollout`
    bundles: Sequence[Bundle]
    strategy: Strategy = "PACK"
    stays: bool = True  # to the end of the job; else it is removed before the next one comes
    unless: str = ""  # for messages: why the trainer may not ask for it, which is not known here


class Placed(NamedTuple):
    """Where groups are placed, up to the first one that would wait for ever."""

    waiting: Group | None  # None if all are placed
    free: Counter[Node]  # nodes, and how many are alike, before the waiting group


def place(groups: Iterable[Group], nodes: Sequence[Bundle]) -> Placed:
    """Place groups one after the other. nodes: what is free on each, that of the driver first."""
    free = Counter([Node(*nodes[0], size=nodes[0].cpus), *(Node(*node) for node in nodes[1:])])
    for group in groups:
        left = _place_group(group, free)
        if left is None:
            return Placed(group, free)
        if group.stays:
            free = left
    return Placed(None, free)


def _place_group(group: Group, free: Counter[Node]) -> Counter[Node] | None:
    """What is left on the nodes after a group; None if it does not fit.

    Nodes that are alike are one entry, so that jobs of a thousand nodes take no longer.
    """
    bundles = Counter(group.bundles)
    if group.strategy == "STRICT_PACK":
        cpus, gpus = (sum(numbers) for numbers in zip(*group.bundles, strict=True))
        bundles = Counter([Bundle(cpus, gpus)])
    kinds = sorted(bundles, key=lambda bundle: (bundle.gpus, bundle.cpus), reverse=True)
    unused, used = Counter(free), Counter[Node]()  # nodes without and with bundles of the group
    for kind in kinds:
        while bundles[kind]:
            source, node = unused, _choose(kind, unused, group.strategy)
            if node is None and group.strategy == "SPREAD":
                source, node = used, _choose(kind, used, group.strategy)
            if node is None:
                return None
            source[node] -= 1
            bundles[kind] -= 1
            node = node.without(kind)
            for each in kinds if group.strategy == "PACK" else ():
                count = min(bundles[each], node.count(each))
                bundles[each] -= count
                node = node.without(each, count)
            used[node] += 1
    return unused + used


def _choose(bundle: Bundle, nodes: Counter[Node], strategy: Strategy) -> Node | None:
    """The emptiest node for a bundle; None if it fits on none. An actor prefers the node of the driver."""
    fitting = [node for node, count in nodes.items() if count and node.count(bundle)]
    if strategy == "ACTOR":
        own = (node for node in fitting if node.size and node.cpus > node.size * HALF)
        if node := next(own, None):
            return node
    return max(fitting, key=lambda node: node.score(bundle), default=None)
