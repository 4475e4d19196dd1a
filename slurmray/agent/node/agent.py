"""The node agent: checks, image, container and clean-up of one node.

The main thread handles messages, signals and heartbeats and never blocks on anything else. A second thread,
`NodeAgent.work`, does the work of the node, one step after another.
"""

import os
import signal
import subprocess
import threading
import time

from .. import (
    background_io,
    commands,
    errors,
    heartbeat,
    inherited,
    job_log,
    loop,
    nodes,
    paths,
    ray_logs,
    script,
)
from ..commands import Result
from ..wire import codec
from . import detached_process
from .api import NodeApi

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List, Optional, Set

    from ..wire import messages
    from ..wire.settings import Job
    from .host_services import HostServices
    from .runtimes import Runtime
    from .service_logs import ServiceLogs

ANSWER_WAIT = 30.0  # seconds for the controller's answer about leftovers
LOGS_WAIT = 4.0  # seconds for the archive of Ray's logs
SERVICE_LOGS_WAIT = 1.0  # seconds for the rest of the services' output
CLIENT_WAIT = 10.0  # seconds for the container to exit once its input is closed
SUCCESSORS = 6  # workers that may requeue or cancel the job when the head node is lost, in this order
SUCCESSOR_WAIT = 10.0  # seconds by which each waits longer than the one before


def run_node(text: str, rest: bytes) -> int:
    """Run this node's task. text: the script. rest: bytes of messages read along with the script."""
    inherited.raise_soft_limits()
    return NodeAgent(text, rest).main()


