"""Demands of Ray that no node could hold even if it were empty, and what to change. Without I/O.

Running tasks and actors count as free, so a demand that waits for them is not among these. Bundles count kind
by kind, so a demand that Ray cannot place may be missed, but none is named that it could place.
"""

import collections
import math
import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Collection, Dict, FrozenSet, Iterator, List, Optional, Sequence, Tuple

    Amounts = Dict[str, float]  # resource -> amount; memory in bytes

WAIT = 60.0  # seconds
MOST = 10  # demands that are named at a time
MAX_TEXT = 300  # characters
MANY = 1 << 40  # bundles
ROUNDING = 1e-6  # Ray counts in steps of 0.0001
STRICT_PACK, STRICT_SPREAD = "STRICT_PACK", "STRICT_SPREAD"
FIELDS = {"CPU": "slurm.cpus_per_task", "GPU": "slurm.gpus_per_node", "memory": "slurm.mem"}
BYTES = ("memory", "object_store_memory")

# What one node is to hold. resources: sorted (name, amount). labels: (key, whether it is to have one of the
# values or none of them, values).
Bundle = collections.namedtuple("Bundle", "resources labels")
# strategy: of a placement group; "" for a task or an actor. choices: the bundles, and others that do as well.
Demand = collections.namedtuple("Demand", "strategy choices")
# resources: Amounts of all of it. labels: None if this Ray does not show them. groups: {placement group:
# Amounts that it holds there}.
Node = collections.namedtuple("Node", "name resources labels groups")
# There is room for `room` of the `wanted` bundles. nodes: (Node, free Amounts) of those with its labels.
Lack = collections.namedtuple("Lack", "bundle wanted room nodes")


def find_lack(demand: Demand, nodes: "Sequence[Node]", groups: "Collection[str]") -> "Optional[Lack]":
    """What is missing for a demand on empty nodes; None if nothing is. groups: those that stay."""
    free = [(node, _without(node, groups)) for node in nodes]
    lacks = [_find_lack(demand.strategy, bundles, free) for bundles in demand.choices]
    return lacks[0] if all(lacks) else None


def _without(node: Node, groups: "Collection[str]") -> "Amounts":
    free = dict(node.resources)
    for group in [group for group in node.groups if group in groups]:
        for name, amount in node.groups[group].items():
            free[name] = free.get(name, 0) - amount
    return free


def _find_lack(
    strategy: str, bundles: "Sequence[Bundle]", nodes: "List[Tuple[Node, Amounts]]"
) -> "Optional[Lack]":
    if strategy == STRICT_PACK:
        total: "Amounts" = {}
        for name, amount in [row for bundle in bundles for row in bundle.resources]:
            total[name] = total.get(name, 0) + amount
        bundles = [Bundle(tuple(sorted(total.items())), sum((bundle.labels for bundle in bundles), ()))]
    if strategy == STRICT_SPREAD and len(bundles) > len(nodes):
        return Lack(bundles[0], len(bundles), len(nodes), nodes)
    for bundle, wanted in collections.Counter(bundles).items():
        fitting = [row for row in nodes if _has_labels(row[0], bundle)]
        rooms = [_room(free, bundle) for _, free in fitting]
        room = sum(map(bool, rooms)) if strategy == STRICT_SPREAD else sum(rooms)
        if room < wanted:
            return Lack(bundle, wanted, room, fitting)
    return None


def _has_labels(node: Node, bundle: Bundle) -> bool:
    labels = node.labels
    return labels is None or all((labels.get(key) in values) == is_in for key, is_in, values in bundle.labels)


def _room(free: "Amounts", bundle: Bundle) -> int:
    """How often a bundle fits, at most MANY times."""
    most = min((free.get(name, 0) / amount for name, amount in bundle.resources if amount > 0), default=MANY)
    return max(0, int(min(most + ROUNDING, MANY)))


