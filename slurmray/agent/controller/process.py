"""The controller's process in the batch script, on the head node: step, signals, run directory, output."""

import functools
import os
import signal
import subprocess
import sys
import threading
import traceback
import zlib

from .. import (
    background_io,
    commands,
    errors,
    heartbeat,
    inherited,
    job_log,
    loader,
    loop,
    paths,
    script,
    signals,
)
from ..nodes import places
from ..wire import codec
from . import job_record, run_directory, step_environment
from .decisions import SLURMCTLD, Actions, Controller
from .outcome import Outcome, outcome_of
from .state import Requests
from .step import Step

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List, Optional

    from ..wire import messages
    from ..wire.settings import Group, Job

LOG_LINES = 15  # last lines of a log that are shown in the job's log
END_WAIT = 15.0  # seconds for all nodes to clean up; then the step gets signals
SIGNAL_WAIT = 10.0  # seconds between these signals
SIGNAL_DELAY = 2.0  # seconds by which Slurm may signal the tasks before the batch script
CANCEL_INTERVAL = 0.5  # seconds between two looks for `slurmray cancel --now`
SERVICE_WAIT = 2.0  # seconds for the steps of services to end after the others
OUTPUT_WAIT = 10.0  # seconds for the rest of the trainer's output
SLURMD_PORT = 6818  # Slurm's default
CONNECT_TIMEOUT = 1.0  # seconds
PING_TIMEOUT = 2.0  # seconds for slurmctld
CLEAN_UP_TIME = 7  # seconds of KillWait that remain for clean-up after the grace period
# Files of the agent that are not sent to nodes: srun sends its input in pieces of 1 KiB, each to every node.
CONTROLLER_ONLY = ("controller/", "wire/messages.py", "wire/settings.py")


def run_controller(text: str, nodes: "List[str]", started: float) -> int:
    """Run the job to its end and return its exit code.

    text: the script. nodes: their names, the head node first. started: time.time() when the batch script
    began.
    """
    inherited.add_account(os.environ)
    inherited.raise_soft_limits()
    return ControllerProcess(text, nodes, started).run()


