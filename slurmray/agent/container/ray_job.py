"""The trainer as a job of Ray (`launch: ray-job`): submits it, copies its output, returns its exit code.

Role `ray-job`. Standard input is JSON: `id` of the job; `argv` and `env` of the trainer, which runs on this
node; `runtime_env`: a mapping, the path of a YAML file, or null; `signals`: names of the signals that stop
it; `folder`: the job's; `dashboard`: port of Ray's dashboard. The trainer's output goes to standard output.

Ray's client sends the cluster's token with each request. So none is made unless this user listens on that
port.

Exit code: the trainer's, 128 + n for signal n; 143 if somebody stopped the job through Ray; 1 if Ray has no
exit code. If the trainer did not start, the file REFUSED in the folder has the kind of error and a message.
"""

import json
import os
import signal
import sys
import time

from .. import background_io, signals
from ..job_errors import JobError
from . import ports, variables
from .trainer import REFUSED

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List, Optional

POLL_INTERVAL = 0.2  # seconds between two looks at the log
INFO_INTERVAL = 1.0  # seconds between two requests for the job's state
DASHBOARD_TIMEOUT = 120.0  # seconds without an answer from the dashboard while no trainer runs
MAX_REFUSAL = 500  # characters
LOG_PIECE = 2**20  # bytes copied at once


class RayJob:
    """A submitted job of Ray: its log, its signals, its exit code.

    client: Ray's JobSubmissionClient. dashboard: port of the dashboard.
    """

    def __init__(self, client: "Any", name: str, folder: str, dashboard: int) -> None:
        self.client = client
        self.name = name
        self.dashboard = dashboard
        self.pid_file = pid_file(folder)
        self.log = os.path.join(folder, "session_latest", "logs", "job-driver-%s.log" % name)
        self._position = 0  # in the log
        self._info: "Any" = None  # the job's state, as last received
        self._last_answer = time.monotonic()
        background_io.start("the state of Ray's job", self._poll_info)

    def follow(self) -> int:
        """Copy the log until the job ends; return the exit code."""
        while True:
            code = self._exit_code()  # before the log, which is complete then
            if not self._copy_log():
                if code is not None:
                    return code
                time.sleep(POLL_INTERVAL)
            if time.monotonic() - self._last_answer > DASHBOARD_TIMEOUT and self._trainer() is None:
                message = "Ray's dashboard has not answered for %.0f s. See dashboard.log of the session"
                raise JobError("ray", message % DASHBOARD_TIMEOUT)

    def send_signal(self, number: int) -> None:
        """Forward a signal to the trainer. Ray's API would kill it soon and lose the exit code."""
        trainer = self._trainer()
        if trainer:
            try:
                os.killpg(trainer, number)
            except ProcessLookupError:
                pass
        else:
            background_io.start("the end of Ray's job", self._stop)

    def _stop(self) -> None:
        require_own_dashboard(self.dashboard)
        self.client.stop_job(self.name)

    def pass_on(self, name: str) -> None:
        """Send a signal to the trainer's process, if it runs."""
        trainer = self._trainer()
        if trainer:
            os.kill(trainer, getattr(signal, "SIG" + name))

    def _poll_info(self) -> None:
        """Keep `_info` up to date. Runs in a thread, as the dashboard may not answer for minutes."""
        while True:
            try:
                require_own_dashboard(self.dashboard)
                self._info = self.client.get_job_info(self.name)
                self._last_answer = time.monotonic()
            except Exception:
                pass
            time.sleep(INFO_INTERVAL)

    def _copy_log(self) -> bool:
        """Copy new output; return False if there was none.

        Reads the file, since Ray's API cuts long lines and depends on the dashboard.
        """
        try:
            with open(self.log, "rb") as file:
                file.seek(self._position)
                data = file.read(LOG_PIECE)
        except FileNotFoundError:  # no output so far
            return False
        self._position += len(data)
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
        return bool(data)

    def _trainer(self) -> "Optional[int]":
        """The pid of the trainer, which leads its process group; None while it does not run."""
        try:
            with open(self.pid_file) as file:
                pid = int(file.read())
            os.kill(pid, 0)
        except (OSError, ValueError):
            return None
        return pid

    def _exit_code(self) -> "Optional[int]":
        """The exit code; None while the job runs."""
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
    """Write the trainer's shell script and return the entrypoint of the job.

    env: for the trainer alone, unlike the runtime environment, which all its workers have.
    """
    import shlex

    script = os.path.join(folder, "ray-job.sh")
    content = "echo $$ >%s\n%s" % (shlex.quote(pid_file(folder)), variables.export_lines(env))
    with open(script, "wb") as file:
        file.write(os.fsencode(content))
    return ". %s; exec %s" % (shlex.quote(script), " ".join(map(shlex.quote, argv)))


