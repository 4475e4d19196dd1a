"""What the head node alone does: from the GCS that answers to the trainer that starts."""

import os
import subprocess

from ..errors import JobError
from . import preflight, process_tree
from .ray import ports, probe, shell

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import IO, Callable, Optional

    from .context import Context
    from .ray.start import RayProcess
    from .trainer import Trainer

LOOPBACK = "127.0.0.1"  # Ray's default for --dashboard-host


class Finished(Exception):
    """The container process has nothing more to do; what it had to report is sent."""


class Head:
    """The head node's way to the trainer. are_stages_done: whether the trainer may start."""

    def __init__(
        self,
        context: "Context",
        ray: "RayProcess",
        trainer: "Trainer",
        are_stages_done: "Callable[[], bool]",
    ) -> None:
        self.context = context
        self.ray = ray
        self.trainer = trainer
        self.are_stages_done = are_stages_done
        self.is_waiting = False  # whether tick() has something to look for
        self._check: "Optional[Callable[[], None]]" = None  # what tick() calls
        self._probe_input: "Optional[IO[bytes]]" = None
        self._is_trainer_announced = False

    def preload_probe(self) -> None:
        """Start the readiness probe, which imports Ray; its messages go straight to the controller."""
        context = self.context
        ready = str(context.settings["timeouts"]["ready"])
        argv = [*context.program("probe"), context.name, str(context.settings["ray"]["gpus"]), ready]
        argv += context.job["nodes"]
        child = context.children.spawn("probe", argv, self.ray.env, 1, stdin=subprocess.PIPE)
        self._probe_input = child.stdin

    def wait_for_gcs(self) -> None:
        """Ray is being started: look for its GCS from now on."""
        self._wait(self._check_gcs)

    def tick(self) -> None:
        """Called in each turn of the loop."""
        if self._check:
            self._check()

    def probe_ended(self, code: int) -> None:
        """The readiness probe has ended with that code."""
        if code == probe.NOT_READY:
            raise Finished  # it has sent what is missing
        if code:
            # Before the GCS answers, it can only have failed to import Ray.
            kind = "probe" if self.ray.is_known_to_others() else "ray"
            raise JobError(
                kind, "the readiness probe exited with %d. The node's log has its last lines" % code
            )
        # Who finds the dashboard through Ray waits for it there; who knows its number may not.
        is_fixed = self.context.settings["ray"]["dashboard_port"] != "auto"
        if not is_fixed or self.ray.watch.is_dashboard_started():
            self._cluster_ready()
        else:
            self.context.phase("ray", "waiting for its dashboard, as ray.dashboard_port is set")
            self._wait(self._check_dashboard)

    def start_trainer_if_ready(self) -> None:
        """Announce the trainer when everything it waits for is there; it starts when its output is read."""
        context = self.context
        if self._is_trainer_announced or not (
            context.is_head and context.is_ready and self.are_stages_done()
        ):
            return
        self._is_trainer_announced = True
        context.send("trainer", command=self.trainer.shown_command())
        self._wait(self._check_reader)

    def _wait(self, check: "Optional[Callable[[], None]]") -> None:
        self._check = check
        self.is_waiting = check is not None

    def _check_gcs(self) -> None:
        if not self.ray.does_gcs_answer():
            return
        context, ray = self.context, self.ray
        port = ray.ports[ports.DASHBOARD]
        context.phase("ray", "head at %s, dashboard at port %d of it" % (ray.gcs_address, port))
        context.send("dashboard", address=self._dashboard_host(), port=port)
        context.send("versions", text=preflight.versions(ray.version_text))
        self._wait(None)
        process_tree.write_and_close(self._probe_input, ray.gcs_address.encode())

    def _check_dashboard(self) -> None:
        if self.ray.watch.is_dashboard_started():
            self._cluster_ready()

    def _check_reader(self) -> None:
        if self.trainer.start():
            self._wait(None)

    def _cluster_ready(self) -> None:
        self._wait(None)
        self._report_attach()
        self.context.send("ready")

    def _report_attach(self) -> None:
        """Tell how to ask Ray from outside."""
        context = self.context
        path = os.path.join(context.folder, "ray")
        shell.write_ray_command(path, dict(self.ray.env, RAY_ADDRESS=self.ray.gcs_address))
        job = context.job["name_for_commands"]
        command = shell.attach_command(job, context.name, context.exec_prefix, path)
        context.send("attach", command=command + (" job list" if self.trainer.is_ray_job else " status"))

    def _dashboard_host(self) -> str:
        """Where the dashboard listens on this node."""
        options = self.context.settings["ray"]["args"] + self.context.settings["ray"]["head_args"]
        given = [each.partition("=")[2] for each in options if each.startswith("--dashboard-host=")]
        return given[-1] if given else LOOPBACK
