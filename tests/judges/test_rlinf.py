"""RLinf's placement code reads the placements of its guide, and wrong ones."""

from __future__ import annotations

from typing import Any

import pytest

from tests.judges import documents, stale
from tests.judges.environments import ask


def placed(text: str) -> dict[str, str]:
    """{component: GPUs} of a row of docs/reference/stale-flags.md."""
    return dict(component.split(": ") for component in text.split(", "))


def placement(
    components: dict[str, Any], nodes: int = 4, gpus_per_node: int = 8, **more: Any
) -> dict[str, Any]:
    config = {"cluster": {"num_nodes": nodes, "component_placement": components, **more}}
    return {"nodes": nodes, "gpus_per_node": gpus_per_node, "config": config}


@pytest.mark.parametrize(
    ("components", "refusal"),
    [
        ({"rollout": "0-19", "inference": "20-23", "actor,reward": "24-32"}, "End rank 32"),
        ({"rollout": "0-20", "inference": "20-23", "actor,reward": "24-31"}, "does not match either"),
        ({"rollout": "19-0", "actor,reward": "24-31"}, "Start rank 19"),
        ({"rollout": "0-7,16-23", "actor,reward": "24-31"}, "must be continuous"),
        ({"rollout": "all", "actor,reward": "0-7"}, "does not match either"),
        ({"actor,rollout,reward": "all", "inference": "0-7"}, "must not be specified in collocated mode"),
        ({"actor,rollout,reward": "every"}, "Invalid rank format every"),
        ({"actor,rollout,reward": "all", "actor ": "all"}, "multiple placements"),
    ],
)
def test_rlinf_refuses(components: dict[str, str], refusal: str) -> None:
    (verdict,) = ask("rlinf", [placement(components)])
    assert refusal in verdict["error"]


def test_the_placement_of_rlinfs_guide_lacks_the_reward() -> None:
    assert [placed(row.refused) for row in stale.RLINF] == [
        documents.RLINF_COLLOCATED,
        documents.RLINF_DISAGGREGATED,
    ]
    for verdict in ask("rlinf", [placement(placed(row.refused)) for row in stale.RLINF]):
        assert "Reward GPUs must be specified" in verdict["error"]


def test_rlinf_places() -> None:
    collocated, apart, idle, with_gpus, without_gpus = ask(
        "rlinf",
        [
            *(placement(placed(row.instead)) for row in stale.RLINF),
            placement({"rollout": "0-7", "actor,reward": "24-31"}),
            placement({"actor,rollout,reward": "all"}, num_gpus_per_node=4),
            placement({"actor,rollout,reward": "all"}, gpus_per_node=0),
        ],
    )
    everywhere = [[node, [gpu]] for node in range(4) for gpu in range(8)]
    assert collocated == {"placed": dict.fromkeys(("actor", "rollout", "reward"), everywhere), "error": None}
    assert apart["placed"]["rollout"] == everywhere[:20]
    assert apart["placed"]["inference"] == everywhere[20:24]
    assert apart["placed"]["actor"] == everywhere[24:]
    assert idle["error"] is None, "idle GPUs are not an error"
    assert with_gpus == collocated, "num_gpus_per_node is not read"
    assert "requires hardware resources" in without_gpus["error"]
