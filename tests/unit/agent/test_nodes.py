"""The nodes on which a service runs."""

from __future__ import annotations

import pytest

from slurmray.agent.nodes import places


@pytest.mark.parametrize(
    ("where", "ray_nodes", "expected"),
    [
        ("head", 4, "a"),
        ("workers", 4, "bcd"),
        ("workers", 3, "bc"),
        ("workers", 1, ""),
        ("all", 3, "abcd"),
        (1, 3, "d"),
        (3, 4, "bcd"),
        (4, 4, "abcd"),
    ],
)
def test_places(where: str | int, ray_nodes: int, expected: str) -> None:
    assert places(where, list("abcd"), ray_nodes) == list(expected)
