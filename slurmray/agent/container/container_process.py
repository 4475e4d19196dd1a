"""The container process of each node: starts Ray, and on the head node also readiness probe and trainer.

Standard input has messages from the node agent and is the tether: when it ends, everything in the container
ends. Standard output is for messages to the controller. Standard error is the node's log. Without a
container, guard.py is the parent of this process.
"""

import json
import os
import signal
import sys
import time

from .. import background_io, heartbeat, inherited, loop, parts, signals
from ..job_errors import Finished, JobError, Unfit
from ..wire import codec
from . import node_address, preflight, process_tree, reachability, variables
from .head import Head
from .node_context import RESUME, NodeContext
from .ray import attach_programs
from .ray.start import RayProcess
from .trainer import Trainer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, Iterator, List, Optional

    from ..wire import messages
    from .container_setup import ContainerSetup
    from .part import Part
    from .stages import Stages

# Seconds between two turns of the loop:
SHORT_PAUSE = 0.02  # while it has to poll for an event
LONG_PAUSE = 1.0  # while it only watches Ray's start or a stage
# Types of messages with which a container process begins.
FIRST = ("settings", "job", "node", "start_ray")
# Seconds that a worker adds to the grace period: Ray must stay up while the trainer writes a checkpoint.
WORKER_MARGIN = 2.0