def describe(demand: Demand, count: int, lack: Lack) -> "Tuple[str, str]":
    """What is asked for and what there is, and what to do. count: how often it is asked for."""
    bundles = collections.Counter(demand.choices[0])
    what = "a task or actor with " + _shown(demand.choices[0][0])
    if demand.strategy:
        shape = " + ".join("%d x %s" % (number, _shown(bundle)) for bundle, number in bundles.items())
        what = "a placement group of %s (%s)" % (shape, demand.strategy)
    what = "Ray is asked for %s%s; " % (what, ", %d times" % count if count > 1 else "")
    if not lack.nodes:
        labels = " and ".join(_label(*label) for label in lack.bundle.labels)
        fix = "Correct the label selector, or set the label with --labels in ray.args"
        return what + "no node has the label " + labels, fix
    needed = dict(lack.bundle.resources)
    node, free = max(lack.nodes, key=lambda row: min(_share(row[1], needed)))
    has = ", ".join(_amount(name, max(0, free.get(name, 0))) for name in sorted(needed))
    is_held = any(free.get(name, 0) < node.resources.get(name, 0) for name in needed)
    largest = "the largest node, %s, has {%s}" % (node.name, has) + " beside placement groups" * is_held
    missing = {name: needed[name] - free.get(name, 0) for name in sorted(needed)}
    raises = [_raise(name, amount) for name, amount in missing.items() if amount > ROUNDING]
    if not raises:
        room = "the nodes have room for %d of %d x %s, " % (lack.room, lack.wanted, _shown(lack.bundle))
        fields = [FIELDS[name] for name in missing if name in FIELDS and demand.strategy != STRICT_SPREAD]
        return what + room + largest, "Raise " + " or ".join(["slurm.nodes", *fields])
    fix = " and ".join(raises)
    if all(node.resources.get(name, 0) >= amount for name, amount in needed.items()):
        fix += ", or raise slurm.nodes"
    if demand.strategy == STRICT_PACK and len(demand.choices[0]) > 1:
        fix += ", or let the trainer use PACK"
    return what + largest, fix[0].upper() + fix[1:]


def _share(free: "Amounts", needed: "Amounts") -> "Iterator[float]":
    yield 1.0
    for name, amount in needed.items():
        if amount > 0:
            yield free.get(name, 0) / amount


def _raise(name: str, amount: float) -> str:
    if name.startswith("node:"):  # each node has that of its own address
        return "name a node of this Ray cluster instead of %s" % name[5:]
    if name not in FIELDS:
        return "set %s with --resources in ray.args" % name
    unit, size = (" MiB", 2**20) if name in BYTES else ("", 1)
    return "raise %s by %d%s" % (FIELDS[name], math.ceil(amount / size - ROUNDING), unit)


def _shown(bundle: Bundle) -> str:
    return "{%s}" % ", ".join(
        [_amount(*row) for row in bundle.resources] + [_label(*row) for row in bundle.labels]
    )


def _amount(name: str, amount: float) -> str:
    return "%s: %.3g GiB" % (name, amount / 2**30) if name in BYTES else "%s: %g" % (name, amount)


def _label(key: str, is_in: bool, values: "Tuple[str, ...]") -> str:
    return key + ("=" if is_in else "!=") + "|".join(values)


def _printable(text: str) -> str:
    """At most MAX_TEXT characters of ASCII: names of resources and labels are the trainer's."""
    return re.sub("[^ -~]", "?", text)[:MAX_TEXT]


class DemandWatch:
    """Finds out which demands stay unplaceable for WAIT."""

    def __init__(self) -> None:
        # Since when, and which placement groups have been there all the time.
        self._since: "Dict[Demand, Tuple[float, FrozenSet[str]]]" = {}
        self._named: "Dict[Demand, Tuple[str, str]]" = {}

    def update(
        self, demands: "Dict[Demand, int]", nodes: "Sequence[Node]", now: float
    ) -> "Iterator[Tuple[str, str, bool]]":
        """Yield text, fix and False of a demand that stays; the same and True once it does so no longer.

        demands: all that are pending, and how often.
        """
        before, self._since = self._since, {}
        groups = frozenset(group for node in nodes for group in node.groups)
        for demand, count in demands.items():
            began, stay = before.get(demand, (now, groups))
            lack = find_lack(demand, nodes, stay & groups)
            if not lack:
                continue
            self._since[demand] = began, stay & groups
            if now - began >= WAIT and demand not in self._named and len(self._named) < MOST:
                text, fix = describe(demand, count, lack)
                self._named[demand] = _printable(text), _printable(fix)
                yield (*self._named[demand], False)
        for demand in [demand for demand in self._named if demand not in self._since]:
            yield (*self._named.pop(demand), True)
