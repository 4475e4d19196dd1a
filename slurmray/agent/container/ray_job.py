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
import shlex
import signal
import subprocess
import sys
import time

from .. import background_io, paths, signals
from ..job_errors import JobError
from . import ports, process_tree, variables

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List, Optional

    from .node_context import NodeContext

REFUSED = "ray-job-refused"  # file in the job's folder with the error if Ray rejected the job, as JSON
POLL_INTERVAL = 0.2  # seconds between two looks at the log
INFO_INTERVAL = 1.0  # seconds between two requests for the job's state
DASHBOARD_TIMEOUT = 120.0  # seconds without an answer from the dashboard while no trainer runs
MAX_REFUSAL = 500  # characters
LOG_PIECE = 2**20  # bytes copied at once


def require_api() -> None:
    """Raise a JobError if Ray's job API is not in the image."""
    import importlib.util

    # Both are dependencies of ray[default], but not of ray.
    if not all(importlib.util.find_spec(name) for name in ("aiohttp", "aiohttp_cors")):
        message = "launch is ray-job, but the image has no ray[default]. Install it, or set launch: exec"
        raise JobError("image", message)


def submit(
    context: "NodeContext", argv: "List[str]", env: "Dict[str, str]", out: int, err: int, names: "List[str]"
) -> None:
    """Start this role as the trainer. argv, env: of the trainer. names: of the signals that stop it."""
    request = {
        "id": "slurmray-" + context.attempt_name,
        "argv": argv,
        "env": variables.difference(variables.collect(variables.RAY, context), env),
        "runtime_env": context.settings["trainer"]["runtime_env"],
        "signals": ["SIG" + name for name in names],
        "folder": context.folder,
        "dashboard": context.ports[ports.DASHBOARD],
    }
    program = context.program("ray-job")
    child = context.children.spawn("trainer", program, env, out, err, stdin=subprocess.PIPE)
    process_tree.write_and_close(child.stdin, json.dumps(request).encode())


def require_submitted(folder: str) -> None:
    """Raise a JobError if the trainer could not be submitted. folder: the job's."""
    try:
        with open(os.path.join(folder, REFUSED)) as file:
            refusal = json.load(file)
    except FileNotFoundError:
        return
    raise JobError(refusal["kind"], refusal["message"])


class RayJob:
    """The trainer as a job of Ray. request: what standard input has."""

    def __init__(self, request: "Dict[str, Any]") -> None:
        self.request = request
        self.pid_file = os.path.join(request["folder"], "ray-job.pid")  # the trainer's shell writes it
        self.log = "%s/session_latest/logs/job-driver-%s.log" % (request["folder"], request["id"])
        self.client: "Any" = None  # Ray's JobSubmissionClient, once the job is submitted
        self._caught = 0  # a stop signal from before
        self._position = 0  # in the log
        self._info: "Any" = None  # the job's state, as last received
        self._last_answer = 0.0  # time.monotonic()

    def run(self) -> int:
        """Submit the job, wait for its end, and return its exit code."""
        request = self.request
        signals.catch(self._pass_on)
        for name in request["signals"]:
            signal.signal(getattr(signal, name), self._stop)
        runtime_env = read_runtime_env(request["runtime_env"])
        client = connect(request["dashboard"])
        command = self._write_entrypoint()
        if self._caught:
            return 128 + self._caught
        try:
            require_own_dashboard(request["dashboard"])
            client.submit_job(entrypoint=command, submission_id=request["id"], runtime_env=runtime_env)
        except Exception as error:  # e.g. unknown fields or files that are too large
            raise JobError("config", "Ray rejected the job, see ray.runtime_env: %s" % error) from error
        self.client = client
        if self._caught:
            self._stop(self._caught)
        return self.follow()

    def follow(self) -> int:
        """Copy the log until the job ends; return the exit code."""
        self._last_answer = time.monotonic()
        background_io.start("the state of Ray's job", self._poll_info)
        while True:
            info = self._info  # before the log, which is complete at the end of the job
            if self._copy_log():
                continue
            if info is not None and info.status.is_terminal():
                return self._exit_code(info)
            if time.monotonic() - self._last_answer > DASHBOARD_TIMEOUT and not self._send(os.kill, 0):
                message = "Ray's dashboard has not answered for %.0f s. See dashboard.log of the session"
                raise JobError("ray", message % DASHBOARD_TIMEOUT)
            time.sleep(POLL_INTERVAL)

    def _send(self, send: "Callable[[int, int], None]", number: int) -> bool:
        """Send a signal to the trainer, which leads its process group. Return whether it runs."""
        try:
            with open(self.pid_file) as file:
                send(int(file.read()), number)
        except (OSError, ValueError):
            return False
        return True

    def _pass_on(self, name: str) -> None:
        if self.client:
            self._send(os.kill, getattr(signal, "SIG" + name))

    def _stop(self, number: int, _frame: object = None) -> None:
        """Forward a signal to the trainer. Ray's API would kill it soon and lose the exit code."""
        if self.client is None:
            self._caught = self._caught or number
        elif not self._send(os.killpg, number):
            background_io.start("the end of Ray's job", self._stop_job)

    def _stop_job(self) -> None:
        require_own_dashboard(self.request["dashboard"])
        self.client.stop_job(self.request["id"])

    def _poll_info(self) -> None:
        """Keep `_info` up to date. Runs in a thread, as the dashboard may not answer for minutes."""
        while True:
            try:
                require_own_dashboard(self.request["dashboard"])
                self._info = self.client.get_job_info(self.request["id"])
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

    def _exit_code(self, info: "Any") -> int:
        """The exit code of a job that has ended."""
        if info.status.name == "STOPPED":
            return 128 + signal.SIGTERM
        code: "Optional[int]" = info.driver_exit_code
        if code is not None:
            return code if code >= 0 else 128 - code
        sys.stderr.write("%s\n" % info.message)
        sys.stderr.flush()
        if not os.path.exists(self.pid_file):
            why = (info.message or "").strip().rpartition("\n")[2]
            raise JobError("config", "Ray did not start the trainer, see ray.runtime_env: %s" % why)
        return 1

    def _write_entrypoint(self) -> str:
        """Write a shell script with the trainer's variables; return the entrypoint, which reads it.

        The runtime environment would give the variables to all workers, too.
        """
        script = os.path.join(self.request["folder"], "ray-job.sh")
        exports = variables.export_lines(self.request["env"])
        with open(script, "wb") as file:
            file.write(os.fsencode("echo $$ >%s\n%s" % (shlex.quote(self.pid_file), exports)))
        return ". %s; exec %s" % (shlex.quote(script), " ".join(map(shlex.quote, self.request["argv"])))


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
    """Return a client once the dashboard answers on its port. Ray finds it through RAY_ADDRESS, the GCS."""
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


def main(argv: "List[str]") -> int:
    """Run the trainer as a job of Ray. argv: empty."""
    del argv
    request = json.load(sys.stdin)
    try:
        return RayJob(request).run()
    except JobError as error:
        # One line: errors of Ray may contain a traceback.
        refusal = {"kind": error.kind, "message": " ".join(error.message.split())[:MAX_REFUSAL]}
        paths.replace(os.path.join(request["folder"], REFUSED), json.dumps(refusal).encode())
        return 1
