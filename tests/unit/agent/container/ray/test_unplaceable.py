"""Which demands of Ray no node could hold even if it were empty, and what is said of them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurmray.agent.container.ray.unplaceable import Bundle, Demand, DemandWatch, Node, describe, find_lack
from slurmray.presets import packer

GIB = 2.0**30
HELD = {"g": {"CPU": 3.0}}
# node2 has three of its CPUs in a placement group.
NODES = [
    Node("node1", {"CPU": 4.0, "memory": GIB}, {"zone": "a"}, {}),
    Node("node2", {"CPU": 6.0, "GPU": 2.0}, {}, HELD),
]


def bundle(*labels: tuple[str, bool, tuple[str, ...]], **resources: float) -> Bundle:
    return Bundle(tuple(sorted(resources.items())), labels)


def demand(strategy: str, *bundles: Bundle) -> Demand:
    return Demand(strategy, (bundles,))


def task(*labels: tuple[str, bool, tuple[str, ...]], **resources: float) -> Demand:
    return demand("", bundle(*labels, **resources))


CPU, CPUS = bundle(CPU=1), bundle(CPU=3)
IN_B = ("zone", True, ("b", "c"))
NOT_A = ("zone", False, ("a",))
FITS = [
    task(CPU=4),
    task(CPU=0),
    task(NOT_A, CPU=3),  # also of nodes without the label
    task(("zone", True, ("a", "b")), CPU=4),
    Demand("", ((bundle(IN_B, CPU=1),), (CPU,))),  # the second choice
    demand("PACK", CPUS, CPUS),
    demand("SPREAD", *[CPU] * 7),
    demand("STRICT_SPREAD", CPUS, CPUS),
    demand("STRICT_PACK", CPU, CPUS),
    task(GPU=0.5),
]
WAITS = [
    (task(CPU=5), "a task or actor with {CPU: 5}; the largest node, node1, has {CPU: 4}",
     "Raise slurm.cpus_per_task by 1"),
    (task(CPU=2, GPU=4), "a task or actor with {CPU: 2, GPU: 4}; the largest node, node2, has "
     "{CPU: 3, GPU: 2} beside placement groups", "Raise slurm.gpus_per_node by 2"),
    (task(CPU=5, GPU=2.5), "a task or actor with {CPU: 5, GPU: 2.5}; the largest node, node2, has "
     "{CPU: 3, GPU: 2} beside placement groups",
     "Raise slurm.cpus_per_task by 2 and raise slurm.gpus_per_node by 1"),
    (task(memory=2.5 * GIB), "a task or actor with {memory: 2.5 GiB}; the largest node, node1, has "
     "{memory: 1 GiB}", "Raise slurm.mem by 1536 MiB"),
    (task(tpu=1), "a task or actor with {tpu: 1}; the largest node, node1, has {tpu: 0}",
     "Set tpu with --resources in ray.args"),
    (task(**{"node:10.0.0.9": 0.01}), "a task or actor with {node:10.0.0.9: 0.01}; the largest node, node1, "
     "has {node:10.0.0.9: 0}", "Name a node of this Ray cluster instead of 10.0.0.9"),
    (task(IN_B, CPU=1), "a task or actor with {CPU: 1, zone=b|c}; no node has the label zone=b|c",
     "Correct the label selector, or set the label with --labels in ray.args"),
    (task(NOT_A, CPU=4), "a task or actor with {CPU: 4, zone!=a}; the largest node, node2, has "
     "{CPU: 3} beside placement groups", "Raise slurm.cpus_per_task by 1, or raise slurm.nodes"),
    (demand("STRICT_PACK", CPUS, CPUS), "a placement group of 2 x {CPU: 3} (STRICT_PACK); the "
     "largest node, node1, has {CPU: 4}", "Raise slurm.cpus_per_task by 2, or let the trainer use PACK"),
    (demand("PACK", CPU, bundle(CPU=5)), "a placement group of 1 x {CPU: 1} + 1 x {CPU: 5} (PACK); "
     "the largest node, node1, has {CPU: 4}", "Raise slurm.cpus_per_task by 1"),
    (demand("PACK", CPUS, CPUS, CPUS), "a placement group of 3 x {CPU: 3} (PACK); the nodes have "
     "room for 2 of 3 x {CPU: 3}, the largest node, node1, has {CPU: 4}",
     "Raise slurm.nodes or slurm.cpus_per_task"),
    (demand("STRICT_SPREAD", CPU, CPU, CPU), "a placement group of 3 x {CPU: 1} (STRICT_SPREAD); "
     "the nodes have room for 2 of 3 x {CPU: 1}, the largest node, node1, has {CPU: 4}", "Raise slurm.nodes"),
]  # fmt: skip


@pytest.mark.parametrize("wanted", FITS, ids=str)
def test_what_an_empty_node_could_hold(wanted: Demand) -> None:
    assert find_lack(wanted, NODES, ["g"]) is None


@pytest.mark.parametrize(("wanted", "text", "fix"), WAITS)
def test_what_no_node_could_hold(wanted: Demand, text: str, fix: str) -> None:
    lack = find_lack(wanted, NODES, ["g"])
    assert lack
    assert describe(wanted, 1, lack) == (f"Ray is asked for {text}", fix)
    assert ", 7 times; " in describe(wanted, 7, lack)[0]


def test_labels_that_ray_does_not_show() -> None:
    assert find_lack(task(IN_B, CPU=1), [NODES[0]._replace(labels=None)], []) is None


def test_groups_that_may_end_hold_nothing() -> None:
    assert find_lack(task(CPU=6), NODES, ["g"])
    assert find_lack(task(CPU=6), NODES, ["other"]) is None


AMOUNTS = st.integers(0, 4)
NODE = st.tuples(AMOUNTS, AMOUNTS)
SHAPE = NODE.filter(any)  # Ray refuses an empty bundle
STRATEGIES = st.sampled_from(["ACTOR", "PACK", "SPREAD", "STRICT_PACK", "STRICT_SPREAD"])


@given(st.lists(NODE, min_size=1, max_size=4), st.lists(SHAPE, min_size=1, max_size=4), STRATEGIES)
def test_nothing_is_named_that_ray_places(
    free: list[tuple[int, int]], shapes: list[tuple[int, int]], strategy: Any
) -> None:
    """The packer of the presets, which agrees with Ray, places none of what is named."""
    shapes = shapes[:1] if strategy == "ACTOR" else shapes
    wanted = demand(strategy.replace("ACTOR", ""), *(bundle(CPU=cpus, GPU=gpus) for cpus, gpus in shapes))
    nodes = [Node(f"node{n}", {"CPU": cpus, "GPU": gpus}, {}, {}) for n, (cpus, gpus) in enumerate(free)]
    group = packer.Group("x", [packer.Bundle(*shape) for shape in shapes], strategy)
    places = packer.place([group], [packer.Bundle(*shape) for shape in free])
    if not places.waiting:
        assert find_lack(wanted, nodes, []) is None
    elif len({*shapes}) == 1:
        assert find_lack(wanted, nodes, [])


def node(cpus: float, *groups: str) -> Node:
    return Node("node1", {"CPU": cpus}, {}, {group: {"CPU": 1.0} for group in groups})


BIG = task(CPU=4)


@pytest.mark.parametrize(
    ("steps", "named"),
    [
        # Seconds, nodes, pending -> when it is named, and when that is over.
        ([(0, node(2), BIG), (59, node(2), BIG), (60, node(2), BIG), (70, node(2), BIG)], [(60, False)]),
        ([(0, node(2), BIG), (60, node(2), BIG), (70, node(2), None)], [(60, False), (70, True)]),
        ([(0, node(2), BIG), (60, node(2), BIG), (70, node(4), BIG)], [(60, False), (70, True)]),
        ([(0, node(2), BIG), (50, node(2), None), (60, node(2), BIG), (119, node(2), BIG)], []),
        ([(0, node(2), BIG), (50, node(4), BIG), (60, node(2), BIG), (120, node(2), BIG)], [(120, False)]),
        # A placement group that stays for a minute, and those that come and go.
        ([(0, node(4, "a"), BIG), (60, node(4, "a"), BIG)], [(60, False)]),
        ([(0, node(4, "a"), BIG), (30, node(4, "b"), BIG), (60, node(4, "b"), BIG)], []),
        ([(0, node(4, "a"), BIG), (30, node(4, "a", "b"), BIG), (60, node(4, "b"), BIG)], []),
        ([(0, node(4, "a", "b"), BIG), (30, node(4, "b"), BIG), (60, node(4, "b"), BIG)], [(60, False)]),
    ],
)
def test_when_a_demand_is_named(
    steps: list[tuple[float, Node, Demand | None]], named: list[tuple[float, bool]]
) -> None:
    watch, seen = DemandWatch(), []
    for now, each, pending in steps:
        demands = {pending: 1} if pending else {}
        seen += [(now, ended) for _, _, ended in watch.update(demands, [each], now)]
    assert seen == named


@pytest.mark.attack("names of resources and labels of the trainer", inputs=1)
def test_texts_are_short_and_printable() -> None:
    watch, wanted = DemandWatch(), {task(**{"x\x1b[2J\n" * 100: n}): 1 for n in range(1, 30)}
    assert not list(watch.update(wanted, [node(2)], 0))
    rows = list(watch.update(wanted, [node(2)], 60))
    assert len(rows) == 10
    for text, fix, _ in rows:
        assert text.isprintable()
        assert fix.isprintable()
        assert max(len(text), len(fix)) <= 300
