"""The trainer: the job spec's command, which runs on the head node once the cluster is ready."""

import json
import os
import signal
import subprocess
import time

from .. import paths
from ..job_errors import JobError
from . import ports, process_tree, variables
from .part import Part

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, List

    from .node_context import NodeContext

MAX_SHOWN = 200  # characters of the command in the log
REFUSED = "ray-job-refused"  # file in the job's folder with the error if Ray rejected the job, as JSON


class Trainer(Part):
    """The trainer's process. It starts when the batch script reads its output."""

    roles = ("trainer",)

    def __init__(self, context: "NodeContext") -> None:
        self.context = context
        self._streams: "Dict[str, int]" = {}  # out, err -> descriptor of the FIFO to the batch script

    @property
    def is_ray_job(self) -> bool:
        """Whether the trainer is submitted to Ray's job API."""
        return self.context.settings["trainer"]["launch"] == "ray-job"

    def require_job_api(self) -> None:
        """Raise a JobError if Ray's job API is needed but not in the image."""
        if not self.is_ray_job:
            return
        import importlib.util

        # Both are dependencies of ray[default], but not of ray.
        if not all(importlib.util.find_spec(name) for name in ("aiohttp", "aiohttp_cors")):
            raise JobError(
                "image",
                "launch is ray-job, but the image has no ray[default]. Install it, or set launch: exec",
            )

    @property
    def job_name(self) -> str:
        """Submission id of the trainer in Ray."""
        return "slurmray-" + self.context.attempt_name

    def shown_command(self) -> str:
        """The shortened command for the job's log."""
        argv = [self.job_name + ":"] if self.is_ray_job else []
        argv += self._command() or ["the built-in check"]
        return "".join(letter if letter.isprintable() else " " for letter in " ".join(argv)[:MAX_SHOWN])

    def _command(self) -> "List[str]":
        """The command of the job spec, with the values of the sweep; [] for the built-in check."""
        settings = self.context.settings
        command = settings["trainer"]["command"]
        if not settings["sweep"]:
            return command
        from .. import combinations

        return combinations.fill_in(
            command, {name: self.context.job["env"][name] for name in settings["sweep"]}
        )

    def start(self) -> bool:
        """Start the trainer if its output is being read. Return False otherwise."""
        if not self._open_output():
            return False
        context, settings = self.context, self.context.settings["trainer"]
        argv = self._command() or [*context.program("check"), str(len(context.ray_nodes))]
        if context.job["attempt"] or context.job["restart"]:
            argv = argv + settings["resume"]
        env = variables.collect(variables.TRAINER, context)
        out, err = self._streams["out"], self._streams["err"]
        context.trainer_started = time.monotonic()
        try:
            if self.is_ray_job:
                self._submit(argv, env, out, err)
            else:
                context.children.spawn("trainer", argv, env, out, err)
        except OSError as error:
            # The message and exit code of a shell.
            is_missing = paths.is_missing(error, argv[0], env.get("PATH", ""))
            why = "No such file or directory" if is_missing else error.strerror
            os.write(err, ("slurmray: %s: %s\n" % (argv[0], why)).encode("utf-8", "replace"))
            context.send({"type": "exit", "code": 127 if is_missing else 126})
        os.close(out)
        os.close(err)
        return True

    def child_ended(self, role: str, code: int) -> None:
        """Send the trainer's exit code. JobError where it could not be submitted to Ray."""
        del role
        try:
            with open(os.path.join(self.context.folder, REFUSED)) as file:
                refusal = json.load(file)
        except FileNotFoundError:
            self.context.send({"type": "exit", "code": code})
            return
        raise JobError(refusal["kind"], refusal["message"])

    def signal_name(self, is_warning: bool) -> str:
        """The signal before the time limit or a restart (is_warning), or the one after scancel."""
        stop = self.context.settings["stop"]
        return stop["signal"] if is_warning else stop["cancel_signal"] or stop["signal"]

    def send_signal(self, name: str) -> bool:
        """Send a signal to the trainer's process group. Return False if no trainer runs."""
        pid = self.context.children.find_pid("trainer")
        if pid is not None:
            os.killpg(pid, getattr(signal, "SIG" + name))
        return pid is not None

    def pass_on(self, name: str) -> None:
        """Send a signal to the trainer's process, if one runs.

        Not to its group: as with a step of Slurm (proctrack/cgroup), a signal that means something to the
        trainer must not end its children, e.g. processes that load data.
        """
        pid = self.context.children.find_pid("trainer")
        if pid is not None:
            os.kill(pid, getattr(signal, "SIG" + name))

    def _submit(self, argv: "List[str]", env: "Dict[str, str]", out: int, err: int) -> None:
        """Start the role `ray-job`, which submits the trainer to Ray and represents it here."""
        context = self.context
        request = {
            "id": self.job_name,
            "argv": argv,
            "env": variables.difference(variables.collect(variables.RAY, context), env),
            "runtime_env": context.settings["trainer"]["runtime_env"],
            "signals": ["SIG" + self.signal_name(is_warning) for is_warning in (True, False)],
            "folder": context.folder,
            "dashboard": context.ports[ports.DASHBOARD],
        }
        program = context.program("ray-job")
        child = context.children.spawn("trainer", program, env, out, err, stdin=subprocess.PIPE)
        process_tree.write_and_close(child.stdin, json.dumps(request).encode())

    def _open_output(self) -> bool:
        """Open the FIFOs; return False if one has no reader yet. Open ones stay open for their readers."""
        for name in ("out", "err"):
            if name not in self._streams:
                path = os.path.join(self.context.folder, name)
                try:
                    stream = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
                except OSError:  # ENXIO: no reader yet
                    return False
                os.set_blocking(stream, True)
                self._streams[name] = stream
        return True
