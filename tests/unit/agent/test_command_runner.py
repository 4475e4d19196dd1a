"""Commands of the agent: their end, their deadline, and what they print."""

from __future__ import annotations

import os
import time

import pytest

from slurmray.agent import command_runner

HANG = 20  # seconds


def shell(text: str, timeout: float | None = HANG, **options: bool) -> command_runner.Result:
    return command_runner.run(["sh", "-c", text], os.environ, timeout, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("timeout", [HANG, None])
def test_the_end_of_a_command_is_not_that_of_its_output(timeout: float | None) -> None:
    begin = time.monotonic()
    done = shell(f"echo first; sleep {2 * HANG} & echo $!", timeout)
    assert time.monotonic() - begin < HANG
    first, daemon = done.out.split()
    assert (done.code, first) == (0, "first")
    os.kill(int(daemon), 9)  # it was not ended with the command


def test_a_late_command_may_clean_up() -> None:
    done = shell("trap 'echo cleaned up; exit 3' TERM; echo begun; sleep 60 & wait", 1)
    assert (done.code, done.out) == (command_runner.TIMEOUT, "begun\ncleaned up\n")
    assert done.why == "sh -c does not answer"


def test_a_command_that_cannot_be_executed() -> None:
    assert command_runner.run(["/no/program"], {}, 1).why == "/no/program: not found"
    assert command_runner.run(["/"], {}, 1).why == "cannot execute /: Permission denied"


@pytest.mark.parametrize("is_logged", [True, False])
def test_what_goes_to_the_log(capfd: pytest.CaptureFixture[str], is_logged: bool) -> None:
    done = shell("echo out; echo first >&2; echo reason >&2; exit 5", is_logged=is_logged)
    assert (done.code, done.out, done.err, done.why) == (5, "out\n", "first\nreason\n", "reason")
    assert capfd.readouterr() == ("", "first\nreason\n" if is_logged else "")
    assert shell("echo out; echo reason >&2", None).out == "out\nreason\n"
    assert capfd.readouterr().err == "out\nreason\n"


def test_slurm_s_commands_get_no_options_from_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SQUEUE_STATES", "PD")
    assert "SQUEUE_STATES" not in command_runner.run_slurm(["env"], HANG).out
