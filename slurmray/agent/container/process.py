"""The first process in the container of each node: starts Ray, and on the head node probe and trainer.

Standard input is the tether: messages from the node agent, and when it ends, whatever the cause, everything
in this container ends. Standard output is for messages to the controller. Standard error is the node's log.
On a node without a container, guard.py is its parent.
"""

import os
import select
import signal
import sys
import time

from .. import protocol
from ..errors import JobError, Unfit
from . import environment, preflight, process_tree, reachability
from .context import Context
from .head import Finished, Head
from .ray import network
from .ray.start import RayProcess
from .trainer import Trainer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import List, Optional

    from ..protocol import Message
    from .stages import Stages

READ_SIZE = 65536
SHORT_PAUSE = (
    0.05  # seconds between two turns of the loop where something is waited for that no signal announces
)
LONG_PAUSE = 1.0  # seconds, where only Ray's start or a stage is watched
# Seconds that a worker outlives the head's grace period: Ray must not vanish under a checkpoint.
WORKER_MARGIN = 2.0


class ContainerProcess:
    """One node of the job, from inside: messages, children that end, and the clock make things happen."""

    def __init__(self, folder: str, node: str) -> None:
        self.context = Context(folder, node, self.child_ended)
        self.ray = RayProcess(self.context)
        self.trainer = Trainer(self.context, self.ray)
        self.head = Head(self.context, self.ray, self.trainer, self.are_stages_done)
        self.stages: "Optional[Stages]" = None  # only jobs with prepare or services have them
        self.is_signalled = False  # whether this process has got SIGTERM or SIGINT

    # -- from start to trainer ---------------------------------------------------------------------------

    def on_settings(self, message: "Message") -> None:
        """The job spec, as far as it matters in the job."""
        self.context.settings = message["settings"]

    def on_job(self, message: "Message") -> None:
        """This attempt of the job."""
        self.context.job = message["job"]

    def on_node(self, message: "Message") -> None:
        """This node."""
        context = self.context
        context.rank = message["rank"]
        context.user = message["user"]
        context.memory = message["memory"]
        context.addresses = message["addresses"]
        context.exec_prefix = message["exec_prefix"]
        context.workdir = message.get("workdir") or context.settings["container"]["workdir"] or os.getcwd()

    def on_start_ray(self, message: "Message") -> None:
        """All nodes have passed their checks: the head starts Ray, workers wait for it."""
        context = self.context
        context.peers = message["peers"]
        self.ray.version_text, self.ray.version = preflight.require_ray(context)
        preflight.enter_workdir(context.workdir)
        self.trainer.require_job_api()
        preflight.check_node(context, self.ray.version)
        if context.settings["prepare"] or context.settings["services"]:
            from .stages import Stages

            self.stages = Stages(context, self.ray)
            self.ray.gpu_mask = self.stages.gpu_mask()
        self.ray.make_environment()
        if self.stages:
            self.stages.begin()
        self.ray.preload()
        if context.is_head:
            self.head.preload_probe()
            self.ray.start(self.choose_address(context.settings["network"]["family"]))
            self.head.wait_for_gcs()

    def on_head_versions(self, message: "Message") -> None:
        """The versions on the head node, which a worker must have, too."""
        if not self.context.is_head and self.ray.version_text:
            own = preflight.versions(self.ray.version_text)
            preflight.compare_versions(self.context, own, message["text"])

    def on_check_reachable(self, message: "Message") -> None:
        """Workers are about to join: the head tries to reach them."""
        if self.context.is_head:
            targets = [(node, address, port) for node, address, port in message["targets"]]
            reachability.check_reachable(targets, self.context.finding)

    def on_join(self, message: "Message") -> None:
        """The GCS has the head node: a worker starts Ray."""
        if not self.context.is_head and self.ray.version_text:
            family = network.family_of(network.split_host_port(message["address"])[0])
            self.ray.start(self.choose_address(family), message["address"])

    def on_ready(self, _message: "Message") -> None:
        """All nodes and GPUs are in Ray."""
        self.context.is_ready = True
        self.ray.watch.release_ports()
        if self.stages:
            self.stages.begin()
        self.head.start_trainer_if_ready()

    def on_stage_done(self, message: "Message") -> None:
        """All nodes are done with a stage."""
        if self.stages:
            self.stages.on_stage_done(message["stage"])
            self.head.start_trainer_if_ready()

    def on_service_ended(self, message: "Message") -> None:
        """A service outside of this container has ended."""
        if self.stages:
            self.stages.services.on_service_ended(message["name"], message["code"])

    def on_check_health(self, _message: "Message") -> None:
        """The trainer has failed: answer if Ray runs here, so that this node cannot be the cause."""
        if self.context.deadline is None and self.ray.watch.is_healthy():
            self.context.send("healthy")

    def choose_address(self, family: str) -> str:
        """The address of this node in that family."""
        interface = self.context.settings["network"]["interface"]
        return network.choose_address(self.context.addresses, network.local_addresses(), family, interface)

    def are_stages_done(self) -> bool:
        """Whether no stage keeps the trainer from starting."""
        return self.stages.are_done() if self.stages else self.context.deadline is None

    # -- children ----------------------------------------------------------------------------------------

    def child_ended(self, role: str, code: int) -> None:
        """A child process has ended; 128 + n for signal n."""
        if role == "ray":
            self.ray.ended(code)
        elif role == "probe":
            self.head.probe_ended(code)
        elif role == "trainer":
            self.trainer.ended(code)
        elif self.stages:
            self.stages.child_ended(role, code)

    # -- the end -----------------------------------------------------------------------------------------

    def on_stop(self, message: "Message") -> None:
        """Slurm ends the job: the trainer gets its signal and its grace period."""
        self.stop(message.get("seconds"), is_warning=False)

    def on_stop_at_limit(self, message: "Message") -> None:
        """The time limit is near: the same with another signal."""
        self.stop(message.get("seconds"), is_warning=True)

    def stop(self, seconds: "Optional[float]", is_warning: bool) -> None:
        """Signal the trainer or prepare steps; SIGKILL after so many seconds (None: the grace period)."""
        context = self.context
        if context.rank < 0:  # nothing has been started
            raise Finished
        now, grace = time.monotonic(), float(context.job["grace"] if seconds is None else seconds)
        if context.deadline is not None:  # the second time it can only be sooner
            context.deadline = min(context.deadline, now + grace)
            return
        name = self.trainer.signal_name(is_warning)
        is_signal_sent = self.trainer.send_signal(name) or bool(self.stages and self.stages.send_signal(name))
        if not is_signal_sent and context.is_head:
            raise Finished
        context.deadline = now + grace + (0 if context.is_head else WORKER_MARGIN)

    def end(self) -> None:
        """Before everything here is killed: what is to end in order does."""
        self.trainer.send_signal("KILL")
        if self.stages:
            self.stages.services.stop()

    # -- the loop ----------------------------------------------------------------------------------------

    def loop(self) -> None:
        """Messages, ended children and the clock, until the input ends."""
        wake = self._catch_signals()
        decoder = protocol.LineDecoder()
        while True:
            readable, _, _ = select.select([0, wake], [], [], self.pause())
            if wake in readable:
                try:
                    os.read(wake, READ_SIZE)
                except BlockingIOError:
                    pass
            if 0 in readable:
                data = os.read(0, READ_SIZE)
                if not data:
                    return
                for line in decoder.feed(data):
                    self.dispatch(line)
            self.context.children.reap()
            self.tick()

    def dispatch(self, line: bytes) -> None:
        """Handle a message by the method of its type; other lines and types are ignored."""
        message = protocol.decode(line)
        handle = getattr(self, "on_" + message["type"], None) if message else None
        if message and handle:
            try:
                handle(message)
            except Unfit:
                self.context.send("unfit")
                self.ray.version_text = ""

    def pause(self) -> "Optional[float]":
        """Seconds until the next turn is due, whatever happens; None: no turn is."""
        if self.head.is_waiting or self.context.deadline is not None:
            return SHORT_PAUSE
        return LONG_PAUSE if self.ray.watch.is_active or (self.stages and self.stages.doing) else None

    def tick(self) -> None:
        """Called in each turn of the loop."""
        if self.is_signalled:
            self.is_signalled = False
            self.context.send("signalled")
            self.stop(None, is_warning=False)
        self.ray.watch.tick()
        if self.stages:
            self.stages.tick()
        self.head.tick()
        deadline = self.context.deadline
        if deadline is not None and time.monotonic() > deadline and not self.trainer.send_signal("KILL"):
            raise Finished

    def _catch_signals(self) -> int:
        """Have signals wake the loop and SIGTERM stop the job; returns the descriptor that wakes it."""
        wake, waker = os.pipe()
        os.set_blocking(wake, False)
        os.set_blocking(waker, False)
        signal.set_wakeup_fd(waker)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        for number in (signal.SIGTERM, signal.SIGINT):  # from `podman stop`: process 1 has no default action
            signal.signal(number, lambda *_: setattr(self, "is_signalled", True))
        return wake


