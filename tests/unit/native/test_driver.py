"""The driver: runs a pickled function in a job, and writes its result."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import cloudpickle
import pytest
from submitit.core.utils import DelayedSubmission

from slurmray.native import bundle
from slurmray.native.driver import REQUEUE_EXIT_CODE, find_mismatch
from slurmray.native.parameters import PYTHON
from tests.processes import bounded

from .functions import add

VERSION = "{}.{}".format(*sys.version_info)


class Driver:
    """A driver in a job with the id 7."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.mark = folder / "slurmray-runs/7-0/mark"
        self.env = {**os.environ, "SLURM_JOB_ID": "7", "SLURM_NTASKS": "5", "SLURMRAY_ATTEMPT": "0"}
        self.env["SLURMRAY_RUN_DIR"] = str(self.mark.parent)
        self.mark.parent.mkdir(parents=True)
        self.mark.touch()

    def submit(self, function: Callable[..., Any], *args: Any, minutes: int = 60) -> None:
        delayed = DelayedSubmission(function, *args)
        delayed.set_timeout(minutes, 3)
        delayed.dump(self.folder / "7_submitted.pkl")

    def start(self, version: str = VERSION) -> subprocess.Popen[str]:
        argv = [sys.executable, "-m", "slurmray.native.driver", str(self.folder)]
        argv += [version, cloudpickle.__version__]
        return subprocess.Popen(argv, env=self.env, stderr=subprocess.PIPE, text=True)

    def run(self, version: str = VERSION) -> tuple[int, str]:
        process = self.start(version)
        output = process.communicate(timeout=60)[1]
        return process.returncode, output

    def interrupt(self, number: signal.Signals) -> tuple[int, str]:
        """Send a signal once the function runs."""
        process = self.start()
        deadline = time.monotonic() + 60  # bounds a hang
        while not Path("started").exists():
            assert time.monotonic() < deadline
            time.sleep(0.05)
        process.send_signal(number)
        output = process.communicate(timeout=60)[1]
        return process.returncode, output

    def outcome(self) -> Any:
        return pickle.loads((self.folder / "7_0_result.pkl").read_bytes())  # noqa: S301 - written by the driver


@pytest.fixture
def driver(folder: Path) -> Driver:
    return Driver(folder)


def test_a_driver_writes_the_result(driver: Driver) -> None:
    driver.submit(lambda: os.environ["SLURM_NTASKS"])
    assert driver.run()[0] == 0
    assert driver.outcome() == ("success", "1")


