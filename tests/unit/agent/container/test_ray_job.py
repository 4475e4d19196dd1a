"""The role `ray-job`; Ray's client is a stand-in, the trainer is a real process."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from slurmray.agent.container import ray_job as role
from slurmray.agent.job_errors import JobError
from tests.processes import bounded
from tests.unit.agent.containers import cluster, settings, write_agent
from tests.unit.agent.users import needs_root
from tests.unit.agent.waiting import wait_until

# Names and behaviour are those of ray.job_submission. HOW names the fault to imitate.
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


def write_client(lib: Path) -> None:
    """Write the client into a folder for PYTHONPATH."""
    for package in ("ray", "aiohttp", "aiohttp_cors"):
        (lib / package).mkdir(parents=True, exist_ok=True)
        (lib / package / "__init__.py").touch()
    (lib / "ray/job_submission.py").write_text(CLIENT)


class Run:
    """Runs the role `ray-job` with that client, in a folder."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.dashboard = socket.create_server(("127.0.0.1", 0))
        write_client(folder / "lib")
        write_agent(folder)

    def start(
        self, argv: list[str], how: str = "", runtime_env: object = None, stop: str = "SIGTERM"
    ) -> AbstractContextManager[subprocess.Popen[bytes]]:
        process = subprocess.Popen(
            [sys.executable, "agent", "ray-job"],
            cwd=self.folder,
            env={"PATH": "/usr/bin:/bin", "PYTHONPATH": "lib", "HOW": how},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        order: dict[str, object] = {
            "id": "slurmray-7-0",
            "argv": argv,
            "env": {"NODE_RANK": "0", "ODD": "it's\n$x"},
        }
        order |= {"runtime_env": runtime_env, "signals": [stop], "folder": str(self.folder)}
        order["dashboard"] = self.dashboard.getsockname()[1]
        assert process.stdin
        process.stdin.write(json.dumps(order).encode())
        process.stdin.close()
        return bounded(process)

    def run(self, argv: list[str], how: str = "", runtime_env: object = None) -> tuple[int, str]:
        """Exit code and output."""
        with self.start(argv, how, runtime_env) as process:
            assert process.stdout
            output = process.stdout.read().decode()
        return process.returncode, output

    @property
    def refusal(self) -> dict[str, str]:
        refusal: dict[str, str] = json.loads((self.folder / "ray-job-refused").read_text())
        return refusal


@pytest.fixture
def ray_job(tmp_path: Path) -> Iterator[Run]:
    run = Run(tmp_path)
    with run.dashboard:
        yield run


HOSTILE = ["it's", '"$HOME"', "`id`", "a\nb", "", "*", "é☃", "+x=['a','b']"]


def test_any_arguments_reach_the_trainer(ray_job: Run) -> None:
    program = (
        "import json, os, sys; print(json.dumps([sys.argv[1:], os.environ['ODD'], os.environ['NODE_RANK']]))"
    )
    code, output = ray_job.run([sys.executable, "-c", program, *HOSTILE])
    assert code == 0
    assert json.loads(output) == [HOSTILE, "it's\n$x", "0"]


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
def test_exit_codes(ray_job: Run, command: str, how: str, code: int) -> None:
    assert ray_job.run(["bash", "-c", command], how)[0] == code
    assert not (ray_job.folder / "ray-job-refused").exists()


def test_every_byte_of_the_output_arrives(ray_job: Run) -> None:
    program = "import sys; sys.stdout.write('x' * 3_000_000 + '\\n\\u2603 no end of line')"
    code, output = ray_job.run([sys.executable, "-c", program])
    assert (code, output) == (0, "x" * 3_000_000 + "\n☃ no end of line")


@pytest.mark.parametrize(
    ("stop", "sent", "code"),
    [("SIGTERM", "SIGTERM", 0), ("SIGUSR2", "SIGUSR2", 5), ("SIGTERM", "SIGUSR1", 6)],
)
def test_a_signal_reaches_the_trainer_which_chooses_its_exit_code(
    ray_job: Run, stop: str, sent: str, code: int
) -> None:
    trainer = f"trap 'echo saved; exit {code}' {sent[3:]}; echo started; while :; do sleep 0.1; done"
    with ray_job.start(["bash", "-c", trainer], stop=stop) as process:
        assert process.stdout
        assert process.stdout.readline() == b"started\n"
        process.send_signal(getattr(signal, sent))
        assert b"saved" in process.stdout.read()
    assert process.returncode == code


def test_a_signal_before_the_trainer_has_started_stops_the_job(ray_job: Run) -> None:
    with ray_job.start(["true"], "waits") as process:
        wait_until((ray_job.folder / "session_latest").exists)
        process.send_signal(signal.SIGTERM)
    assert process.returncode == 143


def test_runtime_environment(ray_job: Run) -> None:
    given = {"working_dir": "./", "env_vars": {"A": "1"}}
    ray_job.run(["true"], runtime_env=given)
    assert (ray_job.folder / "submitted").read_text() == repr(("slurmray-7-0", given))


@pytest.mark.parametrize(
    ("text", "expected"),
    [("working_dir: ./\nexcludes: [/.git/]\n", {"working_dir": "./", "excludes": ["/.git/"]}), ("", {})],
)
def test_runtime_environment_in_a_file(ray_job: Run, text: str, expected: dict[str, Any]) -> None:
    (ray_job.folder / "env.yaml").write_text(text)
    ray_job.run(["true"], runtime_env="env.yaml")
    assert (ray_job.folder / "submitted").read_text() == repr(("slurmray-7-0", expected))


@pytest.mark.parametrize(
    ("how", "runtime_env", "expected"),
    [
        ("", "no.yaml", "ray.runtime_env, in {folder} of the container: .* 'no.yaml'"),
        ("", "list.yaml", "ray.runtime_env: list.yaml is not a mapping. Write one"),
        ("", "broken.yaml", "ray.runtime_env, in {folder} of the container: while parsing"),
        ("refuses", {}, r"Ray rejected the job, see ray.runtime_env: Package size \(1GiB\) exceeds"),
        ("never starts", {}, "Ray did not start the trainer, see ray.runtime_env: b: no such package"),
    ],
)
def test_refusals_are_one_line(ray_job: Run, how: str, runtime_env: object, expected: str) -> None:
    (ray_job.folder / "list.yaml").write_text("[a]")
    (ray_job.folder / "broken.yaml").write_text("{a")
    assert ray_job.run(["true"], how, runtime_env)[0] == 1
    assert ray_job.refusal["kind"] == "config"
    assert re.match(expected.format(folder=ray_job.folder), ray_job.refusal["message"]), ray_job.refusal
    assert "\n" not in ray_job.refusal["message"]


@pytest.mark.parametrize(("how", "refusal"), [("", ""), ("refuses", "Ray rejected the job")])
def test_the_container_process_submits_the_job(tmp_path: Path, how: str, refusal: str) -> None:
    check = "test $SLURMRAY_ATTEMPT$NNODES$MINE = 01yes && exit 7"
    trainer = {
        "nnodes": 1,
        "launch": "ray-job",
        "runtime_env": {"pip": ["x"]},
        "command": ["bash", "-c", check],
    }
    with cluster(tmp_path) as made:
        write_client(tmp_path / "lib")
        made.env["HOW"] = how
        (tmp_path / "workdir").mkdir()
        # The client writes the log of a job below the current folder, the agent reads it in the job's folder.
        spec = settings(
            env={"MINE": "yes"}, trainer=trainer, container={"workdir": str(tmp_path / "job-gpu-1")}
        )
        made.start(spec)
        if how:
            message = made.run_until("failed")
            assert message["kind"] == "config"
            assert message["message"].startswith(refusal)
            return
        assert made.run_until("exit")["code"] == 7
        assert "start dashboard" in made.events(), "at once"
        name = f"slurmray-{os.getpid()}-0"
        assert (tmp_path / "job-gpu-1/submitted").read_text() == repr((name, {"pip": ["x"]}))
        shown = next(message["command"] for message in made.head.received if message["type"] == "trainer")
        assert shown.startswith(f"{name}: bash -c test")
        attach = next(message for message in made.head.received if message["type"] == "attach")
        assert attach["command"] == ["ray", "job", "list"]


def test_an_image_without_the_job_api(tmp_path: Path) -> None:
    with cluster(tmp_path) as made:
        made.start(settings(trainer={"launch": "ray-job"}))
        message = made.run_until("failed")
        assert (message["kind"], message["message"][:44]) == (
            "image",
            "launch is ray-job, but the image has no ray[",
        )


def test_an_image_with_an_old_debugger(tmp_path: Path) -> None:
    with cluster(tmp_path) as made:
        metadata = tmp_path / "lib/debugpy-1.7.9.dist-info/METADATA"
        metadata.parent.mkdir()
        metadata.write_text("Name: debugpy\nVersion: 1.7.9\n")
        made.start(settings(ray={"debug": "post-mortem"}))
        finding = made.run_until("finding", check="debugpy")
        assert (finding["found"], finding["wanted"], finding["kind"]) == (
            "1.7.9",
            "1.8.0 or later",
            "preflight",
        )
        made.send("join", address="127.0.0.1:1")  # sent by the controller for another node
        made.send("ready")
        assert made.head.close() == 0
        assert "trainer" not in made.head.kinds()


class Dashboard:
    """Ray's client while the dashboard does not answer."""

    def get_job_info(self, _name: str) -> None:
        raise ConnectionError


def test_a_dashboard_that_hangs_does_not_end_a_job_whose_trainer_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(role, "DASHBOARD_TIMEOUT", 0.2)
    monkeypatch.setattr(role, "POLL_INTERVAL", 0.01)
    began = time.monotonic()
    with subprocess.Popen(["sleep", "0.8"], start_new_session=True) as trainer:
        (tmp_path / "ray-job.pid").write_text(str(trainer.pid))
        reaper = threading.Thread(target=trainer.wait)  # a zombie has a process id
        reaper.start()
        with pytest.raises(JobError, match="Ray's dashboard has not answered"):
            job = role.RayJob({"id": "job", "folder": str(tmp_path), "dashboard": 0})
            job.client = Dashboard()
            job.follow()
        assert time.monotonic() - began >= 0.8, "the trainer still ran"
        reaper.join()


def test_the_time_until_the_dashboard_answers_first_does_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(role, "DASHBOARD_TIMEOUT", 0.5)
    monkeypatch.setattr(role, "require_own_dashboard", lambda _: None)
    job = role.RayJob({"id": "job", "folder": str(tmp_path), "dashboard": 0})
    status = SimpleNamespace(name="FAILED", is_terminal=lambda: True)

    def get_job_info(_name: str) -> SimpleNamespace:
        time.sleep(0.1)
        return SimpleNamespace(status=status, driver_exit_code=3)

    job.client = SimpleNamespace(get_job_info=get_job_info)
    time.sleep(0.6)
    assert job.follow() == 3


LISTENER = """
import os, socket, sys
os.setuid(int(sys.argv[1]))
with socket.create_server(("127.0.0.1", 0)) as it:
    print(it.getsockname()[1], flush=True)
    sys.stdin.read()
"""


@pytest.mark.attack("another user listens on a port of the job", inputs=1)
@needs_root
def test_no_request_is_made_while_another_user_has_the_port() -> None:
    for user in (0, 1002):
        argv = [sys.executable, "-c", LISTENER, str(user)]
        with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as listener:
            assert listener.stdout
            port = int(listener.stdout.readline())
            if user:
                with pytest.raises(ConnectionError, match="another user's process listens"):
                    role.require_own_dashboard(port)
            else:
                role.require_own_dashboard(port)
    with pytest.raises(ConnectionError, match="nobody listens"):
        role.require_own_dashboard(port)
