"""The node agent: checks, image, container and clean-up of one node, one step after another.

This is the second thread of the process; mailbox.py has the first.
"""

import os
import signal

from .. import (
    background_io,
    heartbeat,
    inherited,
    job_errors,
    job_log,
    nodes,
    parts,
    paths,
    script_parts,
    signals,
)
from .agent_interface import NodeApi
from .mailbox import Mailbox

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, List, Optional

    from ..wire import messages
    from .detached_process import DetachedProcess
    from .host_services import HostServices
    from .runtime_interface import Runtime
    from .samples import Sampler
    from .service_logs import ServiceLogs

LOGS_WAIT = 4.0  # seconds for the archive of Ray's logs
SERVICE_LOGS_WAIT = 1.0  # seconds for the rest of the services' output
NO_PROGRAM = 127  # exit code of `podman run` and `docker run` where the image has no such program
CLIENT_WAIT = 10.0  # seconds for the container to exit once its input is closed


def run_node(text: str, rest: bytes) -> int:
    """Run this node's task. text: the script. rest: bytes of messages read along with the script."""
    inherited.raise_soft_limits()
    node = NodeAgent(text, rest)
    background_io.errors.write = lambda text: node.send({"type": "thread_error", "text": text})
    mail = node.mail
    if mail.run(node.work):
        from . import head_loss

        assert mail.job
        seconds = node.settings["timeouts"]["heartbeat"]
        head_loss.end_without_head(mail.job, node.name, seconds, mail.find_answering_head)
    mail.close()
    signals.ignore()
    return 0


