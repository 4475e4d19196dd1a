"""What ray_job.py makes of Ray's answers: trainer, signals and log are real, Ray's client is a stand-in."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from slurmray.rendering import template_root
from tests.first_process import START, end_in_the_first_process, programs_in
from tests.processes import bounded

# Names and meanings are those of ray.job_submission; "how" is what it is to do wrong.
CLIENT = """
import enum, os, subprocess, types
from pathlib import Path

how = os.environ["HOW"]
tries = []


class JobStatus(enum.Enum):
    RUNNING, STOPPED, SUCCEEDED, FAILED = range(4)

    def is_terminal(self):
        return self != JobStatus.RUNNING


class JobSubmissionClient:
    def __init__(self):
        tries.append(1)
        if how == "late" and len(tries) < 3:
            raise ConnectionError("not yet")

    def submit_job(self, entrypoint, submission_id, runtime_env):
        if how == "refuses":
            raise ValueError("Package size\\n(1GiB) exceeds")
        Path("submitted").write_text(repr((submission_id, runtime_env)))
        logs = Path("session_latest/logs")
        logs.mkdir(parents=True)
        self.process, self.stopped = None, False
        if how not in ("never starts", "waits"):
            with (logs / f"job-driver-{submission_id}.log").open("wb") as log:
                self.process = subprocess.Popen(
                    entrypoint, shell=True, start_new_session=True, stdout=log, stderr=log
                )

    def get_job_info(self, name):
        code = self.process.poll() if self.process else None
        status = JobStatus.RUNNING
        if self.stopped or (how == "stopped" and code is not None):
            status, code = JobStatus.STOPPED, None
        elif how == "never starts":
            status = JobStatus.FAILED
        elif code is not None:
            status = JobStatus.FAILED if code else JobStatus.SUCCEEDED
            code = None if how == "forgets" else code
        return types.SimpleNamespace(status=status, driver_exit_code=code, message="a\\nb: no such package")

    def stop_job(self, name):
        self.stopped = True