def test_a_driver_writes_the_traceback(driver: Driver) -> None:
    driver.submit(lambda: 1 // 0)
    assert driver.run()[0] == 1
    kind, text = driver.outcome()
    assert kind == "error"
    assert "ZeroDivisionError" in text


def test_another_python_is_one_line(driver: Driver) -> None:
    driver.submit(add, 1, 2)
    code, output = driver.run("3.7")
    line = (
        f"the function comes from Python 3.7, {sys.executable} in the job is {VERSION}:"
        f" use an image with Python 3.7, or submit from Python {VERSION}"
    )
    assert (code, output) == (2, f"slurmray: {line}\n")
    assert driver.outcome() == ("error", line)


def test_another_cloudpickle_is_one_line() -> None:
    assert find_mismatch(VERSION, cloudpickle.__version__) == ""
    assert find_mismatch(VERSION, "1.0").startswith(
        f"the function comes from cloudpickle 1.0, the job has {cloudpickle.__version__}: remove "
    )


def test_a_driver_that_starts_again_in_the_same_attempt(driver: Driver) -> None:
    """SLURMRAY_ATTEMPT counts this start, too; the run directory is that of the attempt."""
    driver.env["SLURMRAY_ATTEMPT"] = "1"
    driver.submit(add, 1, 2)
    code, output = driver.run()
    assert code == 0, output
    assert driver.outcome() == ("success", 3)


class Count:
    """Creates the file `started`, and waits for the signal to write a checkpoint."""

    def __init__(self, start: int):
        self.start = start

    def __call__(self) -> int:
        Path("started").touch()
        threading.Event().wait(60)
        return self.start

    def checkpoint(self) -> DelayedSubmission:
        return DelayedSubmission(add, self.start, 1)


def test_a_driver_ends_at_scancel(driver: Driver) -> None:
    driver.submit(Count(41))
    assert driver.interrupt(signal.SIGTERM)[0] == 128 + signal.SIGTERM
    assert not (driver.folder / "7_0_result.pkl").exists()


def test_a_checkpoint_is_what_the_next_attempt_runs(driver: Driver) -> None:
    driver.submit(Count(41))
    code, output = driver.interrupt(signal.SIGUSR2)
    assert code == REQUEUE_EXIT_CODE
    assert "requests a requeue" in output
    assert not (driver.folder / "7_0_result.pkl").exists()
    assert driver.run()[0] == 0
    assert driver.outcome() == ("success", 42)


def wait_for_signal() -> None:
    Path("started").touch()
    threading.Event().wait(60)


def test_the_time_limit_includes_the_start_of_ray(driver: Driver) -> None:
    """It is a time limit, not a preemption, although the function has run only for a moment."""
    long_ago = time.time() - 3000
    os.utime(driver.mark, (long_ago, long_ago))
    driver.submit(wait_for_signal, minutes=60)
    code, output = driver.interrupt(signal.SIGUSR2)
    assert code not in (0, REQUEUE_EXIT_CODE)
    assert "timed-out and not checkpointable" in output + str(driver.outcome())


FACTS = {"SLURM_JOB_ID": "7", "SLURM_JOB_NUM_NODES": "2"}


def start_driver(
    folder: Path, python: str, path: list[Path], **env: str
) -> AbstractContextManager[subprocess.Popen[str]]:
    """Start a driver like a job, in which only the bundle has slurmray."""
    run = folder / "slurmray-runs/7-0"
    run.mkdir(parents=True, exist_ok=True)
    (run / "mark").touch()
    argv = [sys.executable, "-m", "slurmray.native.driver", str(folder), python, cloudpickle.__version__]
    facts = {**FACTS, "SLURMRAY_RUN_DIR": str(run)}
    env = {**os.environ, **facts, "PYTHONPATH": os.pathsep.join(map(str, path)), **env}
    return bounded(subprocess.Popen(argv, cwd=folder, env=env, stderr=subprocess.PIPE, text=True))


def test_another_python_is_one_line_with_any_packages(tmp_path: Path) -> None:
    with start_driver(tmp_path, "3.7", [bundle.pack(tmp_path)]) as process:
        output = process.communicate()[1]
    assert process.returncode == 2
    assert output.startswith("slurmray: the function comes from Python 3.7, ")
    outcome, text = pickle.loads((tmp_path / "7_0_result.pkl").read_bytes())  # noqa: S301
    assert (outcome, f"slurmray: {text}\n") == ("error", output)
    # Also if submitit cannot be imported.
    (tmp_path / "submitit").mkdir()
    (tmp_path / "submitit/__init__.py").write_text("raise ImportError('not for this Python')")
    with start_driver(tmp_path, "3.7", [tmp_path, bundle.pack(tmp_path)]) as process:
        output = process.communicate()[1]
    assert output.startswith("slurmray: the function comes from Python 3.7, ")


def test_a_warning_before_the_function_has_begun(tmp_path: Path) -> None:
    # Short sleeps: Python handles a signal that arrives just before a sleep after it.
    code = "import time\nopen('begun', 'w').close()\nwhile True:\n    time.sleep(0.1)\n"
    (tmp_path / "cloudpickle.py").write_text(code)
    with start_driver(tmp_path, PYTHON, [tmp_path, bundle.pack(tmp_path)]) as process:
        while not (tmp_path / "begun").exists():
            assert process.poll() is None
            time.sleep(0.05)
        process.send_signal(signal.SIGUSR2)
        process.communicate()
    assert process.returncode == REQUEUE_EXIT_CODE


def test_an_attempt_after_one_that_was_killed_while_it_wrote(tmp_path: Path) -> None:
    DelayedSubmission(os.getenv, "SUBMITIT_PREEMPT_SIGNAL").dump(tmp_path / "7_submitted.pkl")
    (tmp_path / "7_0_result.pkl.save_tmp").write_bytes(b"half")
    with start_driver(tmp_path, PYTHON, [bundle.pack(tmp_path)], SUBMITIT_PREEMPT_SIGNAL="USR1") as process:
        output = process.communicate()[1]
    assert process.returncode == 0, output
    # The job never sends the signal that the user chose, so the driver replaces it.
    assert pickle.loads((tmp_path / "7_0_result.pkl").read_bytes()) == ("success", "USR2")  # noqa: S301
