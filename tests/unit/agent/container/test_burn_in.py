"""The burn-in of a node: its processes, and what becomes of errors. tests/cluster/test_ddp.py has PyTorch."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

import pytest

from slurmray.agent.container import burn_in
from slurmray.agent.container.burn_in import MISSING, Process, measure_node, pairs_of, wait

FIGURES = {
    "kind": "H200",
    "products": [700.0, 701.0],
    "copies": [3900.0, 3900.0],
    "within": 380.0,
    "pairs": 45.0,
}


@pytest.mark.parametrize("count", range(1, 10))
def test_each_node_is_in_two_pairs_with_one_partner_at_a_time(count: int) -> None:
    nodes = list(range(0, 2 * count, 2))
    pairs = {node: pairs_of(node, nodes) for node in nodes}
    assert {len(own) for own in pairs.values()} == {min(2, count - 1)}
    assert all(node in pair for node, own in pairs.items() for pair in own)
    waiting = {node: list(own) for node, own in pairs.items()}
    while any(waiting.values()):  # a pair meets once it is the next one of both
        ready = [
            own[0] for own in waiting.values() if own and all(waiting[node][0] == own[0] for node in own[0])
        ]
        assert ready, waiting
        waiting = {node: own[1:] if own and own[0] in ready else own for node, own in waiting.items()}


def test_processes_end_in_time() -> None:
    """One returns, one raises, one is killed, one hangs with a child of its own."""
    processes = [
        Process(lambda: [1.5, "x"]),
        Process(lambda: 1 / 0),
        Process(lambda: os.kill(os.getpid(), 9)),
        Process(lambda: time.sleep(600)),
    ]
    assert wait(processes, 1) == [
        [[1.5, "x"]],
        [None, "division by zero"],
        [None, "its process was killed"],
        [None, "no end after 1 s"],
    ]
    for process in processes:
        with pytest.raises(ProcessLookupError):
            os.kill(process.pid, 0)


@pytest.fixture
def measure(monkeypatch: pytest.MonkeyPatch) -> Callable[..., dict[str, Any]]:
    """Measure the first of three nodes with two GPUs each; the head node has none. Takes errors by name."""

    def run(**errors: str) -> dict[str, Any]:
        def figure(name: str, value: Any) -> Any:
            if name in errors:
                raise ValueError(errors[name])
            return value

        reduced = {"1-1-1": 380.0, "1-2-2": 45.0, "3-1-2": 44.0, "1-3-3": 41.0}
        for name, function in {
            "meet": lambda *_: figure("meet", 0),
            "multiply": lambda _, number, __: ["H200", figure(f"multiply{number}", 700.0 + number)],
            "copy": lambda *_: figure("copy", 3900.0),
            "_all_reduce": lambda _, name, *__: figure(name, reduced[name]),
        }.items():
            monkeypatch.setattr(burn_in.Meter, name, function)
        request = {"gpus": [0, 2, 2, 2], "rank": 1, "address": "::1", "port": 1, "env": {"ZMARK": "1"}}
        return measure_node(None, request, 0.1)

    monkeypatch.setenv("ZMARK", "0")
    return run


def test_a_node_with_all_figures(measure: Callable[..., dict[str, Any]]) -> None:
    assert measure() == {**FIGURES, "all": 41.0, "problems": []}
    assert os.environ["ZMARK"] == "1"


def test_errors_name_what_could_not_be_measured(measure: Callable[..., dict[str, Any]]) -> None:
    assert measure(multiply1="wrong result") == {
        **FIGURES,
        "products": [700.0, MISSING],
        "all": 41.0,
        "problems": [["matrix products", "GPU 1: wrong result"]],
    }
    # The other node of a pair may be the bad one.
    one = measure(**{"1-2-2": "no end after 41 s", "1-3-3": "no end after 41 s"})
    assert (one["pairs"], one["all"]) == (44.0, MISSING)
    assert one["problems"] == [["all-reduce of all nodes", "no end after 41 s"]]
    both = measure(**{"1-2-2": "no end", "3-1-2": "NCCL error"})
    assert both["pairs"] == MISSING
    assert both["problems"] == [["all-reduce with another node", "no end"]]