class NodeAgent(NodeApi):
    """The agent of one node."""

    def __init__(self, text: str, rest: bytes) -> None:
        self._text = text
        self.settings = script.settings_of(text)
        self.name = os.environ["SLURMD_NODENAME"]
        self.env = dict(os.environ)
        self.env.pop("SLURMRAY_SETUP", None)
        # The story may have run `setup` to find a Python; this process then has its environment.
        self._is_set_up = self.env.pop("SLURMRAY_SETUP_DONE", "") == self.name
        self.folder = ""
        self.clock = heartbeat.Clock()
        self.has_head_started = False
        self.doing = ""  # what takes long at the moment; sent with heartbeats
        self._field = ""  # of the job spec, whose commands run at the moment
        self._job: "Optional[Job]" = None
        self._rest = rest
        self._decoder = codec.LineDecoder()
        self._messages = background_io.PipeWriter(os.dup(1))
        self._heartbeat = heartbeat.Timer()
        self._monitor = heartbeat.Monitor(self.settings["timeouts"]["heartbeat"])  # of the head node
        self._record_message()
        self._asking: "Optional[threading.Thread]" = None  # asks the head node's host whether it answers
        self._answers: "List[str]" = []  # of that host
        self._changed = threading.Condition()  # guards the fields below, which both threads use
        self._ended_jobs: "Optional[Set[str]]" = None  # the controller's answer
        self._is_stopped = False  # this node is to clean up and exit
        self._is_orphan = False  # there are no heartbeats from the controller
        self._is_input_over = False
        self._is_stop_requested = False  # Slurm sent SIGTERM
        self._signals: "List[str]" = []  # names of others
        self._loop = loop.Loop(self._signals.append)
        self._loop.catch(signal.SIGTERM, lambda: setattr(self, "_is_stop_requested", True))
        self._is_unfit = False
        self._has_succeeded = False  # the trainer exited with 0
        self._env_file: "Dict[str, str]" = {}
        self._node_env: "Dict[str, str]" = {}
        self._is_cleaning_up = False  # commands are not interrupted, although the node is stopped
        self._container: "Optional[detached_process.DetachedProcess]" = None
        self._service_logs: "Optional[ServiceLogs]" = None
        self._own_messages: "Dict[str, Callable[[Any], None]]" = {  # the others go on
            "job": self._on_job,
            "ended_jobs": self._on_ended_jobs,
            "heartbeat": self._record_message,
        }
        self._waiting: "List[bytes]" = []  # messages for a container that has not started

    # -- the main thread ---------------------------------------------------------------------------------

    def main(self) -> int:
        """Run until this node has cleaned up and the controller has closed the input."""
        self._send({"type": "started", "step": os.environ.get("SLURM_STEP_ID", "")})
        worker = threading.Thread(target=self.work, daemon=True)
        worker.start()
        self._receive(self._rest)
        self._loop.add(0, self._read)
        while worker.is_alive() or not (self._is_input_over or self._is_orphan):
            self._loop.turn(0.5)
            self._handle_signals()
            self._check_heartbeats()
        if self._is_orphan:
            self._end_without_head()
        self._messages.close()
        self._messages.join(1)
        return 0

    def _read(self) -> None:
        data = os.read(0, 1 << 16)
        self._receive(data)
        if not data:
            self._loop.remove(0)
            self._is_input_over = True
            self._stop()

    def _receive(self, data: bytes) -> None:
        for line in self._decoder.feed(data):
            self._record_message()
            message = codec.decode(line)
            if not message:
                continue
            handle = self._own_messages.get(message["type"])
            if handle:
                handle(message)
            else:
                self._notice(message["type"])
                self._forward(line + b"\n")

    def _record_message(self, _message: "object" = None) -> None:
        self._monitor.record("head", self.clock.now())

    def _on_job(self, message: "messages.StartOfJob") -> None:
        with self._changed:
            self._job = message["job"]
            self._changed.notify_all()

    def _on_ended_jobs(self, message: "messages.EndedJobs") -> None:
        with self._changed:
            if message["node"] == self.name:
                self._ended_jobs = set(message["jobs"])
                self._changed.notify_all()

    def _notice(self, kind: str) -> None:
        """Keep what this node has to know of messages that go on."""
        self.has_head_started = self.has_head_started or kind == "head_versions"
        self._has_succeeded = self._has_succeeded or kind == "succeeded"

    def _forward(self, line: bytes) -> None:
        """Pass a message on to the container process, which may not have been started."""
        with self._changed:
            if self._container:
                self._container.send(line)
            else:
                self._waiting.append(line)

    def _handle_signals(self) -> None:
        while self._signals:  # all nodes get them, but only one is to send them
            name = self._signals.pop(0)
            if self._job and self._job["nodes"][0] == self.name:
                self._send({"type": "signal", "name": name})
        if not self._is_stop_requested:
            return
        self._is_stop_requested = False
        self._send({"type": "stop_requested"})
        if self._container and self._job:  # the trainer gets the stop signal and its grace period
            self._forward(codec.encode({"type": "stop", "seconds": self._job["grace"]}))
        else:
            self._stop()

    def _check_heartbeats(self) -> None:
        now = self.clock.now()
        if self._heartbeat.is_due(now):
            self._send({"type": "heartbeat", "doing": self.doing, "field": self._field})
        if self._is_input_over or not self._monitor.overdue(now):
            return
        while self._answers:
            self._monitor.host_answers(self._answers.pop(), now)
        if self._job and not (self._asking and self._asking.is_alive()):
            self._asking = threading.Thread(target=self._ask_head, daemon=True)
            self._asking.start()
        if self._monitor.lost(now):
            self._is_orphan = True
            self._stop()

    def _ask_head(self) -> None:
        self._answers.extend(self._head_that_answers())
        time.sleep(1)  # until it is asked again

    def _head_that_answers(self) -> "Set[str]":
        """{"head"} if the head node's host answers to a new connection."""
        from .. import hosts

        assert self._job
        address = self.env.get("SLURM_LAUNCH_NODE_IPADDR") or self._job["nodes"][0]
        return hosts.answering({"head": [address]}, self._job["slurmd_port"], 3)

    def _stop(self) -> None:
        with self._changed:
            self._is_stopped = True
            self._changed.notify_all()

    # -- the work of the node, step by step --------------------------------------------------------------

    def work(self) -> None:
        """Do the work of this node from the first check to the clean-up, which always happens."""
        from . import checks, facts, host_services, job_folder, leftovers, runtimes, variables

        runtime: "Optional[Runtime]" = None
        services: "Optional[HostServices]" = None
        try:
            self._await_job()
            checks.open_run_directory(self)
            self._run_setup()
            self.env = facts.without_foreign_session(self.env)
            checks.expand_paths(self)
            checks.check_node(self)
            self._env_file = variables.env_file(self)
            self._node_env = variables.node_env(self)
            self.folder = job_folder.make(self, script.agent_of(self._text))
            runtime = runtimes.choose(self)
            leftovers.remove(self, runtime)
            runtime.prepare_container()
            self._end_checks()
            runtime.ensure_image()
            runtime.pull_service_images()
            self.require_no_findings()
            services = host_services.HostServices(self, runtime)
            self._run_container(runtime, services)
        except errors.Unfit:
            self._send({"type": "unfit"})
            self._await_stop()  # the controller ends the job when all nodes have reported
        except errors.Stopped:
            pass
        except errors.JobError as error:
            self._send({"type": "failed", "kind": error.kind, "message": error.message})
        except Exception as error:
            kind, text = job_log.describe(error)
            self._send({"type": "failed", "kind": kind, "message": text})
        finally:
            try:
                self._clean_up(runtime, services)
            except Exception as error:
                self.phase("end", "%s: cannot clean up: %s" % (self.name, job_log.describe(error)[1]))
            self._send({"type": "gone"})
            self._loop.wake()

    def _await_job(self) -> None:
        with self._changed:
            while not self._job:
                if self._is_stopped:
                    raise errors.Stopped
                self._changed.wait(1)
        job = self.job = self._job
        self._rank = job["nodes"].index(self.name)
        self.is_head = self._rank == 0
        number = nodes.group_number(self.settings, self._rank)
        self.group, self.cpus = self.settings["groups"][number], job["cpus"][number]
        self.env["SLURM_JOB_ID"] = job["id"]  # of the job, not of a component of it
        self.container_name = "slurmray-%s-%d-%s" % (job["id"], job["attempt"], self.name)
        self.log_path = os.path.join(job["run_dir"], "logs", self.name + ".log")

    def _end_checks(self) -> None:
        """Tell the controller that this node is checked. Raises errors.Stopped if that was all of the job."""
        from . import facts

        addresses = facts.all_addresses(self.name)
        self._send(
            {"type": "checked", "addresses": addresses, "proxy": self._has_proxy(), "folder": self.folder}
        )
        self.require_no_findings()
        if self.settings["only_checks"]:
            self._await_stop()  # the controller ends the job when all nodes are checked
            raise errors.Stopped

    def _await_stop(self) -> None:
        with self._changed:
            while not self._is_stopped:
                self._changed.wait(1)

    def _run_setup(self) -> None:
        """Run the job spec's `setup`. Its environment is that of everything started on this node."""
        if self.settings["setup"] and not self._is_set_up:
            self.env = self.environment_after(self.settings["setup"], "setup")

    def environment_after(self, text: str, field: str) -> "Dict[str, str]":
        found = bytearray()
        reader, writer = os.pipe()
        # The commands travel through standard input, as `ps` shows arguments to everybody. The story's
        # function writes the environment to descriptor 3. Output goes to the log: a daemon may keep it open.
        argv = ["/bin/bash", "-p", "-c", 'exec "$@" 3>&"$0"-', str(writer), *self.story_command("run_setup")]
        begin = os.fstat(2).st_size
        process = subprocess.Popen(
            argv, stdin=subprocess.PIPE, stdout=2, stderr=2, env=self.env, pass_fds=[writer],
            start_new_session=True,
        )  # fmt: skip
        os.close(writer)
        assert process.stdin
        pipe = background_io.PipeWriter(os.dup(process.stdin.fileno()))
        process.stdin.close()
        pipe.send(text.encode("utf-8", "surrogateescape"))
        pipe.close()
        self._field = field  # not `doing`: commands that hang must not extend ray.ready_timeout
        try:
            commands.collect(process, {reader: found.extend}, float("inf"), self._is_interrupted)
        finally:
            self._field = ""
            os.close(reader)
        if self._is_interrupted():
            raise errors.Stopped
        if process.returncode or not found:
            lines = paths.last_lines(self.log_path, 3, begin)
            text = "%s exited with %d: %s" % (field, process.returncode, " / ".join(lines) or "no output")
            raise errors.JobError("preflight", text)
        pairs = (entry.partition("=") for entry in found.decode("utf-8", "surrogateescape").split("\0"))
        return {name: value for name, equals, value in pairs if equals}

    def _run_container(self, runtime: "Runtime", services: "HostServices") -> None:
        """Start the container process and wait for its end."""
        if self.settings["services"]:
            from . import service_logs

            self._service_logs = service_logs.ServiceLogs(self)
        argv = runtime.container_argv()
        self.phase("container", runtime.description)
        container = detached_process.DetachedProcess(argv, self.env, 1)
        for message in self._first_messages(runtime):
            container.send(codec.encode(message))
        with self._changed:
            self._container = container
            for line in self._waiting:
                container.send(line)
        is_checked = False
        seen, seen_at = 0, 0.0
        while not self._is_stopped:
            code = container.poll(0.5)
            is_checked = is_checked or runtime.check_container()
            if code:  # a container process that ends the job sends the reason and exits with 0
                text = "%s exited with %d" % (runtime.description, code)
                if code - 128 in set(signal.Signals):  # not by itself: it handles signals
                    name = signal.Signals(code - 128).name
                    text = "the container process was killed (exit code %d, %s)" % (code, name)
                cause = runtime.likely_cause() or job_log.why_full(os.path.dirname(self.log_path))
                raise errors.JobError("ray", ": ".join(filter(None, [text, cause])))
            if code == 0:
                return
            latest = self._container_heartbeat()
            if latest != seen:
                seen, seen_at = latest, self.clock.now()
            elif seen and self.clock.now() - seen_at > self.settings["timeouts"]["heartbeat"]:
                text = "the container process does not answer for %d s. Has somebody stopped it?"
                raise errors.JobError("ray", text % self.settings["timeouts"]["heartbeat"])
            for name, service_code in services.poll():
                self._forward(codec.encode({"type": "service_ended", "name": name, "code": service_code}))

    def _container_heartbeat(self) -> int:
        """Time of the container process's last heartbeat; 0: none so far, or it is ending."""
        try:
            return os.stat(os.path.join(self.inside, heartbeat.FILE)).st_mtime_ns
        except OSError:
            return 0

    def _first_messages(self, runtime: "Runtime") -> "List[messages.ToContainer]":
        from . import facts

        return [
            {"type": "settings", "settings": self.settings},
            {"type": "job", "job": self.job},
            {
                "type": "node",
                "rank": self._rank,
                "user": facts.user_name(),
                "umask": inherited.umask(),
                "memory": facts.memory_of_job(self.env),
                "addresses": facts.resolved_addresses(self.name),
                "runtime": runtime.name,
                "exec_prefix": runtime.exec_prefix,
                "gpu_masks": runtime.gpu_masks(),
                "env_file": self._env_file,
                "node_env": self._node_env,
                "workdir": self.settings["container"]["workdir"] or self.env["SLURM_SUBMIT_DIR"],
            },
        ]

    def _clean_up(self, runtime: "Optional[Runtime]", services: "Optional[HostServices]") -> None:
        """Remove everything of the job from this node."""
        from . import job_folder

        self._is_cleaning_up = True
        if services:
            services.stop()
        if self._container:
            self._container.end(CLIENT_WAIT)
        if runtime and self._container and not runtime.remove():
            self.phase("end", "cannot end all processes of %s on %s" % (self.container_name, self.name))
        if self._service_logs:
            self._service_logs.finish(SERVICE_LOGS_WAIT)
        if self.folder and self._container:
            self._keep_ray_logs()
        if self.folder and not job_folder.remove(self, runtime):
            self.phase("end", "cannot remove %s on %s" % (self.folder, self.name))

    def _keep_ray_logs(self) -> None:
        """Keep Ray's logs if the job spec wants that. Not for long: the run directory may be slow."""
        if not ray_logs.are_kept(self.settings, self._has_succeeded):
            return
        logs = os.path.dirname(self.log_path)

        def keep() -> None:
            try:
                if ray_logs.archive(self.inside, os.path.join(logs, self.name + "-ray.tar.gz")):
                    self.phase("end", "Ray's logs of each node are in %s" % logs)
            except OSError as error:
                self.phase("end", "%s: cannot keep Ray's logs: %s" % (self.name, error))

        thread = threading.Thread(target=keep, daemon=True)
        thread.start()
        thread.join(LOGS_WAIT)

    def _end_without_head(self) -> None:
        """Handle missing heartbeats: the head node is lost, or this one is cut off.

        One worker requeues or cancels the job, unless it has ended.
        """
        head, others = self.job["nodes"][0], self.job["nodes"][1:]
        seconds = self.settings["timeouts"]["heartbeat"]
        text = "%s: no heartbeat from the head node %s for %d s. Has it lost power or its network?"
        text = text % (self.name, head, seconds)
        self.log(job_log.log_line(self.job["started"], text))
        if self.name not in others[:SUCCESSORS]:
            return
        time.sleep(SUCCESSOR_WAIT * others.index(self.name))  # earlier ones may be lost, too
        if not self._is_job_running():
            return  # or this node cannot ask, as it is cut off
        if self._head_that_answers() and self._is_controller_running():
            return  # only this node was cut off: the controller knows what becomes of the job
        self._report_head_loss(text)
        name = self.job["name_for_commands"]
        if self.job["chances"] and _slurm(["scontrol", "requeue", name]).code == 0:
            return
        if self._is_job_running():  # another node may have requeued it
            _slurm(["scancel", name])

    def _is_controller_running(self) -> bool:
        """Whether the controller still writes heartbeats into the run directory."""
        path = os.path.join(self.job["run_dir"], "heartbeat")
        seen = []
        for _ in range(2):
            time.sleep(SUCCESSOR_WAIT)
            os.listdir(self.job["run_dir"])  # makes a network file system look again
            with open(path) as file:
                seen.append(file.read())
        return seen[0] != seen[1]

    def _is_job_running(self) -> bool:
        argv = ["squeue", "--all", "--noheader", "--jobs=" + self.job["name_for_commands"], "--format=%T"]
        return _slurm(argv).out.strip() == "RUNNING"

    def _report_head_loss(self, text: str) -> None:
        """Write the loss to the job's log and events in place of the controller."""
        for path in (self.job["log_file"], os.path.join(self.job["run_dir"], "events.jsonl")):
            if not os.access(path, os.W_OK):
                continue
            if path.endswith(".jsonl"):
                job_log.append(
                    path, job_log.event_line("node_loss", {"node": self.job["nodes"][0], "text": text})
                )
            else:
                job_log.append(path, job_log.log_line(self.job["started"], text))

    # -- NodeApi, for checks and runtimes ----------------------------------------------------------------

    def phase(self, phase: str, text: str) -> None:
        self._send({"type": "phase", "phase": phase, "text": text})

    def finding(self, kind: str, check: str, found: "Any", wanted: "Any", fix: str) -> None:
        if kind != "warn":
            self._is_unfit = True
        self._send(
            {
                "type": "finding",
                "kind": kind,
                "check": check,
                "found": str(found),
                "wanted": str(wanted),
                "fix": fix,
            }
        )

    def soft_finding(self, check: str, found: "Any", wanted: "Any", fix: str) -> None:
        level = self.settings["preflight"]
        if level != "none":
            self.finding("warn" if level == "warn" else "preflight", check, found, wanted, fix)

    def require_no_findings(self) -> None:
        if self._is_unfit:
            raise errors.Unfit
        if self._is_stopped:
            raise errors.Stopped

    def run(self, argv: "List[str]", timeout: float = 20.0, env: "Optional[Dict[str, str]]" = None) -> Result:
        return self._run(argv, timeout, env)

    def run_long(self, argv: "List[str]", doing: str, env: "Optional[Dict[str, str]]" = None) -> Result:
        self.doing = doing
        try:
            return self._run(argv, None, env)
        finally:
            self.doing = ""

    def _run(self, argv: "List[str]", timeout: "Optional[float]", env: "Optional[Dict[str, str]]") -> Result:
        done = commands.run(argv, self.env if env is None else env, timeout, self._is_interrupted)
        if self._is_interrupted():
            raise errors.Stopped
        return done

    def _is_interrupted(self) -> bool:
        """Whether running commands are to be ended."""
        return self._is_stopped and not self._is_cleaning_up

    def ended_jobs(self, jobs: "Set[str]") -> "Set[str]":
        # A message loses what is too long, so the answer names the ended ones.
        self._send({"type": "leftover_jobs", "jobs": sorted(jobs)})
        due = time.monotonic() + ANSWER_WAIT
        with self._changed:
            while self._ended_jobs is None and time.monotonic() < due:
                if self._is_stopped:
                    raise errors.Stopped
                self._changed.wait(1)
            return self._ended_jobs or set()

    def story_command(self, function: str, *args: str) -> "List[str]":
        return script.story_command(self._text, function, *args)

    def host_path(self, text: str) -> str:
        return paths.host_path(text, self.env)

    def log(self, text: str) -> None:
        if text:
            job_log.write_stderr((text.rstrip("\n") + "\n").encode("utf-8", "surrogateescape"))

    def wait(self, seconds: float) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._is_stopped, seconds)
        if self._is_stopped:
            raise errors.Stopped

    def _has_proxy(self) -> bool:
        names = ("http_proxy", "https_proxy", "all_proxy")
        given = (self.settings["env"], self.job["env"], self._env_file, self._node_env, self.env)
        return any(env.get(name) or env.get(name.upper()) for env in given for name in names)

    def _send(self, message: "messages.ToController") -> None:
        self._messages.send(codec.encode_to_controller(message, self.name))


def _slurm(argv: "List[str]") -> Result:
    return commands.run_slurm(argv, 10, is_logged=True)