def run_container_process(argv: "List[str]", is_guarded: bool = False) -> int:
    """Run the node until its input ends, and leave nothing in the job's folder.

    argv: NODE. is_guarded: without a container, by guard.py.
    """
    environment.restore_search_path()
    folder = os.path.dirname(os.path.abspath(sys.argv[0]))
    process = ContainerProcess(folder, argv[0])
    context = process.context
    context.is_guarded = is_guarded
    os.umask(0o022)
    process_tree.lock_folder(folder)
    process_tree.adopt_orphans()
    try:
        process.loop()
        context.send("tether_lost")
    except Finished:
        pass
    except JobError as error:
        context.send("failed", kind=error.kind, message=error.message)
    except network.NetworkError as error:
        context.send("failed", kind="preflight", message=str(error))
    except Exception as error:
        import traceback

        traceback.print_exc()
        text = "%s: %s. The node's log has the traceback" % (type(error).__name__, error)
        context.send("failed", kind="internal", message=text)
    finally:
        process.end()
        process_tree.kill_descendants()
        empty_folder(folder)
    return 0


def empty_folder(folder: str) -> None:
    """Remove everything in a folder."""
    import shutil

    for name in os.listdir(folder):
        path = os.path.join(folder, name)
        if os.path.isdir(path) and not os.path.islink(path):
            shutil.rmtree(path, ignore_errors=True)
        else:
            os.unlink(path)


main = run_container_process
