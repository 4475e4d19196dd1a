"""The trainer as a job of Ray (`launch: ray-job`): submits it, follows it to its end, has its exit code.

Role `ray-job`. Standard input is JSON: `id` of the job; `argv` of the trainer, which runs on this node;
`env`, for it alone; `runtime_env`, a mapping, the path of a YAML file, or null; `signals`, names of those to
forward; `folder`, of the job. The trainer's output goes to standard output. Exit code: that of the trainer,
128 + n for signal n; 143 where somebody stopped the job through Ray; 1 where Ray knows none. Where there was
no trainer, the file REFUSED in the folder has a kind of error and a message.
"""

import json
import os
import signal
import sys
import threading
import time

from ..errors import JobError
from . import environment
from .trainer import REFUSED

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List, Optional

POLL_INTERVAL = 0.2  # seconds
ASK_INTERVAL = 1.0  # seconds between two questions to Ray
DASHBOARD_TIMEOUT = 120.0  # seconds without an answer of the dashboard, and without a trainer
MAX_REFUSAL = 500  # characters
LOG_PIECE = 2**20  # bytes that are copied at one time


class RayJob:
    """A submitted job of Ray: its log, its signals, its exit code. client: Ray's JobSubmissionClient."""

    def __init__(self, client: "Any", name: str, folder: str) -> None:
        self.client = client
        self.name = name
        self.pid_file = pid_file(folder)
        self.log = os.path.join(folder, "session_latest", "logs", "job-driver-%s.log" % name)
        self._position = 0  # in the log
        self._info: "Any" = None  # Ray's last answer
        self._answered = time.monotonic()
        threading.Thread(target=self._ask, daemon=True).start()

    def follow(self) -> int:
        """Copy the log until the job ends; returns the exit code."""
        while True:
            code = self._exit_code()  # first, as nothing is written after it
            if not self._copy_log():
                if code is not None:
                    return code
                time.sleep(POLL_INTERVAL)
            if time.monotonic() - self._answered > DASHBOARD_TIMEOUT and self._trainer() is None:
                text = "Ray's dashboard has not answered for %.0f s. See dashboard.log of the session"
                raise JobError("ray", text % DASHBOARD_TIMEOUT)

    def send_signal(self, number: int) -> None:
        """Forward a signal. Ray would allow for two signals only, kill soon, and forget the exit code."""
        trainer = self._trainer()
        if trainer:
            try:
                os.killpg(trainer, number)
            except ProcessLookupError:
                pass
        else:
            threading.Thread(target=self.client.stop_job, args=(self.name,), daemon=True).start()

    def _ask(self) -> None:
        """Ask Ray again and again, in a thread of its own: the dashboard may be busy for minutes."""
        while True:
            try:
                self._info = self.client.get_job_info(self.name)
                self._answered = time.monotonic()
            except Exception:
                pass
            time.sleep(ASK_INTERVAL)

    def _copy_log(self) -> bool:
        """Copy a piece of what is new; False where nothing was.

        From the file, since the API for it cuts long lines, and ends with the dashboard.
        """
        try:
            with open(self.log, "rb") as file:
                file.seek(self._position)
                data = file.read(LOG_PIECE)
        except FileNotFoundError:  # nothing has been written
            return False
        self._position += len(data)
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
        return bool(data)

    def _trainer(self) -> "Optional[int]":
        """The pid of the trainer, which leads its group; None where it does not run."""
        try:
            with open(self.pid_file) as file:
                pid = int(file.read())
            os.kill(pid, 0)
        except (OSError, ValueError):
            return None
        return pid

    def _exit_code(self) -> "Optional[int]":
        """The exit code for the job; None while it runs."""
        info = self._info
        if info is None or not info.status.is_terminal():
            return None
        from ray.job_submission import JobStatus

        if info.status == JobStatus.STOPPED:
            return 128 + signal.SIGTERM
        code: "Optional[int]" = info.driver_exit_code
        if code is None:
            sys.stderr.write("%s\n" % info.message)
            sys.stderr.flush()
            if not os.path.exists(self.pid_file):
                why = (info.message or "").strip().rpartition("\n")[2]
                raise JobError("config", "Ray did not start the trainer, see ray.runtime_env: %s" % why)
            return 1
        return code if code >= 0 else 128 - code


