"""The trainer ends by itself, or ignores SIGTERM."""

from __future__ import annotations

import pytest

from .case import KILL_WAIT, Fault

full = pytest.mark.full


@pytest.mark.fault("the trainer ends", "podman", "docker", "none", "apptainer", "pyxis")
@full
@pytest.mark.parametrize("code", [0, 71, 137])
def test_with_an_exit_code(fault: Fault, code: int) -> None:
    fault.start_trainer(["bash", "-c", f"echo started; exit {code}"])
    job = fault.wait_end()
    assert (job.state, job.code) == ("FAILED" if code else "COMPLETED", f"{code}:0"), job.log
    assert job.last_line.partition(" (")[0] == f"done: trainer exited with {code}", job.log


@pytest.mark.fault("the trainer ends", "podman", "docker", "none", "apptainer", "pyxis")
@full
@pytest.mark.parametrize(("signal", "code"), [("SEGV", 139), ("TERM", 143)])
def test_of_a_signal(fault: Fault, signal: str, code: int) -> None:
    fault.start_trainer(["bash", "-c", f"echo started; kill -{signal} $$"])
    job = fault.wait_end()
    assert job.code == f"{code}:0", job.log
    assert job.last_line == f"done: trainer exited with {code} (128 + signal {signal})", job.log


@pytest.mark.fault("a trainer ignores SIGTERM", "docker", "podman", "none", "apptainer", "pyxis")
def test_scancel(fault: Fault) -> None:
    fault.start_trainer(["bash", "-c", "trap '' TERM; echo started; while :; do sleep 0.1; done"])
    fault.inject(["scancel", str(fault.job)])
    job = fault.wait_end("] stop: ", clean_within=KILL_WAIT)
    assert job.state == "CANCELLED", job.log
    assert job.last_line == "done: trainer exited with 137 (128 + signal KILL)", job.log


@pytest.mark.fault("a trainer ignores SIGTERM", "docker", "podman", "none", "apptainer", "pyxis")
@full
def test_cancel_now(fault: Fault) -> None:
    """What slurmray cancel --now does: scancel, and a line in a file that the controller reads."""
    fault.start_trainer(["bash", "-c", "trap '' TERM; echo started; while :; do sleep 0.1; done"])
    file = fault.jobs.folder / f"slurmray-runs/{fault.job}-0/cancel-now"
    fault.inject(["bash", "-c", f"scancel {fault.job} && echo now >{file}"], user="alice")
    job = fault.wait_end("] stop: the grace period ends", clean_within=KILL_WAIT)
    assert job.state == "CANCELLED", job.log
    assert job.last_line == "done: trainer exited with 137 (128 + signal KILL)", job.log
    events = {event["event"]: event for event in job.events}
    assert events["end"]["time"] - events["stop_now"]["time"] < events["grace"]["seconds"] / 2