class NodeAgent(NodeApi):
    """The work of one node."""

    def __init__(self, text: str, rest: bytes) -> None:
        super().__init__(text)
        self.env.pop("SLURMRAY_SETUP", None)
        # The story may have run `setup` to find a Python; this process then has its environment.
        self._is_set_up = self.env.pop("SLURMRAY_SETUP_DONE", "") == self.name
        self._env_file: "Dict[str, str]" = {}
        self._node_env: "Dict[str, str]" = {}
        self._container: "Optional[DetachedProcess]" = None
        self._service_logs: "Optional[ServiceLogs]" = None
        self._services: "Optional[HostServices]" = None  # outside Ray's container
        self._sampler: "Optional[Sampler]" = None
        self.mail = Mailbox(self, rest)

    def work(self) -> None:
        """Do the work of this node from the first check to the clean-up, which always happens."""
        from . import checks, facts, job_folder, leftovers, runtimes
        from .checks import shared_run_directory

        runtime: "Optional[Runtime]" = None
        try:
            self._await_job()
            shared_run_directory.open_run_directory(self)
            self._run_setup()
            self.env = facts.drop_foreign_session(self.env)
            if parts.is_needed("expansion", self.settings):
                from .checks.expansion import expand_paths

                expand_paths(self)
            self.require_no_findings()
            checks.check_node(self)
            if parts.is_needed("variables", self.settings):
                from . import node_variables

                self._env_file = node_variables.env_file(self)
                self._node_env = node_variables.node_env(self)
            self.folder = job_folder.make(self, script_parts.read_agent(self.text))
            runtime = runtimes.choose(self)
            leftovers.remove(self, runtime)
            runtime.prepare()
            self._end_checks()
            runtime.ensure_images()
            self.require_no_findings()
            self._run_container(runtime)
        except job_errors.Unfit:
            self.send({"type": "unfit"})
            self.mail.await_stop()  # the controller ends the job when it knows the findings of all nodes
        except job_errors.Stopped:
            pass
        except job_errors.JobError as error:
            self.send({"type": "failed", "kind": error.kind, "message": error.message})
        except Exception as error:
            kind, message = job_log.describe(error)
            self.send({"type": "failed", "kind": kind, "message": message})
        finally:
            try:
                self._clean_up(runtime)
            except Exception as error:
                self.phase("end", "%s: cannot clean up: %s" % (self.name, job_log.describe(error)[1]))
            self.send({"type": "gone"})
            self.mail.announce_end()

    def _await_job(self) -> None:
        job = self.job = self.mail.await_job()
        self.settings = script_parts.read_start_settings(self.text, len(job["nodes"]))
        self._rank = [*job["nodes"], *job["spares"]].index(self.name)
        self.is_head = self._rank == 0
        number = nodes.group_number(self.settings, self._rank, job["spares_of_groups"])
        self.group, self.cpus = self.settings["groups"][number], job["cpus"][number]
        self.memory = job["memory"][number]
        self.env["SLURM_JOB_ID"] = job["id"]  # of the job, not of a component of it
        self.container_name = paths.container_name(job["id"], job["attempt"], self.name)
        self.log_path = os.path.join(job["run_dir"], "logs", self.name + ".log")

    def _end_checks(self) -> None:
        """Tell the controller that this node is checked. Raises Stopped if that was all of the job."""
        from . import facts

        addresses = facts.all_addresses(self.name)
        self.send(
            {
                "type": "checked",
                "addresses": addresses,
                "proxy": self._has_proxy(),
                "folder": self.folder,
                "gpus": len(self.gpus),
            }
        )
        self.require_no_findings()
        if self.settings["only_checks"]:
            self.mail.await_stop()  # the controller ends the job when all nodes are checked
            raise job_errors.Stopped

    def _run_setup(self) -> None:
        """Run the job spec's `setup`. Its environment is that of everything started on this node."""
        if self.settings["setup"] and not self._is_set_up:
            from .commands import environment_after

            self.env = environment_after(self, self.settings["setup"], "setup")

    def _run_container(self, runtime: "Runtime") -> None:
        """Start the container process and wait for its end."""
        from .detached_process import DetachedProcess

        if self.settings["services"]:
            from .host_services import HostServices
            from .service_logs import ServiceLogs

            self._service_logs = ServiceLogs(self)
            self._services = HostServices(self, runtime)
        argv = runtime.argv()
        self.phase("container", runtime.description)
        container = self._container = DetachedProcess(argv, self.env, 1)
        self.mail.connect(container, self._first_messages(runtime))
        clock, is_checked = self.mail.clock, False
        seen, seen_at, timeout = 0, 0.0, self.settings["timeouts"]["heartbeat"]
        # Not at once: a cluster that starts needs its CPUs, and its GPUs do nothing yet.
        first_sample = clock.now() + (self.settings["watch"]["interval"] or float("inf"))
        while not self.mail.is_stopped:
            code = container.poll(0.5)
            if not self._sampler and clock.now() >= first_sample:
                self._start_sampler(runtime)
            is_checked = is_checked or runtime.check()
            if code:  # a container process that ends the job sends the reason and exits with 0
                message = "%s exited with %d" % (runtime.description, code)
                if code - 128 in set(signal.Signals):  # not by itself: it handles signals
                    name = signal.Signals(code - 128).name
                    message = "the container process was killed (exit code %d, %s)" % (code, name)
                self._require_python(message, code)
                cause = runtime.likely_cause() or job_log.why_full(os.path.dirname(self.log_path))
                raise job_errors.JobError("ray", ": ".join(filter(None, [message, cause])))
            if code == 0:
                return
            latest = self._container_heartbeat()
            if latest != seen:
                seen, seen_at = latest, clock.now()
            elif seen and clock.now() - seen_at > timeout + heartbeat.SHORTEST:
                message = "the container process does not answer for %d s. Has somebody stopped it?"
                raise job_errors.JobError("ray", message % timeout)
            for name, service_code in self._services.poll() if self._services else ():
                self.mail.send_to_container({"type": "service_ended", "name": name, "code": service_code})

    def _start_sampler(self, runtime: "Runtime") -> None:
        from .samples import Sampler

        self._sampler = Sampler(self, runtime.is_engine)
        self._sampler.start()

    def _require_python(self, message: str, code: int) -> None:
        """Raise a JobError where the runtime has not found container.python in the image."""
        python = self.settings["container"]["python"]
        if code == NO_PROGRAM and any(python in line for line in paths.last_lines(self.log_path, 2)):
            fix = "set container.python to the Python that has Ray, or use an image with python3"
            raise job_errors.JobError("image", "%s: the image has no %s: %s" % (message, python, fix))

    def _container_heartbeat(self) -> int:
        """Time of the container process's last heartbeat; 0: none so far, or it is ending."""
        try:
            return os.stat(os.path.join(self.inside, heartbeat.FILE)).st_mtime_ns
        except OSError:
            return 0

    def heartbeat(self) -> "messages.NodeHeartbeat":
        """The next heartbeat, with the latest sample, if there is a new one. Does not block."""
        message: "messages.NodeHeartbeat" = {"type": "heartbeat", "doing": self.doing, "field": self.field}
        use = self._sampler.take_latest() if self._sampler else None
        if use:
            message["use"] = use
        return message

    def answer_about_gpus(self) -> None:
        """Send whether the node still has the job's GPUs, where it has counted them. Does not block."""
        if self.gpus:
            background_io.start("the check of GPUs", self._send_lost_gpus)

    def collect_evidence(self, number: int) -> None:
        """Write what this node shows of a stalled trainer, in a thread."""
        from . import evidence

        background_io.start("evidence of a stall", lambda: evidence.collect(self, number))

    def _send_lost_gpus(self) -> None:
        from .checks import gpus

        self.send({"type": "gpus", "lost": gpus.find_lost(self)})

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
                "memory": facts.job_memory(self.env, self.memory),
                "addresses": facts.resolved_addresses(self.name),
                "labels": facts.topology_labels(self.env, self.name),
                "runtime": runtime.name,
                "unset": runtime.unset,
                "gpu_masks": runtime.gpu_masks,
                "env_file": self._env_file,
                "node_env": self._node_env,
                "workdir": self.settings["container"]["workdir"] or self.env["SLURM_SUBMIT_DIR"],
            },
        ]

    def _clean_up(self, runtime: "Optional[Runtime]") -> None:
        """Remove everything of the job from this node."""
        from . import job_folder
        from .runtimes.limits import oom_kills

        self.is_cleaning_up = True
        if self._services:
            self._services.stop()
        if self._container:
            self._container.end(CLIENT_WAIT)
        if runtime and self._container and not runtime.remove():
            self.phase("end", "cannot end all processes of %s on %s" % (self.container_name, self.name))
        kills = oom_kills() if self._container else 0
        if kills:  # `slurmray why` looks for this line
            self.log(
                "slurmray: memory ran out: the kernel killed %d of the step's processes (oom_kill)" % kills
            )
        if self._service_logs:
            self._service_logs.finish(SERVICE_LOGS_WAIT)
        if self.folder and self._container:
            self._keep_ray_logs()
        if self.folder and not job_folder.remove(self, runtime.rm if runtime else []):
            self.phase("end", "cannot remove %s on %s" % (self.folder, self.name))

    def _keep_ray_logs(self) -> None:
        """Keep Ray's logs if the job spec wants that. Not for long: the run directory may be slow."""
        from .. import ray_logs

        if not ray_logs.are_kept(self.settings, self.mail.has_succeeded):
            return
        logs = os.path.dirname(self.log_path)

        def keep() -> None:
            try:
                if ray_logs.archive(self.inside, os.path.join(logs, self.name + "-ray.tar.gz")):
                    self.phase("end", "Ray's logs of each node are in %s" % logs)
            except OSError as error:
                self.phase("end", "%s: cannot keep Ray's logs: %s" % (self.name, error))

        background_io.call("Ray's logs", keep, LOGS_WAIT)

    def _has_proxy(self) -> bool:
        names = ("http_proxy", "https_proxy", "all_proxy")
        given = (self.settings["env"], self.job["env"], self._env_file, self._node_env, self.env)
        return any(env.get(name) or env.get(name.upper()) for env in given for name in names)
