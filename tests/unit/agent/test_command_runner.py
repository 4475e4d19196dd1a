"""Commands of the agent: their end, their deadline, and what they print."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from slurmray.agent import command_runner
from tests.processes import is_running

from .waiting import wait_until

HANG = 20  # seconds


def shell(text: str, timeout: float | None = HANG, **options: bool) -> command_runner.Result:
    return command_runner.run(["sh", "-c", text], os.environ, timeout, **options)  # type: ignore[arg-type]


def test_a_missing_program_with_a_folder_in_path_that_may_not_be_entered(tmp_path: Path) -> None:
    """execvp(3) then says EACCES."""
    closed = tmp_path / "closed"
    closed.mkdir(mode=0)
    own = os.geteuid()
    if own == 0:
        os.seteuid(65530)
    try:
        env = {"PATH": f"{closed}:/etc"}
        assert command_runner.run(["apptainer"], env, HANG).why == "apptainer: not found"
        assert command_runner.run(["passwd"], env, HANG).why == "cannot execute passwd: Permission denied"
    finally:
        os.seteuid(own)


def run_in_process(argv: list[str]) -> subprocess.Popen[bytes]:
    """Run a long command in a process of its own."""
    code = (
        "import os, sys; from slurmray.agent.command_runner import run; run(sys.argv[1:], os.environ, None)"
    )
    return subprocess.Popen([sys.executable, "-c", code, *argv])


def wait_for_end(pid: Path) -> None:
    """Wait until a process runs no more. pid: the file with its id."""
    wait_until(lambda: not is_running(int(pid.read_text())))


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


@pytest.mark.parametrize(("most", "code"), [(HANG, 0), (2, command_runner.TIMEOUT)])
def test_a_command_that_waits_for_a_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: float, code: int
) -> None:
    """That time does not count, up to a limit. most: the limit in seconds."""
    monkeypatch.setattr(command_runner, "LOCK_PATIENCE", 5)
    monkeypatch.setattr(command_runner, "LOCK_WAIT", most)
    lock = "import fcntl, sys, time; f = open(sys.argv[1], 'w'); fcntl.lockf(f, fcntl.LOCK_EX); "
    file = str(tmp_path / "lock")
    hold = [sys.executable, "-c", lock + "print(flush=True); time.sleep(100)", file]
    with subprocess.Popen(hold, stdout=subprocess.PIPE) as holder:
        assert holder.stdout
        assert holder.stdout.readline()
        # Podman waits in a child process.
        argv = ["/bin/sh", "-c", '"$@"; exit $?', "sh", sys.executable, "-c", lock + "time.sleep(2)", file]
        done = command_runner.run(argv, os.environ, 4, on_lock=holder.terminate)
        holder.terminate()
    assert done.code == code


def test_a_long_command_ends_with_a_killed_agent(tmp_path: Path) -> None:
    """Also its children, which may have no parent any more that Slurm knows."""
    pid = tmp_path / "pid"
    command = f"(echo $BASHPID >{pid}.new; mv {pid}.new {pid}; exec sleep {3 * HANG}) & wait"
    with run_in_process(["bash", "-c", command]) as agent:
        wait_until(pid.exists)
        agent.kill()
    wait_for_end(pid)


def test_a_long_command_that_has_just_begun_ends_with_a_killed_agent(tmp_path: Path) -> None:
    for number in range(5):
        pid = tmp_path / str(number)
        command = f"kill -KILL $PPID; echo $$ >{pid}.new; mv {pid}.new {pid}; exec sleep {3 * HANG}"
        with run_in_process(["sh", "-c", command]) as agent:
            agent.wait(HANG)
        time.sleep(0.1)
        if pid.exists():  # else it was ended before it wrote that
            wait_for_end(pid)


def test_what_slurm_leaves_of_a_long_command_ends_with_it(tmp_path: Path) -> None:
    """Slurm has killed the command, and not its child: without a parent that it knows."""
    done = shell(f"sleep {3 * HANG} >/dev/null 2>&1 & echo $! >{tmp_path}/pid; kill -KILL $$", None)
    assert done.code == -9
    wait_for_end(tmp_path / "pid")


def test_a_daemon_of_a_long_command_does_not_end_with_the_agent(tmp_path: Path) -> None:
    with run_in_process(["bash", "-c", f"sleep {3 * HANG} & echo $! >{tmp_path}/pid"]) as agent:
        agent.wait(HANG)
    time.sleep(0.5)
    os.kill(int((tmp_path / "pid").read_text()), 9)


def test_a_command_that_cannot_be_executed() -> None:
    assert command_runner.run(["/no/program"], {}, 1).why == "/no/program: not found"
    assert command_runner.run(["/"], {}, 1).why == "cannot execute /: Permission denied"
    long = command_runner.run(["/no/program"], {}, None)
    assert (long.code, "/no/program" in long.why) == (127, True), long.why


@pytest.mark.parametrize("is_logged", [True, False])
def test_what_goes_to_the_log(capfd: pytest.CaptureFixture[str], is_logged: bool) -> None:
    done = shell("echo out; echo first >&2; echo reason >&2; exit 5", is_logged=is_logged)
    assert (done.code, done.out, done.err, done.why) == (5, "out\n", "first\nreason\n", "reason")
    assert capfd.readouterr() == ("", "first\nreason\n" if is_logged else "")
    assert shell("echo out; echo reason >&2", None).out == "out\nreason\n"
    assert capfd.readouterr().err == "out\nreason\n"


def test_slurm_s_commands_get_no_options_from_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SQUEUE_STATES", "PD")
    monkeypatch.setenv("SLURM_TIME_FORMAT", "relative")
    lines = command_runner.run_slurm(["env"], HANG).out.splitlines()
    assert not any(line.startswith("SQUEUE_STATES=") for line in lines)
    assert [line for line in lines if line.startswith("SLURM_TIME_FORMAT=")] == ["SLURM_TIME_FORMAT=%s"]


def test_a_relative_program_that_is_not_executable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not looked for in PATH."""
    monkeypatch.chdir(tmp_path)
    Path("train.sh").touch(0o644)
    env = {"PATH": "/usr/bin:/bin"}
    assert command_runner.run(["./train.sh"], env, 20).why == "cannot execute ./train.sh: Permission denied"
    assert command_runner.run(["./none.sh"], env, 20).why == "./none.sh: not found"