"""


def stand_in(lib: Path) -> None:
    """Put it into a folder for PYTHONPATH."""
    for package in ("ray", "aiohttp", "aiohttp_cors"):
        (lib / package).mkdir(parents=True)
        (lib / package / "__init__.py").touch()
    (lib / "ray/job_submission.py").write_text(CLIENT)


class Told:
    """ray_job.py with that client, in a folder."""

    def __init__(self, folder: Path):
        self.folder = folder
        stand_in(folder / "lib")
        for program in ("ray_job.py", "ray_driver.py", "give_up.py", "surroundings.py", "network.py"):
            shutil.copy(template_root() / "node" / program, folder)

    def start(
        self, words: list[str], how: str = "", runtime_env: object = None, stop: str = "SIGTERM"
    ) -> AbstractContextManager[subprocess.Popen[bytes]]:
        process = subprocess.Popen(
            [sys.executable, "ray_job.py"],
            cwd=self.folder,
            env={"PATH": "/usr/bin:/bin", "PYTHONPATH": "lib", "HOW": how},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        told = {"id": "slurmray-7-0", "words": words, "env": {"NODE_RANK": "0", "ODD": "it's\n$x"}}
        assert process.stdin
        process.stdin.write(
            json.dumps({**told, "runtime_env": runtime_env or {}, "signals": [stop]}).encode()
        )
        process.stdin.close()
        return bounded(process)

    def run(self, words: list[str], how: str = "", runtime_env: object = None) -> tuple[int, str]:
        """Exit code and output."""
        with self.start(words, how, runtime_env) as process:
            assert process.stdout
            said = process.stdout.read().decode()
        return process.returncode, said

    @property
    def refusal(self) -> str:
        return (self.folder / "refused").read_text()


@pytest.fixture
def told(tmp_path: Path) -> Told:
    return Told(tmp_path)


HOSTILE = ["it's", '"$HOME"', "`id`", "a\nb", "", "*", "é☃", "+x=['a','b']"]


def test_any_words_reach_the_trainer(told: Told) -> None:
    program = (
        "import json, os, sys; print(json.dumps([sys.argv[1:], os.environ['ODD'], os.environ['NODE_RANK']]))"
    )
    code, said = told.run([sys.executable, "-c", program, *HOSTILE])
    assert code == 0
    assert json.loads(said) == [HOSTILE, "it's\n$x", "0"]


@pytest.mark.parametrize(
    ("command", "how", "code"),
    [
        ("exit 0", "", 0),
        ("exit 3", "late", 3),
        ("kill -KILL $$", "", 137),
        ("exec /no/such/program", "", 127),
        ("exit 3", "stopped", 143),
        ("exit 3", "forgets", 1),
    ],
)
def test_exit_codes(told: Told, command: str, how: str, code: int) -> None:
    assert told.run(["bash", "-c", command], how)[0] == code
    assert not (told.folder / "refused").exists()


def test_every_byte_of_the_output_arrives(told: Told) -> None:
    program = "import sys; sys.stdout.write('x' * 3_000_000 + '\\n\\u2603 no end of line')"
    code, said = told.run([sys.executable, "-c", program])
    assert (code, said) == (0, "x" * 3_000_000 + "\n☃ no end of line")


@pytest.mark.parametrize(("stop", "code"), [("SIGTERM", 0), ("SIGUSR2", 5)])
def test_a_signal_reaches_the_trainer_which_says_how_it_ends(told: Told, stop: str, code: int) -> None:
    trainer = f"trap 'echo saved; exit {code}' {stop[3:]}; echo started; while :; do sleep 0.1; done"
    with told.start(["bash", "-c", trainer], stop=stop) as process:
        assert process.stdout
        assert process.stdout.readline() == b"started\n"
        process.send_signal(getattr(signal, stop))
        assert b"saved" in process.stdout.read()
    assert process.returncode == code


def test_a_signal_before_the_trainer_has_started_stops_the_job(told: Told) -> None:
    with told.start(["true"], "waits") as process:
        while not (told.folder / "session_latest").exists():
            assert process.poll() is None
            time.sleep(0.05)
        process.send_signal(signal.SIGTERM)
    assert process.returncode == 143


def test_runtime_environment(told: Told) -> None:
    given = {"working_dir": "./", "env_vars": {"A": "1"}}
    told.run(["true"], runtime_env=given)
    assert (told.folder / "submitted").read_text() == repr(("slurmray-7-0", given))


@pytest.mark.parametrize(
    ("text", "expected"),
    [("working_dir: ./\nexcludes: [/.git/]\n", {"working_dir": "./", "excludes": ["/.git/"]}), ("", {})],
)
def test_runtime_environment_in_a_file(told: Told, text: str, expected: dict[str, Any]) -> None:
    (told.folder / "env.yaml").write_text(text)
    told.run(["true"], runtime_env="env.yaml")
    assert (told.folder / "submitted").read_text() == repr(("slurmray-7-0", expected))


@pytest.mark.parametrize(
    ("how", "runtime_env", "expected"),
    [
        ("", "no.yaml", "config ray.runtime_env, in {folder} of the container: .* 'no.yaml'"),
        ("", "list.yaml", "config ray.runtime_env: list.yaml holds no mapping"),
        ("", "broken.yaml", "config ray.runtime_env, in {folder} of the container: while parsing"),
        (
            "refuses",
            {},
            r"config Ray does not take the job, see ray.runtime_env: Package size \(1GiB\) exceeds",
        ),
        ("never starts", {}, "config Ray did not start the trainer, see ray.runtime_env: b: no such package"),
    ],
)
def test_refusals_are_one_line(told: Told, how: str, runtime_env: object, expected: str) -> None:
    (told.folder / "list.yaml").write_text("[a]")
    (told.folder / "broken.yaml").write_text("{a")
    assert told.run(["true"], how, runtime_env)[0] == 1
    assert re.match(expected.format(folder=told.folder), told.refusal), told.refusal
    assert "\n" not in told.refusal


@pytest.fixture
def inside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of a container with that client, where somebody reads what the trainer says."""
    stand_in(tmp_path / "lib")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "lib"))
    folder = programs_in(tmp_path)
    readers = [os.open(folder / name, os.O_RDONLY | os.O_NONBLOCK) for name in ("out", "err")]
    yield folder
    for reader in readers:
        os.close(reader)


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("", "exit 7"),
        (
            "refuses",
            "fail config Ray does not take the job, see ray.runtime_env: Package size (1GiB) exceeds",
        ),
    ],
)
def test_the_first_process_has_the_job_submitted(
    inside: Path, monkeypatch: pytest.MonkeyPatch, how: str, said: str
) -> None:
    monkeypatch.setenv("HOW", how)
    check = "test $SLURMRAY_ATTEMPT$NNODES$MINE = 01yes && exit 7"
    job = [
        "env=MINE=yes",
        "launch=ray-job",
        'runtime_env={"pip": ["x"]}',
        "run=bash",
        "run=-c",
        f"run={check}",
    ]
    records = [record.replace("workdir=/", f"workdir={inside}") for record in START]
    assert end_in_the_first_process([*records, *job, "go="], inside) == f"slurmray gpu-1 {said}\n"
    if not how:
        assert (inside / "submitted").read_text() == repr(("slurmray-1-0", {"pip": ["x"]}))


@pytest.fixture
def lib(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where Python looks first."""
    (tmp_path / "lib").mkdir()
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "lib"))
    return tmp_path / "lib"


def test_an_image_without_the_job_api(tmp_path: Path, lib: Path) -> None:
    (lib / "sitecustomize.py").write_text("import sys\nsys.modules['aiohttp_cors'] = None\n")
    job = [*START, "launch=ray-job", "run=true", "go="]
    said = end_in_the_first_process(job, programs_in(tmp_path))
    assert said.startswith("slurmray gpu-1 fail image launch: ray-job needs ray[default]: install it")


def test_an_image_with_an_old_debugger(tmp_path: Path, lib: Path) -> None:
    (lib / "debugpy-1.7.9.dist-info").mkdir()
    (lib / "debugpy-1.7.9.dist-info/METADATA").write_text("Name: debugpy\nVersion: 1.7.9\n")
    job = [*START, "debug=post-mortem", "run=true", "go="]
    remedy = "install it beside Ray, or set ray.debug: none"
    found = f"slurmray gpu-1 finding preflight|debugpy|1.7.9|1.8.0 or later|{remedy}\n"
    assert end_in_the_first_process(job, programs_in(tmp_path)) == found
