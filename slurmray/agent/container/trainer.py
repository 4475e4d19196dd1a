"""The trainer: the job spec's command, which runs on the head node once the cluster is ready."""

import os
import time

from .. import parts, paths
from . import variables
from .part import Part

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, List

    from .node_context import NodeContext

MAX_SHOWN = 200  # characters of the command in the log


class Trainer(Part):
    """The trainer's process. It starts when the batch script reads its output."""

    roles = ("trainer",)

    def __init__(self, context: "NodeContext") -> None:
        self.context = context
        self._streams: "Dict[str, int]" = {}  # out, err -> descriptor of the FIFO to the batch script

    @property
    def is_ray_job(self) -> bool:
        """Whether the trainer is submitted to Ray's job API."""
        return parts.is_needed("ray_job", self.context.settings)

    def shown_command(self) -> str:
        """The shortened command for the job's log."""
        argv = ["slurmray-%s:" % self.context.attempt_name] if self.is_ray_job else []
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
                from . import ray_job

                names = [self.signal_name(is_warning) for is_warning in (True, False)]
                ray_job.submit(context, argv, env, out, err, names)
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
        if self.is_ray_job:
            from . import ray_job

            ray_job.require_submitted(self.context.folder)
        self.context.send({"type": "exit", "code": code})

    def signal_name(self, is_warning: bool) -> str:
        """The signal before the time limit or a restart (is_warning), or the one after scancel."""
        stop = self.context.settings["stop"]
        return stop["signal"] if is_warning else stop["cancel_signal"] or stop["signal"]

    def send_signal(self, name: str) -> bool:
        """Send a signal to the trainer's process group. Return False if no trainer runs."""
        return self.context.children.send_signal("trainer", name)

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