def read_runtime_env(given: "Any") -> "Dict[str, Any]":
    """The runtime environment as a mapping. given: a mapping, the path of a YAML file, or None."""
    if not isinstance(given, str):
        return given or {}
    import yaml

    try:
        with open(given, encoding="utf-8") as file:
            runtime_env = yaml.safe_load(file) or {}
    except (OSError, ValueError, yaml.YAMLError) as error:
        message = "ray.runtime_env, in %s of the container: %s" % (os.getcwd(), error)
        raise JobError("config", message) from error
    if not isinstance(runtime_env, dict):
        raise JobError("config", "ray.runtime_env: %s is not a mapping. Write one, e.g. `pip: [x]`" % given)
    return runtime_env


def require_own_dashboard(port: int) -> None:
    """Raise a ConnectionError unless this user listens on the dashboard's port."""
    users = ports.listener_users(port)
    if os.geteuid() not in users:
        why = "another user's process listens on its port %d" if users else "nobody listens on its port %d"
        raise ConnectionError(why % port)


def connect(dashboard: int) -> "Any":
    """Return a client once the dashboard answers. Ray finds it through RAY_ADDRESS, the GCS.

    dashboard: its port.
    """
    from ray.job_submission import JobSubmissionClient

    deadline = time.monotonic() + DASHBOARD_TIMEOUT
    while True:
        try:
            require_own_dashboard(dashboard)
            return JobSubmissionClient()
        except Exception as error:  # its type depends on the version of Ray
            if time.monotonic() > deadline:
                message = "Ray's dashboard does not answer: %s. See dashboard.log of the session" % error
                raise JobError("bring_up", message) from error
        time.sleep(POLL_INTERVAL)


def submit(request: "Dict[str, Any]") -> int:
    """Submit the job, wait for its end, and return its exit code."""
    caught: "List[int]" = []
    jobs: "List[RayJob]" = []

    def pass_on(name: str) -> None:
        for job in jobs:
            job.pass_on(name)

    signals.catch(pass_on)
    stop_signals = [getattr(signal, name) for name in request["signals"]]
    for stop_signal in stop_signals:
        signal.signal(stop_signal, lambda number, _: caught.append(number))
    runtime_env = read_runtime_env(request["runtime_env"])
    client = connect(request["dashboard"])
    command = write_entrypoint(request["folder"], request["argv"], request["env"])
    if caught:
        return 128 + caught[0]
    try:
        require_own_dashboard(request["dashboard"])
        client.submit_job(entrypoint=command, submission_id=request["id"], runtime_env=runtime_env)
    except Exception as error:  # e.g. unknown fields or files that are too large
        message = "Ray rejected the job, see ray.runtime_env: %s" % error
        raise JobError("config", message) from error
    job = RayJob(client, request["id"], request["folder"], request["dashboard"])
    jobs.append(job)
    for stop_signal in stop_signals:
        signal.signal(stop_signal, lambda number, _: job.send_signal(number))
    if caught:
        job.send_signal(caught[0])
    return job.follow()


def main(argv: "List[str]") -> int:
    """Run the trainer as a job of Ray. argv: empty."""
    del argv
    request = json.load(sys.stdin)
    try:
        return submit(request)
    except JobError as error:
        # One line: errors of Ray may contain a traceback.
        message = " ".join(error.message.split())[:MAX_REFUSAL]
        path = os.path.join(request["folder"], REFUSED)
        with open(path + ".new", "w") as file:
            json.dump({"kind": error.kind, "message": message}, file)
        os.rename(path + ".new", path)
        return 1