def pid_file(folder: str) -> str:
    """Where the trainer's shell writes its pid."""
    return os.path.join(folder, "ray-job.pid")


def write_entrypoint(folder: str, argv: "List[str]", env: "Dict[str, str]") -> str:
    """The shell command of the job. env: not in the job's runtime environment, which all its workers have."""
    import shlex

    script = os.path.join(folder, "ray-job.sh")  # what the shell does that becomes the trainer
    text = "echo $$ >%s\n%s" % (shlex.quote(pid_file(folder)), environment.export_lines(env))
    with open(script, "wb") as file:
        file.write(os.fsencode(text))
    return ". %s; exec %s" % (shlex.quote(script), " ".join(map(shlex.quote, argv)))


def read_runtime_env(given: "Any") -> "Dict[str, Any]":
    """The runtime environment as a mapping. given: that, the path of a YAML file, or None."""
    if not isinstance(given, str):
        return given or {}
    import yaml

    try:
        with open(given, encoding="utf-8") as file:
            found = yaml.safe_load(file) or {}
    except (OSError, ValueError, yaml.YAMLError) as error:
        text = "ray.runtime_env, in %s of the container: %s" % (os.getcwd(), error)
        raise JobError("config", text) from error
    if not isinstance(found, dict):
        raise JobError("config", "ray.runtime_env: %s is no mapping. Write one, e.g. `pip: [x]`" % given)
    return found


def connect() -> "Any":
    """A client, once the dashboard answers; RAY_ADDRESS leads to the GCS, which knows where it is."""
    from ray.job_submission import JobSubmissionClient

    deadline = time.monotonic() + DASHBOARD_TIMEOUT
    while True:
        try:
            return JobSubmissionClient()
        except Exception as error:  # what is raised differs from Ray to Ray
            if time.monotonic() > deadline:
                text = "Ray's dashboard does not answer: %s. See dashboard.log of the session" % error
                raise JobError("bring_up", text) from error
        time.sleep(POLL_INTERVAL)


def submit(order: "Dict[str, Any]") -> int:
    """Submit the job and follow it to its end; returns its exit code."""
    caught: "List[int]" = []
    signals = [getattr(signal, name) for name in order["signals"]]
    for each in signals:
        signal.signal(each, lambda number, _: caught.append(number))
    runtime_env = read_runtime_env(order["runtime_env"])
    client = connect()
    command = write_entrypoint(order["folder"], order["argv"], order["env"])
    if caught:
        return 128 + caught[0]
    try:
        client.submit_job(entrypoint=command, submission_id=order["id"], runtime_env=runtime_env)
    except Exception as error:  # of many kinds: files that are too large, fields that are unknown
        text = "Ray does not take the job, see ray.runtime_env: %s" % error
        raise JobError("config", text) from error
    job = RayJob(client, order["id"], order["folder"])
    for each in signals:
        signal.signal(each, lambda number, _: job.send_signal(number))
    if caught:
        job.send_signal(caught[0])
    return job.follow()


def main(argv: "List[str]") -> int:
    """Run the trainer as a job of Ray. argv: empty."""
    del argv
    order = json.load(sys.stdin)
    try:
        return submit(order)
    except JobError as error:
        # One line; an error of Ray's may hold a whole traceback.
        message = " ".join(error.message.split())[:MAX_REFUSAL]
        path = os.path.join(order["folder"], REFUSED)
        with open(path + ".new", "w") as file:
            json.dump({"kind": error.kind, "message": message}, file)
        os.rename(path + ".new", path)
        return 1
