"""A worker without heartbeats, by a clock of its own; test_agent.py has real processes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from slurmray.agent import background_io, command_runner
from slurmray.agent.node import head_loss

from ..containers import job

RETURN = 30.0  # seconds until slurmctld answers, and the controller writes heartbeats again


@pytest.mark.parametrize("returns", [True, False])
@pytest.mark.parametrize("node", ["node2", "node4", "node6"])
def test_a_controller_that_waits_for_slurmctld(
    node: str, returns: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker that was cut off looks again before it ends the job."""
    now = 0.0
    ended: list[float] = []

    def sleep(seconds: float) -> None:
        nonlocal now
        now += seconds

    def read(*_: Any, **__: Any) -> command_runner.Result:
        beat = str(now) if returns and now >= RETURN else "0"
        return command_runner.Result(0, beat)

    def run_slurm(argv: list[str], *_: Any, **__: Any) -> command_runner.Result:
        if argv[0] == "scancel":
            ended.append(now)
        return command_runner.Result(0, "RUNNING" if now >= RETURN else "")

    monkeypatch.setattr(f"{head_loss.__name__}.time", SimpleNamespace(monotonic=lambda: now, sleep=sleep))
    monkeypatch.setattr(command_runner, "run", read)
    monkeypatch.setattr(command_runner, "run_slurm", run_slurm)
    monkeypatch.setattr(background_io, "call", lambda *_: None)
    nodes = [f"node{number}" for number in range(1, 9)]
    record: Any = job(id="9", batch_host="node1", nodes=nodes, run_dir="/r")
    head_loss.end_without_head(record, node, 25, lambda: {"node1"})
    is_later = node != "node2"  # node2 asks first, when slurmctld does not answer yet
    assert bool(ended) == (is_later and not returns)