class ControllerProcess(Actions):
    """The controller with its side effects."""

    def __init__(self, text: str, nodes: "List[str]", started: float) -> None:
        self.text = text
        self.settings = script.settings_of(text)
        self.nodes = nodes
        self.started = started
        self.log = job_log.JobLog(started)
        self.clock = heartbeat.Clock()
        self.requests = Requests()
        self.job: "Optional[Job]" = None
        self._records: "List[str]" = []  # of each component of the job, see job_record; "": unknown
        self._steps: "List[Step]" = []
        self._files = background_io.CallQueue()  # for writes to the run directory
        self._requests = background_io.CallQueue()  # to slurmctld
        self._readers: "List[subprocess.Popen[bytes]]" = []
        self._services: "Dict[str, subprocess.Popen[bytes]]" = {}  # steps of services, by name
        self._signals: "List[str]" = []  # names of signals for the trainer
        self._asking: "Optional[threading.Thread]" = None  # asks hosts whether they answer
        self._answers: "List[str]" = []  # of these
        self._next_look = 0.0  # for `slurmray cancel --now`, by the clock
        self._loop = loop.Loop(self._signals.append)
        self._loop.catch(signal.SIGTERM, lambda: setattr(self.requests, "is_stopping", True))
        self._loop.catch(signals.WARNING, lambda: setattr(self.requests, "is_time_up", True))

    def run(self) -> int:
        """Run the job and return its exit code."""
        try:
            self.job = self.make_job()
            self.make_run_directory()
            outcome = self.run_step()
        except errors.JobError as error:
            outcome = self._outcome_of(error)
        except Exception as error:
            traceback.print_exc()
            text = "%s: %s. Please report it with the lines above" % (type(error).__name__, error)
            outcome = self._outcome_of(errors.JobError("internal", text))
        self.log.event(
            "end",
            exit_code=outcome.code,
            source=outcome.source,
            kind=outcome.kind,
            node=outcome.node,
            text=outcome.text,
        )
        self._files.finish(job_log.FLUSH_SECONDS)
        self.log.finish()
        if self.job and script.has_function(self.text, "site_epilogue"):
            argv = script.story_command(self.text, "site_epilogue", self.job["run_dir"], str(outcome.code))
            subprocess.call(argv, stdin=subprocess.DEVNULL)
        return outcome.code

    # -- before the step ---------------------------------------------------------------------------------

    def make_job(self) -> "Job":
        """Describe this attempt. JobError where the allocation does not fit the script."""
        settings, env = self.settings, os.environ
        environments = self._environments()
        for component, (group, each) in enumerate(zip(settings["groups"], environments)):
            if component:  # the story has found those of the first one
                argv = ["scontrol", "show", "hostnames", each["SLURM_JOB_NODELIST"]]
                self.nodes += _output_of(argv, 20).split()
            self._check_group(group, each)
        count = sum(group["nodes"] for group in settings["groups"])
        if len(self.nodes) != count:
            text = "scontrol show hostnames found %d nodes, the script is for %d. See its messages above"
            raise errors.JobError("config", text % (len(self.nodes), count))
        missing = [name for name in settings["env_from_submitter"] if name not in env]
        if missing:
            text = "env.%s is not set where the job was submitted: export it and run sbatch again"
            raise errors.JobError("config", text % missing[0])
        number = env["SLURM_JOB_ID"]
        shown = _output_of(["scontrol", "show", "job", number], 20)
        self._records = [job_record.record_of(shown, each["SLURM_JOB_ID"]) for each in environments]
        config = self._slurm_config()
        attempt = job_record.restarts(self._records[0])
        if attempt is None:
            attempt = int(env.get("SLURM_RESTART_COUNT", "0"))
        run_dir = paths.expand_in_batch("run_dir", settings["run_dir"])
        return {
            "id": number,
            "name": env.get("SLURM_JOB_NAME", ""),
            "name_for_commands": self._name_for_commands(number),
            "attempt": attempt,
            "chances": 0,
            "nodes": self.nodes,
            "cpus": [_cpus(*each) for each in zip(settings["groups"], environments)],
            "grace": self._grace(config),
            "slurmd_port": int(config.get("SlurmdPort", "").partition("-")[0] or SLURMD_PORT),
            "run_dir": os.path.join(paths.host_path(run_dir), "%s-%d" % (number, attempt)),
            "log_file": os.readlink("/proc/self/fd/2"),
            "mark": os.urandom(16).hex(),
            "token": os.urandom(32).hex(),
            "started": self.started,
            "env": {name: env[name] for name in settings["env_from_submitter"]},
            "done_before": [],
            "commit": "",
        }

    def _environments(self) -> "List[Dict[str, str]]":
        """The environment of each component of the job."""
        count = len(self.settings["groups"])
        if count == 1:
            return [dict(os.environ)]
        return [step_environment.of_component(os.environ, number) for number in range(count)]

    def _check_group(self, group: "Group", env: "Dict[str, str]") -> None:
        """Check that the allocation has the nodes and CPUs of a group; JobError."""
        nodes, cpus = int(env["SLURM_JOB_NUM_NODES"]), _cpus(group, env)
        place = " in group " + group["name"] if group["name"] else ""
        for name, found, wanted, option in (
            ("node", nodes, group["nodes"], "--nodes"),
            ("CPU", cpus, group["cpus_per_node"] or cpus, "--cpus-per-task"),
        ):
            if found == wanted:
                continue
            fix = "%s %s %d" % (self.settings["render_again"], option, found)
            if place:
                fix = "give sbatch no options for it"
            text = "the allocation has %s%s, the script is for %d: %s"
            raise errors.JobError("config", text % (job_log.counted(found, name), place, wanted, fix))

    def _name_for_commands(self, number: str) -> str:
        """The job for scancel and scontrol: ARRAY_TASK for a task of an array; its id may mean all tasks."""
        if "SLURM_ARRAY_TASK_ID" in os.environ and not self._records[0]:
            text = (
                "scontrol does not show the job %s, a task of an array. Check slurmctld, and submit it again"
            )
            raise errors.JobError("config", text % number)
        return job_record.array_task(self._records[0]) or number

    @staticmethod
    def _slurm_config() -> "Dict[str, str]":
        """slurm.conf, as slurmctld shows it."""
        lines = _output_of(["scontrol", "show", "config"], 10).splitlines()
        pairs = (line.partition("=") for line in lines)
        return {name.strip(): value.strip() for name, _, value in pairs}

    def _grace(self, config: "Dict[str, str]") -> int:
        """The grace period in seconds, shortened so that clean-up ends before KillWait does."""
        wanted, kill_wait = self.settings["stop"]["grace"], int(config.get("KillWait", "30").split()[0])
        grace = max(0, min(wanted, kill_wait - CLEAN_UP_TIME))
        if grace != wanted:
            self.log.event("grace", seconds=grace, kill_wait=kill_wait)
        return grace

    def make_run_directory(self) -> None:
        """Make the run directory of this attempt, with the mark by which nodes recognize it."""
        job = self._job()
        run_dir = job["run_dir"]
        cluster = os.environ.get("SLURM_CLUSTER_NAME", "")
        earlier = run_directory.make(job, os.environ["SLURM_SUBMIT_DIR"], cluster)
        self.log.open(run_dir)
        self.log.event(
            "start",
            job=job["id"],
            attempt=job["attempt"],
            nodes=self.nodes,
            nodes_text=job_log.counted(len(self.nodes), "node"),
            components=[group["nodes"] for group in self.settings["groups"]],
            ray_nodes=0 if self.settings["only_checks"] else self.settings["ray"]["nodes"],
            head=self.nodes[0],
            run_dir=run_dir,
        )
        if self.settings["checks"]["same_commit"]:
            path = paths.expand_in_batch("checks.same_commit", self.settings["checks"]["same_commit"])
            job["commit"] = commands.commit_of(paths.host_path(path))
        self._count_attempts(job, earlier)

    def _count_attempts(self, job: "Job", earlier: "List[str]") -> None:
        """Set what depends on earlier attempts. earlier: their run directories."""
        requeue = self.settings["requeue"]
        names = [name for path in earlier for name in os.listdir(path)]
        prefix = "prepared-"
        job["done_before"] = sorted({name[len(prefix) :] for name in names if name.startswith(prefix)})
        if not (requeue["max"] or requeue["exit_code"]):
            return
        job["chances"] = requeue["max"] - job["attempt"] + names.count("requeue-requested")
        if job["attempt"]:
            self.log.event("attempt", attempt=job["attempt"], chances=job["chances"])
        if job["chances"] < 0:
            text = "Slurm has restarted the job %d times; requeue.max is %d. See the logs of earlier attempts"
            raise errors.JobError("node_lost", text % (job["attempt"], requeue["max"]))

    # -- the step ----------------------------------------------------------------------------------------

    def run_step(self) -> "Outcome":
        """Start one task on every node, handle their messages, and end the step."""
        job = self._job()
        controller = Controller(self.settings, job, self.log, self, self.requests)
        self._start_steps()
        for step in self._steps:  # first: what srun prints explains the messages of tasks that it ends
            self._loop.add(step.errors, functools.partial(self._copy_errors, step, controller))
        for step in self._steps:
            self._loop.add(step.output, functools.partial(self._receive, step, controller))
        self.send({"type": "job", "job": job})
        while not controller.is_over(self.clock.now()):
            self._run_once(controller)
        self._end_steps(controller)
        srun_code = max(self._wait_for(step) for step in self._steps)
        state = controller.state
        self._end_output(state.trainer_code is None)
        if not (state.failure or self.requests.is_stopping) and state.trainer_code is None:
            # Slurm's SIGTERM may end all tasks before it reaches this process.
            self._loop.turn(SIGNAL_DELAY)
        controller.findings.show()
        for text in controller.not_ready_texts():
            self.log.write("not ready: " + text)
        for name in controller.logs_to_show():
            self._show_log(name)
        outcome = outcome_of(state, self.settings, srun_code)
        reason = controller.restart_reason(outcome)
        if reason:
            self._restart(reason, controller.is_requeue_requested())
        return outcome

    def _start_steps(self) -> None:
        settings, job = self.settings, self._job()
        options = ["--no-kill"] if settings["on_node_loss"] == "continue" else []
        options += self._container_options(settings["container"]["image"])
        agent = script.agent_of(self.text)
        text = self.text.replace(agent, loader.remove_sections(agent, CONTROLLER_ONLY))
        data = zlib.compress(text.encode("utf-8", "surrogateescape"))
        first = 0
        for number, environment in enumerate(self._environments()):
            nodes = job["nodes"][first : first + settings["groups"][number]["nodes"]]
            first += len(nodes)
            counts = [str(len(nodes)), str(job["cpus"][number])]
            group = ["--het-group=%d" % number] if len(settings["groups"]) > 1 else []
            argv = script.story_command(self.text, "start_step", *counts, *group, *options)
            env = step_environment.step_environment(environment, self.text, self._records[number], number)
            env["SLURM_JOB_ID"] = job["id"]  # srun refuses the id of a component
            env["SLURMRAY_SETUP"] = settings["setup"]  # for a node where only `setup` provides a Python
            name = environment["SLURM_JOB_ID"] if number else job["name_for_commands"]
            step = Step(argv, env, name, nodes)
            step.outbox.send(data)
            self._steps.append(step)

    def _container_options(self, image: str) -> "List[str]":
        """Options of a step whose tasks srun may start in a container."""
        settings = self.settings
        if settings["container"]["runtimes"] != ["pyxis"]:
            return settings["container"]["step_args"]
        from ..node.runtimes import pyxis

        return pyxis.step_options(settings, self._job(), image)

    def _run_once(self, controller: Controller) -> None:
        """Wait for messages and signals, at most half a second, and handle them."""
        self._loop.turn(0.5)
        now = self.clock.now()
        for name, service in list(self._services.items()):
            code = service.poll()
            if code is not None:
                controller.on_service_step_over(name, code, now)
        while self._answers:
            controller.on_answer(self._answers.pop(0), now)
        while self._signals:
            controller.on_signal(self._signals.pop(0), now)
        if self.requests.is_stopping and now >= self._next_look:
            self._next_look = now + CANCEL_INTERVAL
            self._files.submit(self._read_cancel)
        controller.tick(now)

    def _copy_errors(self, step: Step, controller: Controller) -> None:
        """Copy what srun prints to the log."""
        data, lines = step.read_errors()
        if not data:
            self._loop.remove(step.errors)
        self.log.write_raw(data.decode("utf-8", "surrogateescape"))
        for line in lines:
            controller.on_srun_error(line.decode("utf-8", "replace"), step.nodes)

    def _read_cancel(self) -> None:
        """Look whether `slurmray cancel --now` has written into the run directory.

        A file, as Slurm passes on no more signals after scancel (job_signal() of slurmctld/job_mgr.c returns
        ESLURM_ALREADY_DONE). Opening it makes a network file system look again.
        """
        with open(os.path.join(self._job()["run_dir"], paths.CANCEL_NOW)) as file:
            self.requests.is_grace_over = bool(file.read(1))

    def _receive(self, step: Step, controller: Controller) -> None:
        """Handle the messages of a step, or its end."""
        now = self.clock.now()
        for line in step.read():
            self._handle(line, step, controller, now)
        if step.is_over:
            self._loop.remove(step.output)
            controller.on_step_over(step.nodes, now)

    @staticmethod
    def _handle(line: bytes, step: Step, controller: Controller, now: float) -> None:
        try:
            message = codec.decode(line)
        except codec.ProtocolError as error:
            controller.on_output(str(error))
            return
        if message:
            controller.on_message(message, now)
            if message["type"] == "started" and str(message.get("step")).isdigit():
                step.number = message["step"]
        else:
            controller.on_output(line.decode("utf-8", "replace"))

    def _end_steps(self, controller: Controller) -> None:
        """Have every node clean up by closing its input; wait for the steps to end, not for lost nodes."""
        controller.begin_end()
        if controller.state.trainer_code == 0 and not controller.state.failure:
            self.send({"type": "succeeded"})
        for step in self._steps:
            step.outbox.close()
        due, signals = self.clock.now() + END_WAIT, ["TERM", "KILL"]
        while not controller.is_step_over:
            self._run_once(controller)
            now = self.clock.now()
            running = [step for step in self._steps if not step.is_over]
            if controller.have_all_nodes_ended() or (now > due and not signals):
                for step in running:
                    step.process.kill()  # every node that can clean up has done so, or had its time
            elif now > due:
                # Not to srun: it would have all tasks killed before they can clean up.
                for step in running:
                    if step.number:
                        name = "%s.%s" % (step.job, step.number)
                        _output_of(["scancel", "--signal=" + signals[0], name], 10)
                signals, due = signals[1:], now + SIGNAL_WAIT
        for service in list(self._services.values()):
            try:
                service.wait(SERVICE_WAIT)  # the node agents have ended its tasks
            except subprocess.TimeoutExpired:
                service.kill()

    def _wait_for(self, step: Step) -> int:
        """Copy the rest of what an srun prints, and return its exit code."""
        while True:
            code = step.process.poll()
            if not self._loop.turn(0.1 if code is None else 0) and code is not None:
                return code

    def _end_output(self, is_lost: bool) -> None:
        """Wait for the rest of the trainer's output: it is complete once the container has ended."""
        for reader in self._readers:
            if is_lost:
                reader.kill()
            try:
                reader.wait(OUTPUT_WAIT)
            except subprocess.TimeoutExpired:
                reader.kill()

    def _restart(self, reason: str, is_requested: bool) -> None:
        """Requeue the job; Slurm then ends this process. is_requested: by the trainer."""
        job = self._job()
        if is_requested:
            try:
                path = os.path.join(job["run_dir"], "requeue-requested")
                open(path, "w", opener=paths.own_file).close()
            except OSError:
                self.log.write(
                    "cannot write to %s: the next attempt counts against requeue.max" % job["run_dir"]
                )
        self.log.event("requeue", reason=reason, attempt=job["attempt"] + 1)
        done = commands.run_slurm(["scontrol", "requeue", job["name_for_commands"]], 20)
        if done.code:
            self.log.write("scontrol requeue exited with %d: %s" % (done.code, done.err.strip() or done.why))

    def _show_log(self, name: str) -> None:
        path = os.path.join(self._job()["run_dir"], "logs", name + ".log")
        lines = paths.last_lines(path, LOG_LINES)
        if lines:
            self.log.write("last lines of %s:" % path)
            self.log.write_raw("".join(line + "\n" for line in lines))

    def _outcome_of(self, error: errors.JobError) -> "Outcome":
        if self.requests.is_stopping:  # it failed because Slurm is ending the job
            return Outcome.stopped()
        return Outcome.failed(error.kind, "", error.message)

    # -- actions -----------------------------------------------------------------------------------------

    def send(self, message: "messages.ToNodes") -> None:
        data = codec.encode(message)
        for step in self._steps:
            step.outbox.send(data)

    def read_trainer_output(self, folder: str) -> None:
        """Start processes that copy the trainer's output. Slurm and runtimes would buffer it."""
        program = loader.split_sections(script.agent_of(self.text))["controller/copy_output.py"]
        ignored = ["TERM", *signals.NAMES.split()]  # after scancel the trainer still has its grace period
        for name, target in (("out", 1), ("err", 2)):
            path = os.path.join(folder, "inside", name)
            argv = [sys.executable, "-I", "-S", "-c", program, path, *ignored]
            self._readers.append(subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=target))

    def find_ended_jobs(self, node: str, jobs: "List[str]") -> None:
        def find() -> None:
            active = commands.active_jobs(jobs, lambda argv: commands.run_slurm(argv, 20))
            ended = [] if active is None else [job for job in jobs if job not in active]
            self.send({"type": "ended_jobs", "node": node, "jobs": ended})

        self._requests.submit(find)

    def find_answers(self, addresses: "Dict[str, List[str]]") -> None:
        def find() -> None:
            from .. import hosts

            found = hosts.answering(addresses, self._job()["slurmd_port"], CONNECT_TIMEOUT)
            if not found and commands.run_slurm(["scontrol", "ping"], PING_TIMEOUT).code == 0:
                found = {SLURMCTLD}
            self._answers.extend(found)

        if not (self._asking and self._asking.is_alive()):
            self._asking = threading.Thread(target=find, daemon=True)
            self._asking.start()

    def start_services(self, folder: str) -> None:
        if self.settings["container"]["runtimes"] == ["pyxis"]:
            for service in self.settings["services"]:
                if service.get("image"):
                    self._start_service(service, folder)

    def _start_service(self, service: "Dict[str, Any]", folder: str) -> None:
        """Start the step of a service with an image of its own: see start_service in the story."""
        settings, job, name = self.settings, self._job(), service["name"]
        nodes = places(service["where"], self.nodes, settings["ray"]["nodes"])
        options = ["--nodelist=" + ",".join(nodes)]
        if settings["on_node_loss"] == "continue":
            options += ["--no-kill", "--kill-on-bad-exit=0"]
        options += self._container_options(service["image"])
        logs = os.path.join(job["run_dir"], "logs")
        argv = script.story_command(
            self.text, "start_service", str(len(nodes)), str(job["cpus"][0]), folder, name, logs, *options
        )
        env = step_environment.step_environment(os.environ, self.text, self._records[0])

        def start() -> None:
            with open(os.path.join(logs, "service-%s.log" % name), "ab", opener=paths.own_file) as log:
                self._services[name] = subprocess.Popen(
                    argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=env
                )

        self._files.submit(start)  # the run directory may be slow

    def write_heartbeat_file(self) -> None:
        path = os.path.join(self._job()["run_dir"], "heartbeat")
        text = "%.1f\n" % self.clock.now()

        def write() -> None:
            with open(path, "w", opener=paths.own_file) as file:
                file.write(text)

        self._files.submit(write)

    def mark_done(self, name: str) -> None:
        path = os.path.join(self._job()["run_dir"], "prepared-" + name)
        self._files.submit(lambda: job_log.append(path, ""))

    # -- helpers -----------------------------------------------------------------------------------------

    def _job(self) -> "Job":
        assert self.job
        return self.job


def _cpus(group: "Group", env: "Dict[str, str]") -> int:
    """CPUs of each node of a component: --cpus-per-task, or the fewest that one has. env: its variables."""
    given = env.get("SLURM_CPUS_PER_TASK")
    if given and group["cpus_per_node"]:  # else it is not this job's
        return int(given)
    counts = env["SLURM_JOB_CPUS_PER_NODE"].split(",")  # e.g. 72(x2),36
    return min(int(count.partition("(")[0]) for count in counts)


def _output_of(argv: "List[str]", seconds: float) -> str:
    """Standard output of a command of Slurm; "" where it fails to run."""
    done = commands.run_slurm(argv, seconds)
    return "" if done.code == commands.TIMEOUT else done.out
