"""A process outside the tree of the task, and its tether."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from slurmray.agent.node.detached_process import KILLED, DetachedProcess
from tests.processes import is_running
from tests.unit.agent.waiting import wait_for_text, wait_until

HANG = 20.0


def bash(command: str, output: int = 2) -> DetachedProcess:
    return DetachedProcess(["bash", "-c", command], dict(os.environ), output)


def ends(pid: int) -> None:
    wait_until(lambda: not is_running(pid))


@pytest.mark.parametrize(("command", "code"), [("true", 0), ("exit 7", 7), ("kill -KILL $$", 137)])
def test_exit_code(command: str, code: int) -> None:
    process = bash(command)
    assert process.poll(HANG) == code
    assert process.poll() == code
    process.close_input()


def test_a_program_that_is_not_there(capfd: pytest.CaptureFixture[str]) -> None:
    process = DetachedProcess(["/no/such"], dict(os.environ), 2)
    assert process.poll(HANG) == 127
    assert "/no/such: No such file" in capfd.readouterr().err


def test_process_runs_while_its_input_is_open(tmp_path: Path) -> None:
    process = bash(f"cat >{tmp_path}/got")
    process.send(b"one\n")
    process.send(b"two\n")
    assert process.poll(0.5) is None
    process.close_input()
    assert process.poll(HANG) == 0
    assert (tmp_path / "got").read_text() == "one\ntwo\n"


def test_output_goes_to_the_descriptor(tmp_path: Path) -> None:
    with (tmp_path / "out").open("wb") as file:
        assert bash("echo out; echo more", file.fileno()).poll(HANG) == 0
    assert (tmp_path / "out").read_text() == "out\nmore\n"


def test_process_is_not_a_descendant(tmp_path: Path) -> None:
    """Slurm's signals to a task's children do not reach it."""
    process = bash(f"ps -o ppid= -p $PPID >{tmp_path}/parent; sleep 60")
    assert int(wait_for_text(tmp_path / "parent")) != os.getpid()
    process.end(0)
    assert process.poll() == KILLED


def test_a_wrapper_that_is_killed() -> None:
    process = bash("cat")
    assert process.poll(0.5) is None
    os.kill(process.session, signal.SIGKILL)
    assert process.poll(HANG) == KILLED
    process.end(0)


def test_process_that_ignores_its_tether_is_killed(tmp_path: Path) -> None:
    process = bash(f"trap '' TERM; echo $$ >{tmp_path}/pid; sleep 60; echo late >{tmp_path}/late")
    assert process.poll(0.5) is None
    begin = time.monotonic()
    process.end(0.2)
    assert time.monotonic() - begin < HANG / 2
    assert process.poll() == KILLED
    ends(int((tmp_path / "pid").read_text()))
    assert not (tmp_path / "late").exists()


def test_other_processes_of_the_group_are_killed(tmp_path: Path) -> None:
    process = bash(f"sleep 60 & echo $! >{tmp_path}/pid")
    assert process.poll(HANG) == 0
    ends(int((tmp_path / "pid").read_text()))


def test_sending_to_a_closed_input_is_no_error() -> None:
    process = bash("exec <&-; sleep 1")
    for _ in range(100):
        process.send(b"x" * 10_000)
    assert process.poll(HANG) == 0