class ContainerProcess:
    """Reacts to messages, ended child processes and the time."""

    def __init__(self, folder: str, node: str) -> None:
        self.context = NodeContext(folder, node, self.child_ended)
        self.ray = RayProcess(self.context)
        self.trainer = Trainer(self.context)
        self.head = Head(self.context, self.ray, self.trainer, self.are_all_ready)
        self.parts: "List[Part]" = [self.ray, self.ray.watch, self.trainer, self.head]
        self.container_setup: "Optional[ContainerSetup]" = None  # without container.setup, and resumed
        self.is_resumed = False  # container.setup has run
        self.held: "List[bytes]" = []  # messages that wait for a part
        self.is_signalled = False  # this process got SIGTERM or SIGINT
        self.is_input_over = False
        self.first: "List[bytes]" = []  # messages
        self.decoder = codec.LineDecoder()
        self.handlers: "Dict[str, Callable[[Any], None]]" = {
            "settings": self.on_settings,
            "job": self.on_job,
            "node": self.on_node,
            "start_ray": self.on_start_ray,
            "head_versions": self.on_head_versions,
            "check_reachable": self.on_check_reachable,
            "join": self.on_join,
            "ready": self.on_ready,
            "replace": self.on_replace,
            "succeeded": self.on_succeeded,
            "check_health": self.on_check_health,
            "end_time": self.on_end_time,
            "collect_evidence": self.on_collect_evidence,
            "signal": self.on_signal,
            "stop": self.on_stop,
            "stop_at_limit": self.on_stop_with_warning,
            "stop_before_restart": self.on_stop_with_warning,
        }

    # -- from start to trainer ---------------------------------------------------------------------------

    def on_settings(self, message: "messages.ScriptSettings") -> None:
        """Store the settings of the script."""
        self.context.settings = message["settings"]

    def on_job(self, message: "messages.StartOfJob") -> None:
        """Store the description of this attempt."""
        self.context.job = message["job"]
        self.context.write_end_time()

    def on_node(self, message: "messages.Node") -> None:
        """Store the description of this node."""
        context = self.context
        context.rank = message["rank"]
        context.user = message["user"]
        context.memory = message["memory"]
        context.addresses = message["addresses"]
        context.labels = message["labels"]
        context.runtime = message["runtime"]
        context.unset = message["unset"]
        context.workdir = message["workdir"]
        context.children.umask = message["umask"]
        context.gpu_masks = message["gpu_masks"]
        context.env_file, context.node_env = message["env_file"], message["node_env"]
        self.parts = [*self.make_parts(), *self.parts]

    def on_start_ray(self, message: "messages.StartRay") -> None:
        """Run container.setup, then start Ray."""
        context = self.context
        context.peers = message["peers"]
        if self.container_setup:
            preflight.enter_workdir(context.workdir)
            self.container_setup.start(variables.collect(variables.SETUP, context))
        else:
            self.start_ray()

    def make_parts(self) -> "Iterator[Part]":
        """Yield what only some jobs need, and what is known of before Ray starts."""
        context = self.context
        if parts.is_needed("container_setup", context.settings) and not self.is_resumed:
            from .container_setup import ContainerSetup

            self.container_setup = ContainerSetup(context, self.after_setup)
            yield self.container_setup
        if parts.is_needed("gpus", context.settings):
            from .cuda import GpuCheck

            yield GpuCheck(context, self.after_gpus)

    def start_ray(self) -> None:
        """Prepare the start of Ray, and start it on the head node.

        A node that is not in Ray only begins its stages; a spare node waits.
        """
        context = self.context
        needs_ray = context.is_in_ray or context.is_spare
        if needs_ray:
            self.ray.version_text, context.ray_version = preflight.require_ray(context)
        preflight.enter_workdir(context.workdir)
        if needs_ray:
            if self.trainer.is_ray_job:
                from . import ray_job

                ray_job.require_api()
            preflight.check_node(context)
        if not context.is_spare:
            self.make_stages()
        self.ray.write_token()
        for part in self.parts:
            part.on_start_ray()
        self.begin()
        if not context.is_in_ray:
            return
        self.ray.preload()
        if context.is_head:
            self.head.start(self.choose_address(context.settings["network"]["family"]))

    def begin(self) -> None:
        """Begin what may begin now."""
        if all(part.is_open for part in self.parts):
            for part in self.parts:
                part.begin()

    def make_stages(self) -> "Optional[Stages]":
        """Make the stages of this node, if the job has any."""
        if not parts.is_needed("stages", self.context.settings):
            return None
        from .stages import Stages

        stages = Stages(self.context, self.head.start_trainer_if_ready)
        self.parts.append(stages)
        self.handlers.update(stages.handlers())
        return stages

    def on_head_versions(self, message: "messages.HeadVersions") -> None:
        """Compare the versions on this worker with those on the head node."""
        if not self.context.is_head and self.ray.version_text:
            own = preflight.versions(self.ray.version_text)
            preflight.compare_versions(self.context, own, message["text"])

    def on_check_reachable(self, message: "messages.CheckReachable") -> None:
        """Check from the head node that workers which are about to join can be reached."""
        if self.context.is_head:
            targets = [(node, address, port) for node, address, ports in message["targets"] for port in ports]
            reachability.check_reachable(targets, self.context)

    def on_join(self, message: "messages.Join") -> None:
        """Start Ray on a worker: the head node is in the GCS."""
        if not self.context.is_head and self.context.is_in_ray and self.ray.version_text:
            self.join_ray(message["address"])
            self.ray.check_connections(message["address"])

    def join_ray(self, gcs: str) -> None:
        """Start Ray on this worker. gcs: `host:port`."""
        family = node_address.address_family(node_address.split_host_port(gcs)[0])
        self.ray.start(self.choose_address(family), gcs)

    def on_ready(self, message: "messages.Ready") -> None:
        """Continue with stages and trainer: the cluster is ready. A spare node goes on waiting."""
        self.context.burn_in_port = message.get("burn_in_port", 0)
        if self.context.is_spare:
            self.write_attach_programs()
        else:
            self.use_ray()

    def use_ray(self) -> None:
        """Continue with stages and trainer: the cluster is ready, with this node in it."""
        context = self.context
        context.is_ready = True
        self.ray.watch.release_ports()
        self.ray.mark_ready()
        self.write_attach_programs()
        if context.is_head:
            self.head.send_attach()
        self.begin()
        self.head.start_trainer_if_ready()

    def write_attach_programs(self) -> None:
        """Write the programs by which users attach to this node."""
        context = self.context
        env = variables.collect(variables.ATTACHED, context)
        attach_programs.write_programs(context.folder, context.workdir, context.children.umask, env)

    def on_replace(self, message: "messages.Replace") -> None:
        """Note which spare node takes the place of a lost one; join Ray if it is this one."""
        context, job = self.context, self.context.job
        rank = job["nodes"].index(message["lost"])
        job["nodes"][rank] = message["node"]
        job["spares"].remove(message["node"])
        if message["node"] == context.name:
            from .joining import Joining

            context.rank, context.is_replacement = rank, True
            stages, gcs = self.make_stages(), message["address"]
            self.parts.append(Joining(context, self.ray, stages, lambda: self.join_ray(gcs), self.use_ray))

    def on_succeeded(self, _message: "messages.Succeeded") -> None:
        """Note that the trainer exited with 0."""
        self.context.has_succeeded = True

    def on_check_health(self, _message: "messages.CheckHealth") -> None:
        """Answer if Ray runs here. The trainer has failed; the controller looks for a lost node."""
        is_healthy = not self.context.is_in_ray or self.ray.watch.is_healthy()
        if self.context.deadline is None and is_healthy:
            self.context.send({"type": "healthy"})

    def on_end_time(self, message: "messages.EndTime") -> None:
        """Note when Slurm ends the job."""
        self.context.job["end_time"] = message["end_time"]
        self.context.write_end_time()

    def on_collect_evidence(self, message: "messages.CollectEvidence") -> None:
        """Start the role that collects evidence about a stalled trainer."""
        context = self.context
        if context.is_spare:
            return
        env = {name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"}
        if context.is_head:
            env = dict(variables.collect(variables.ATTACHED, context))
        pids = map(str, sorted(process_tree.descendants()))
        argv = [*context.program("stacks"), context.name, str(message["number"]), *pids]
        context.children.spawn("stacks", argv, env, 1)

    def choose_address(self, family: str) -> str:
        """Choose the address of this node. family: as `network.family`."""
        local, options = node_address.local_addresses(), self.context.settings["network"]
        return node_address.choose_address(self.context.addresses, local, family, options)

    def are_all_ready(self) -> bool:
        """Whether the trainer may start."""
        return self.context.deadline is None and all(part.may_train() for part in self.parts)

    # -- children ----------------------------------------------------------------------------------------

    def child_ended(self, role: str, code: int) -> None:
        """Handle the end of a child process. code: 128 + n for signal n."""
        for part in self.parts:
            if role.partition(" ")[0] in part.roles:
                self.send_unfit(part.child_ended, role, code)

    def after_setup(self, python: str) -> None:
        """Start Ray once container.setup has run, and handle messages. python: see ContainerSetup."""
        if python:
            from .container_setup import start_again

            start_again(self.context, python, [*self.first, *self.held], self.decoder.rest)
        preflight.restore_search_path()  # it may have made the folder of the user's packages
        self.start_ray()
        self.release()

    def after_gpus(self) -> None:
        """Continue with opened GPUs, and handle the messages that waited for them."""
        self.begin()
        self.release()

    def release(self) -> None:
        """Handle messages that a part has held."""
        lines, self.held = self.held, []
        for line in lines:
            self.dispatch(line)

    def resume(self) -> None:
        """Handle the messages that start_again() has stored."""
        path = os.path.join(self.context.folder, RESUME)
        if os.path.exists(path):
            with open(path, "rb") as file:
                self.context.setup_env = json.loads(file.readline().decode())
                messages = file.read()
            os.unlink(path)
            self.is_resumed = True
            self.receive(messages)

    # -- the end -----------------------------------------------------------------------------------------

    def on_signal(self, message: "messages.Signal") -> None:
        """Pass a signal on to the trainer's process, if it runs.

        Not to its group: as with a step of Slurm (proctrack/cgroup), a signal that means something to the
        trainer must not end its children, e.g. processes that load data.
        """
        self.context.children.send_signal("trainer", message["name"], os.kill)

    def on_stop(self, message: "messages.Stop") -> None:
        """Send the trainer the stop signal: Slurm ends the job."""
        self.stop(message["seconds"], is_warning=False)

    def on_stop_with_warning(self, message: "messages.StopAtLimit | messages.StopBeforeRestart") -> None:
        """Send the trainer the warning signal: the time limit is near, or it is to start again."""
        self.stop(message["seconds"], is_warning=True)

    def stop(self, seconds: "Optional[float]", is_warning: bool) -> None:
        """Signal the trainer or prepare steps; SIGKILL follows after `seconds` (None: the grace period)."""
        context = self.context
        if context.rank < 0:  # nothing has been started
            raise Finished
        now, grace = time.monotonic(), float(context.job["grace"] if seconds is None else seconds)
        if context.deadline is not None:  # a second stop can only bring it forward
            context.deadline = min(context.deadline, now + grace)
            return
        name = self.trainer.signal_name(is_warning)
        signalled = [part for part in self.parts if part.send_signal(name)]
        if not signalled and context.is_head:
            raise Finished
        context.deadline = now + grace + (0 if context.is_head else WORKER_MARGIN)

    def end(self) -> None:
        """Kill the trainer and stop services in order, before everything else is killed."""
        self.trainer.send_signal("KILL")
        for part in self.parts:
            part.end()

    # -- the loop ----------------------------------------------------------------------------------------

    def loop(self) -> None:
        """Handle messages, ended children and the time until the input ends."""
        turns = loop.Loop(lambda _: None)  # the controller passes these signals on to the trainer
        turns.catch(signal.SIGCHLD, lambda: None)
        for number in (signal.SIGTERM, signal.SIGINT):  # from `podman stop`: process 1 has no default action
            turns.catch(number, lambda: setattr(self, "is_signalled", True))
        turns.add(0, self.receive)
        self.resume()
        while True:
            turns.turn(self.pause())
            if self.is_input_over:
                return
            self.context.children.reap()
            self.tick()

    def receive(self, data: bytes) -> None:
        """Handle messages, or the end of the input."""
        self.is_input_over = not data
        for line in self.decoder.feed(data):
            self.dispatch(line)

    def dispatch(self, line: bytes) -> None:
        """Handle a message; other lines and types are ignored."""
        message = codec.decode(line)
        handle = self.handlers.get(message["type"]) if message else None
        if message and message["type"] in FIRST:
            self.first.append(line)
        if message and any(part.holds(message["type"]) for part in self.parts):
            self.held.append(line)
        elif message and handle:
            self.send_unfit(handle, message)

    def send_unfit(self, call: "Callable[..., None]", *arguments: "Any") -> None:
        """Call a function, and send `unfit` where a check in it has failed."""
        try:
            call(*arguments)
        except Unfit:
            self.context.send({"type": "unfit"})
            self.ray.version_text = ""

    def pause(self) -> "Optional[float]":
        """Seconds until the next turn of the loop if nothing happens; None: wait for an event."""
        if self.head.check or self.context.deadline is not None:
            return SHORT_PAUSE
        return LONG_PAUSE if any(part.is_busy for part in self.parts) else None

    def tick(self) -> None:
        """Act on signals and the time. Called in each turn of the loop."""
        if self.is_signalled:
            self.is_signalled = False
            self.context.send({"type": "signalled"})
            self.stop(None, is_warning=False)
        for part in self.parts:
            self.send_unfit(part.tick)
        deadline = self.context.deadline
        if deadline is not None and time.monotonic() > deadline and not self.trainer.send_signal("KILL"):
            raise Finished


def run_container_process(argv: "List[str]", is_guarded: bool = False) -> int:
    """Run until the input or the job ends, then empty the job's folder.

    argv: NODE. is_guarded: guard.py is the parent.
    """
    preflight.restore_search_path()
    folder = os.path.dirname(os.path.abspath(sys.argv[0]))
    process = ContainerProcess(folder, argv[0])
    context = process.context
    context.is_guarded = is_guarded
    background_io.errors.write = lambda text: context.send({"type": "thread_error", "text": text})
    inherited.raise_soft_limits()
    os.umask(0o022)  # its children get the submitter's
    process_tree.lock_folder(folder)
    process_tree.adopt_orphans()
    path = os.path.join(folder, heartbeat.FILE)
    open(path, "w").close()
    background_io.start("heartbeats", lambda: send_heartbeats(path))
    try:
        process.loop()
        context.send({"type": "tether_lost"})
    except Finished:
        pass
    except JobError as error:
        context.send({"type": "failed", "kind": error.kind, "message": error.message, "log": error.log})
    except Exception as error:
        from .. import job_log

        kind, message = job_log.describe(error)
        more = ". The node's log has the traceback" if kind == "internal" else ""
        context.send({"type": "failed", "kind": kind, "message": message + more})
    finally:
        process.end()
        process_tree.kill_descendants()
        empty_folder(context)
    signals.ignore()
    return 0


def send_heartbeats(path: str) -> None:
    """Change the time of a file, which the node agent watches, as long as it exists.

    Runs in a thread: the loop may take long over a check. A process that is stopped has no running thread.
    """
    while True:
        time.sleep(heartbeat.SHORTEST)  # the timeout is not known yet
        try:
            os.utime(path)
        except FileNotFoundError:  # the folder is being emptied
            return
        except Exception as error:
            background_io.errors.note("heartbeats", error)


def empty_folder(context: NodeContext) -> None:
    """Remove everything in the job's folder, but set aside Ray's logs where they are kept."""
    import shutil

    from .. import ray_logs

    if context.rank >= 0 and ray_logs.are_kept(context.settings, context.has_succeeded):
        try:
            ray_logs.set_aside(context.folder)
        except OSError as error:
            sys.stderr.write("cannot keep Ray's logs: %s\n" % error)
    for name in os.listdir(context.folder):
        if name == ray_logs.FOLDER:
            continue
        path = os.path.join(context.folder, name)
        if os.path.isdir(path) and not os.path.islink(path):
            shutil.rmtree(path, ignore_errors=True)
        else:
            os.unlink(path)


main = run_container_process  # for the role `container`; the story refers to the function by this name
