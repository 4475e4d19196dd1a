"""The time limit. Slurm checks it twice a minute; the tests set EndTime, which may be at any second."""

from __future__ import annotations

import json
from typing import Any

import pytest

from .case import Fault


def train(fault: Fault, at_term: str, lead: int, left: int) -> None:
    """Start a trainer whose job reaches its time limit in `left` seconds. lead: stop.lead of the job spec."""
    run = f"trap 'echo signalled; {at_term}' TERM; echo started; while :; do sleep 0.1; done"
    stop: dict[str, Any] = {"lead": lead, "grace": 3}
    fault.start_trainer(["bash", "-c", run], slurm={"time": "10"}, stop=stop)
    fault.set_time_left(left)


@pytest.mark.fault("time limit", "podman", "docker", "none", "apptainer", "pyxis")
def test_trainer_saves_and_fails(fault: Fault) -> None:
    train(fault, "sleep 1; exit 5", lead=60, left=75)
    job = fault.wait_end("] time limit or preemption near: the trainer gets TERM")
    assert "\nsignalled\n" in job.log, job.log
    assert (job.state, job.code) == ("FAILED", "72:0"), job.log
    assert job.last_line.startswith("failed (72 time limit): "), job.log
    events = [json.loads(line)["event"] for line in (job.run / "events.jsonl").read_text().splitlines()]
    assert "time_limit" in events


@pytest.mark.fault("time limit", "podman", "docker", "none", "apptainer", "pyxis")
@pytest.mark.full
def test_trainer_ignores_it(fault: Fault) -> None:
    train(fault, ":", lead=30, left=65)
    job = fault.wait_end("] time limit or preemption near: the trainer gets TERM")
    assert (job.state, job.code) == ("FAILED", "72:0"), job.log


@pytest.mark.fault("time limit", "podman", "docker", "none", "apptainer", "pyxis")
@pytest.mark.full
def test_trainer_ends_with_0(fault: Fault) -> None:
    train(fault, "exit 0", lead=60, left=75)
    job = fault.wait_end("] time limit or preemption near: the trainer gets TERM")
    assert (job.state, job.code) == ("COMPLETED", "0:0"), job.log


@pytest.mark.fault("time limit", "podman", "docker", "none", "apptainer", "pyxis")
@pytest.mark.full
def test_without_a_warning(fault: Fault) -> None:
    train(fault, ":", lead=0, left=5)
    job = fault.wait_end("] stop: ")
    assert job.state == "TIMEOUT", job.log
