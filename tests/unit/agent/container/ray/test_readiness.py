"""The readiness probe."""

from __future__ import annotations

from typing import Any

import pytest

from slurmray.agent.container.ray import readiness


def row(name: str, gpus: int = 8, alive: bool = True) -> dict[str, Any]:
    """A row of `ray.nodes()` with the keys that the probe reads; without GPUs it has no key GPU."""
    resources = {"CPU": 4.0, **({"GPU": float(gpus)} if gpus else {})}
    return {"Alive": alive, "NodeName": name, "Resources": resources}


GPUS = {"gpu-1": 8, "gpu-2": 8}


@pytest.mark.parametrize(
    ("table", "gpus", "expected"),
    [
        ([row("gpu-1", 0), row("gpu-2")], (0, 8), (2, 8, {})),
        ([row("gpu-1", 0), row("gpu-2", 0)], (0, 8), (2, 0, {"gpu-2": "has 0 of 8 GPUs"})),
        ([], (8, 8), (0, 0, {"gpu-1": "has not joined", "gpu-2": "has not joined"})),
        ([row("gpu-1"), row("gpu-2")], (8, 8), (2, 16, {})),
        ([row("gpu-1"), row("gpu-2", 7)], (8, 8), (2, 15, {"gpu-2": "has 7 of 8 GPUs"})),
        ([row("gpu-1"), row("gpu-2", alive=False)], (8, 8), (1, 8, {"gpu-2": "has not joined"})),
        ([row("gpu-1", alive=False), row("gpu-1"), row("gpu-2")], (8, 8), (2, 16, {})),  # it has joined again
        ([row("gpu-1", 16), row("stranger")], (8, 8), (1, 16, {"gpu-2": "has not joined"})),
        ([row("gpu-1", 0), row("gpu-2", 0)], (0, 0), (2, 0, {})),
    ],
)
def test_evaluate(table: list[Any], gpus: tuple[int, int], expected: tuple[int, int, dict[str, str]]) -> None:
    assert readiness.evaluate(table, dict(zip(GPUS, gpus, strict=True))) == expected


def test_progress() -> None:
    assert readiness.progress(3, 16, {"gpu-2": "has not joined"}, {"a": 0, "b": 8, "c": 8, "gpu-2": 8}) == (
        "3/4 nodes, 16/24 GPUs, waiting for gpu-2"
    )
    assert readiness.progress(2, 16, {}, GPUS) == "2/2 nodes, 16/16 GPUs"
    many = {f"n{number}": "" for number in range(9)}
    assert readiness.progress(0, 0, many, dict.fromkeys(many, 0)).endswith(
        "waiting for n0, n1, n2, n3 and 5 more"
    )


def wait(tables: list[list[Any]], timeout: float) -> tuple[dict[str, str], list[str]]:
    """Result and messages of a probe that reads one table per second, after the last one that one again."""
    now: list[float] = [0.0]
    reported: list[str] = []

    def pause(_: float) -> None:
        now[0] += 1

    lacking = readiness.wait_until_ready(
        lambda: tables[min(int(now[0]), len(tables) - 1)],
        GPUS,
        timeout,
        reported.append,
        lambda: now[0],
        pause,
    )
    return lacking, reported


def test_probe_reports_each_step_once_and_ends_when_the_cluster_is_ready() -> None:
    one, two = [row("gpu-1")], [row("gpu-1"), row("gpu-2")]
    assert wait([[], one, one, two], 600) == (
        {},
        [
            "0/2 nodes, 0/16 GPUs, waiting for gpu-1, gpu-2",
            "1/2 nodes, 8/16 GPUs, waiting for gpu-2",
            "2/2 nodes, 16/16 GPUs",
        ],
    )


def test_the_probe_ends_at_its_deadline() -> None:
    lacking, reported = wait([[row("gpu-1")]], 3)
    assert lacking == {"gpu-2": "has not joined"}
    assert len(reported) == 1


def test_why_the_cluster_is_not_ready() -> None:
    names = dict.fromkeys(["n1", "n2", "n3", "n4"], 8)
    lacking = {"n2": "has 7 of 8 GPUs", "n4": "has not joined"}
    begin = "cluster not ready after 600 s: 3 of 4 nodes joined, missing n4, n2 has 7 of 8 GPUs. "
    assert readiness.not_ready(lacking, names, 600.0).startswith(begin)
    many = {f"n{number}": 8 for number in range(9)}
    begin = "0 of 9 nodes joined, missing n0, n1, n2, n3 and 5 more. "
    assert begin in readiness.not_ready(dict.fromkeys(many, "has not joined"), many, 1.0)
