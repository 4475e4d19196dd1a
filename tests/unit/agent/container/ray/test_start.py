"""Starts of Ray whose ports other processes take."""

from __future__ import annotations

from pathlib import Path

import pytest

from slurmray.agent.container import node_address, ports
from slurmray.agent.job_errors import JobError

from .fake_context import ray_process


def test_ports_that_are_taken_at_each_of_three_starts(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(ports, "listeners", lambda _: (set(), {20001}))
    ray = ray_process(tmp_path)
    ray.watch.start([])
    for name in ("write_token", "preload", "start"):
        monkeypatch.setattr(ray, name, lambda *_: None)
    ray.child_ended("ray", 1)
    ray.child_ended("ray", 1)
    with pytest.raises(JobError, match="other processes took the chosen ports 3 times") as caught:
        ray.child_ended("ray", 1)
    assert caught.value.kind == "bring_up"


def test_a_port_that_is_taken_after_workers_got_the_address(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(ports, "listeners", lambda _: ({1}, set()))
    monkeypatch.setattr(node_address, "is_open", lambda *_: True)
    ray = ray_process(tmp_path)
    ray.context.ports = [1, 0, 20001]
    ray.watch.start([])
    assert ray.does_gcs_answer()
    monkeypatch.setattr(ports, "listeners", lambda _: (set(), {20001}))
    with pytest.raises(
        JobError, match=r"process took port 20001 of this node .* Submit the job again"
    ) as caught:
        ray.watch.is_port_taken()
    assert caught.value.kind == "bring_up"
