"""The head node from the start of Ray to the start of the trainer."""

import os

from ..job_errors import Finished
from . import ports, preflight
from .part import Part
from .ray import probe

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, Optional

    from ..wire import messages
    from ..wire.settings import Settings
    from .node_context import NodeContext
    from .ray.start import RayProcess
    from .trainer import Trainer

LOOPBACK = "127.0.0.1"  # Ray's default for --dashboard-host


class Head(Part):
    """Waits for GCS, readiness probe, dashboard and stages, and then starts the trainer.

    are_all_ready: returns whether all parts allow that.
    """

    def __init__(
        self,
        context: "NodeContext",
        ray: "RayProcess",
        trainer: "Trainer",
        are_all_ready: "Callable[[], bool]",
    ) -> None:
        self.context = context
        self.ray = ray
        self.trainer = trainer
        self._are_all_ready = are_all_ready
        self.check: "Optional[Callable[[], None]]" = None  # tick() calls it; None: it waits for nothing
        self._is_trainer_announced = False
        self._is_dashboard_announced = False

    def start(self, address: str) -> None:
        """Start Ray. Wait for the GCS."""
        self.ray.start(address)
        self.check = self._check_gcs

    def tick(self) -> None:
        """Run the pending check. Called in each turn of the loop."""
        if self.check:
            self.check()
        if not self._is_dashboard_announced and self.context.is_head and self.ray.watch.has_dashboard:
            self._is_dashboard_announced = True
            host, port = dashboard_host(self.context.settings), self.context.ports[ports.DASHBOARD]
            self.context.send({"type": "dashboard", "address": host, "port": port})

    def start_trainer_if_ready(self) -> None:
        """Announce the trainer once all is ready for it. It starts when its output is read."""
        context = self.context
        if self._is_trainer_announced or not (context.is_head and context.is_ready and self._are_all_ready()):
            return
        if any(check.is_alive() for check in context.connection_checks):
            # A spare node can only take a worker's place before the trainer starts.
            self.check = self.start_trainer_if_ready
            return
        self._is_trainer_announced = True
        context.send({"type": "trainer", "command": self.trainer.shown_command()})
        self.check = self._check_reader

    def _check_gcs(self) -> None:
        if not self.ray.does_gcs_answer():
            return
        context, ray = self.context, self.ray
        port = context.ports[ports.DASHBOARD]
        context.phase("ray", "head at %s, dashboard on port %d" % (context.gcs, port))
        context.send({"type": "versions", "text": preflight.versions(ray.version_text)})
        self.check = self._check_probe
        ray.confirm_gcs()

    def _check_probe(self) -> None:
        try:
            with open(os.path.join(self.context.folder, probe.RESULT)) as file:
                result = file.read()
        except FileNotFoundError:
            return
        if result == probe.FAILED:
            raise Finished
        # A trainer that knows the port may use the dashboard at once; others get its address from Ray.
        is_fixed = self.context.settings["ray"]["dashboard_port"] != "auto"
        if not is_fixed or self.ray.watch.is_dashboard_started():
            self._cluster_ready()
        else:
            self.context.phase("ray", "waiting for the dashboard, because ray.dashboard_port is set")
            self.check = self._check_dashboard

    def _check_dashboard(self) -> None:
        if self.ray.watch.is_dashboard_started():
            self._cluster_ready()

    def _check_reader(self) -> None:
        if self.trainer.start():
            self.check = None

    def _cluster_ready(self) -> None:
        self.check = None
        self.ray.watch.is_port_taken()  # so that the log says it before a trainer uses the dashboard
        ready: "messages.ClusterReady" = {"type": "ready"}
        if self.context.settings["checks"]["burn_in"]:
            ready["burn_in_port"] = self.context.ports[ports.BURN_IN]
        self.context.send(ready)

    def send_attach(self) -> None:
        """Send how to attach to the job from outside, and an example of a command."""
        context = self.context
        command = ["ray", "job", "list"] if self.trainer.is_ray_job else ["ray", "status"]
        context.send(
            {
                "type": "attach",
                "command": command,
                "runtime": context.runtime,
                "folder": context.folder,
                "unset": context.unset,
            }
        )


def dashboard_host(settings: "Settings") -> str:
    """The address on which the dashboard listens: --dashboard-host in the job spec, or the loopback."""
    options = settings["ray"]["args"] + settings["ray"]["head_args"]
    given = [option.partition("=")[2] for option in options if option.startswith("--dashboard-host=")]
    return given[-1] if given else LOOPBACK
