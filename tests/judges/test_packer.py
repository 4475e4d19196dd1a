"""The packer and a real Ray agree on random demands: groups fit exactly where Ray creates them."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Sequence
from typing import Any, get_args

import pytest

from slurmray.presets.packer import Bundle, Group, Strategy, place

HANG = 60  # seconds; bounds a hang
LATE = 10  # seconds; GCS tries again each second, and hears of freed resources later
# CPUs and GPUs of each node.
CLUSTERS = {
    "alike": [Bundle(24, 8)] * 3,
    "a small head": [Bundle(4, 0), Bundle(24, 8), Bundle(24, 8)],
    "groups": [Bundle(16, 4), Bundle(64, 8), Bundle(64, 8), Bundle(96, 0)],
}
DEMANDS = 100  # for each cluster
GROUPS = [each for each in get_args(Strategy) if each != "ACTOR"]


@pytest.fixture(params=CLUSTERS, scope="module")
def nodes(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Bundle]]:
    """A real Ray with these nodes, which declare what they have."""
    import ray
    from ray.cluster_utils import Cluster

    home = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(home))  # Ray writes its token there
        nodes = CLUSTERS[request.param]
        cluster = Cluster()
        for node in nodes:
            cluster.add_node(num_cpus=node.cpus, num_gpus=node.gpus, include_dashboard=False)
        ray.init(address=cluster.address, log_to_driver=False)
        yield nodes
        ray.shutdown()
        cluster.shutdown()


def random_groups(generator: random.Random) -> Iterator[Group]:
    for number in range(generator.randint(1, 4)):
        kinds = [
            Bundle(generator.choice((0, 1, 2, 3, 5, 10)), generator.choice((0, 0.5, 1, 1, 2)))
            for _ in range(generator.randint(1, 2))
        ]
        bundles = [generator.choice(kinds) for _ in range(generator.randint(1, 10))]
        bundles = [bundle if any(bundle) else Bundle(1, 0) for bundle in bundles]
        yield Group(str(number), bundles, generator.choice(GROUPS))


def first_that_waits(groups: Sequence[Group], expected: Group | None) -> Group | None:
    """Create the groups one after the other; return the first one that Ray does not create.

    expected: the one of which that is believed at once.
    """
    from ray.util import placement_group, placement_group_table, remove_placement_group

    made: list[Any] = []
    try:
        for group in groups:
            bundles = [{"CPU": each.cpus, "GPU": each.gpus} for each in group.bundles]
            bundles = [{name: number for name, number in bundle.items() if number} for bundle in bundles]
            made.append(placement_group(bundles, strategy=group.strategy))
            start = time.monotonic()
            while (state := placement_group_table(made[-1]))["state"] != "CREATED":
                waits = state["stats"]["scheduling_state"] in ("NO_RESOURCES", "INFEASIBLE")
                if waits and (group is expected or time.monotonic() > start + LATE):
                    return group
                assert time.monotonic() < start + HANG, state
                time.sleep(0.01)
        return None
    finally:
        for each in reversed(made):
            remove_placement_group(each)
        await_free()


def await_free() -> None:
    """Wait until Ray has all resources back."""
    import ray

    end = time.monotonic() + HANG
    while {k: v for k, v in ray.available_resources().items() if k in ("CPU", "GPU")} != {
        k: v for k, v in ray.cluster_resources().items() if k in ("CPU", "GPU")
    }:
        assert time.monotonic() < end
        time.sleep(0.05)


@pytest.mark.full
def test_packer_and_ray_agree(nodes: list[Bundle]) -> None:
    fits = 0
    for seed in range(DEMANDS):
        groups = list(random_groups(random.Random(seed)))
        expected = place(groups, nodes).waiting
        assert first_that_waits(groups, expected) is expected, (seed, groups)
        fits += expected is None
    assert 0.2 < fits / DEMANDS < 0.8, "both answers are tried"
