"""A running job: starts its steps, handles their messages, signals and time, and ends them."""

import collections
import functools
import os
import stat
import subprocess
import sys

from .. import background_io, command_runner, heartbeat, job_log, loader, parts, paths, script_parts, signals
from ..wire import codec
from . import allocation, run_directory, step_environment
from .decisions import Controller
from .losses import SLURMCTLD
from .outcome import outcome_of
from .step import start_steps

TYPE_CHECKING = False
if TYPE_CHECKING:
    import threading
    from typing import IO, Any, Callable, Dict, List

    from ..loop import Loop
    from ..wire import messages
    from ..wire.settings import Job
    from .allocation import Component
    from .outcome import Outcome
    from .service_steps import ServiceStep
    from .state import Requests
    from .step import Step

LOG_LINES = 15  # last lines of a log that are shown in the job's log
END_WAIT = 15.0  # seconds for all nodes to clean up; then the step gets signals
SIGNAL_WAIT = 10.0  # seconds between these signals
SIGNAL_DELAY = 2.0  # seconds by which Slurm may signal the tasks before the batch script
CANCEL_INTERVAL = 0.5  # seconds between two looks for `slurmray cancel --now`
SERVICE_WAIT = 2.0  # seconds for the steps of services to end after the others
OUTPUT_WAIT = 10.0  # seconds for the rest of the trainer's output
LOST_OUTPUT_WAIT = 2.0  # the same where the head node may be lost, or the trainer has not opened its output
PROGRESS_INTERVAL = 10.0  # seconds between two looks at the job's log and the progress file
END_TIME_INTERVAL = 120.0  # seconds between two questions when Slurm ends the job
LOG_WAIT = 20.0  # seconds, for a log in the run directory
PING_TIMEOUT = 2.0  # seconds for slurmctld
RECORDS_TIMEOUT = 20.0  # seconds for its records of nodes
# With TaskPlugin=task/none, about any --cpu-bind. The story asks for none.
NO_BINDING = b"srun: cluster configuration lacks support for cpu binding\n"


class JobRun:
    """The steps of a job, and the side effects (Actions) of the controller that decides about them.

    text: the script. components: of the job. files: for writes to the run directory.
    """

    def __init__(
        self,
        text: str,
        job: "Job",
        components: "List[Component]",
        log: "job_log.JobLog",
        files: background_io.CallQueue,
        requests: "Requests",
        turns: "Loop",
    ) -> None:
        self.text = text
        self.settings = script_parts.read_start_settings(text, len(job["nodes"]))
        self.job = job
        self.log = log
        self.clock = heartbeat.Clock()
        self.controller = Controller(self.settings, job, log, self, requests)
        self.components = components
        self.requests = requests
        self.loop = turns
        self._steps: "List[Step]" = []
        self.files = files
        self._questions = background_io.CallQueue("questions to slurmctld")
        self._readers: "List[subprocess.Popen[bytes]]" = []
        self._remote_readers: "List[subprocess.Popen[bytes]]" = []  # sruns, on a head node elsewhere
        self._services: "List[ServiceStep]" = []
        self._asking: "Dict[str, threading.Thread]" = {}  # name -> latest thread: see _ask
        self._cancel = heartbeat.Timer(CANCEL_INTERVAL)  # looks for `slurmray cancel --now`
        self._progress = heartbeat.Timer(PROGRESS_INTERVAL)  # looks for the trainer's progress
        self._end_time = heartbeat.Timer(END_TIME_INTERVAL)
        self._end_time.is_due(0.0)  # make_job() has just asked
        # What other threads have found out: functions of the controller, which also get the time.
        self._inbox: "collections.deque[Callable[[float], None]]" = collections.deque()

    def run(self) -> "Outcome":
        """Start one task on every node, handle their messages, and end the step."""
        controller = self.controller
        if self.requests.is_end_requested:  # before the first start, or while it waited for slurmctld
            if self.requests.is_stopping:
                self.log.event("stop")
            return outcome_of(controller.state, self.settings, 0)
        self._steps = start_steps(self.text, self.job, self.components)
        for step in self._steps:  # first: what srun prints explains the messages of tasks that it ends
            self.loop.add(step.errors, functools.partial(self._copy_errors, step))
        for step in self._steps:
            self.loop.add(step.output, functools.partial(self._receive, step))
        self.send({"type": "job", "job": self.job})
        while not controller.may_end(self.clock.now()):
            self._run_once()
        self._end_steps()
        srun_code = max(map(self._wait_for, self._steps))
        state = controller.state
        self._end_output(OUTPUT_WAIT if state.trainer_code is not None else LOST_OUTPUT_WAIT)
        if not (state.failure or self.requests.is_stopping) and state.trainer_code is None:
            # Slurm's SIGTERM may end all tasks before it reaches this process.
            self.loop.turn(SIGNAL_DELAY)
        controller.findings.show()
        for text in controller.gate.not_ready_texts():
            self.log.write("not ready: " + text)
        for name in controller.logs_to_show():
            self._show_log(name)
        return outcome_of(state, self.settings, srun_code)

    def _run_once(self) -> None:
        """Wait for messages and signals, at most half a second, and handle them."""
        self.loop.turn(0.5)
        now, controller = self.clock.now(), self.controller
        for service in self._services:
            code = service.process.poll() if service.process else None
            if code is not None:
                controller.losses.on_service_step_over(service.name, service.nodes, code, now)
        for reader in self._remote_readers:
            code = reader.poll()
            if code:
                controller.losses.on_output_step_over(code, now)
        while self._inbox:
            self._inbox.popleft()(now)
        while self.requests.signals:
            controller.endings.on_signal(self.requests.signals.pop(0), now)
        if self.requests.is_stopping and self._cancel.is_due(now):
            self.files.submit(self._read_cancel)
        if self._progress.is_due(now) and parts.is_needed("watch", self.settings):
            self.files.submit(self._read_progress)
        if self._end_time.is_due(now):
            self._questions.submit(self._read_end_time)
        controller.tick(now)

    def _read_end_time(self) -> None:
        """Ask when Slurm ends the job, and let the nodes know. In a thread, as slurmctld may be slow."""
        allocation.read_records(self.components)
        self.job["end_time"] = allocation.end_time(self.components)
        self.send({"type": "end_time", "end_time": self.job["end_time"]})

    def _read_progress(self) -> None:
        """Look whether the job's log has grown, and when the progress file was changed.

        In a thread, as their file systems may stall: even fstat(2) then does not return.
        """
        output = os.fstat(1)
        if stat.S_ISREG(output.st_mode):
            self._inbox.append(functools.partial(self.controller.on_log_size, output.st_size))
        if not self.settings["watch"]["progress"]:
            return
        try:
            changed = os.stat(paths.host_path(self.settings["watch"]["progress"])).st_mtime
        except FileNotFoundError:
            changed = 0.0
        self._inbox.append(functools.partial(self.controller.on_progress_file, changed))

    def _copy_errors(self, step: "Step", data: bytes) -> None:
        """Copy what srun prints to the log."""
        self.log.copy(data.replace(NO_BINDING, b""), not step.error_decoder.rest)
        for line in step.error_decoder.feed(data):
            self.controller.on_srun_error(line.decode("utf-8", "replace"), step.nodes)

    def _read_cancel(self) -> None:
        """Look whether `slurmray cancel --now` has written into the run directory.

        A file, as Slurm passes on no more signals after scancel (job_signal() of slurmctld/job_mgr.c returns
        ESLURM_ALREADY_DONE). Opening it makes a network file system look again.
        """
        with open(os.path.join(self.job["run_dir"], paths.CANCEL_NOW)) as file:
            self.requests.is_grace_over = bool(file.read(1))

    def _receive(self, step: "Step", data: bytes) -> None:
        """Handle the messages of a step, or its end."""
        now, controller = self.clock.now(), self.controller
        for line in step.decoder.feed(data):
            try:
                message = codec.decode(line)
            except codec.ProtocolError as error:
                self.log.write(str(error))
                continue
            if message:
                controller.on_message(message, now)
                # The first one is the node agent's: nothing runs in a container yet.
                if message["type"] == "started" and not step.number and str(message.get("step")).isdigit():
                    step.number = message["step"]
            else:
                self.log.write(line.decode("utf-8", "replace"))
        if not data:
            step.has_ended = True
            controller.losses.on_step_over(step.nodes, now)

    def _end_steps(self) -> None:
        """Have every node clean up by closing its input; wait for the steps to end, not for lost nodes."""
        controller = self.controller
        controller.begin_end()
        if controller.state.trainer_code == 0 and not controller.state.failure:
            self.send({"type": "succeeded"})
        for step in self._steps:
            step.outbox.close()
        due, signals = self.clock.now() + END_WAIT, ["TERM", "KILL"]
        while not controller.losses.is_step_over:
            self._run_once()
            now = self.clock.now()
            running = [step for step in self._steps if not step.has_ended]
            if controller.have_all_nodes_ended() or (now > due and not signals):
                for step in running:
                    step.process.kill()  # every node that can clean up has done so, or had its time
            elif now > due:
                # Not to srun: it would have all tasks killed before they can clean up.
                for step in running:
                    if step.number:
                        name = "%s.%s" % (step.job, step.number)
                        command_runner.run_slurm(["scancel", "--signal=" + signals[0], name], 10)
                signals, due = signals[1:], now + SIGNAL_WAIT
        for service in self._services:
            if service.process:
                _end(service.process, SERVICE_WAIT)  # the node agents have ended its tasks

    def _wait_for(self, step: "Step") -> int:
        """Copy the rest of what an srun prints, and return its exit code."""
        while True:
            code = step.process.poll()
            if not self.loop.turn(0.1 if code is None else 0) and code is not None:
                return code

    def _end_output(self, seconds: float) -> None:
        """Wait for the rest of the trainer's output: it is complete once the container has ended."""
        for reader in self._readers:
            _end(reader, seconds)

    def _show_log(self, name: str) -> None:
        path = os.path.join(self.job["run_dir"], "logs", name + ".log")
        lines: "List[str]" = []
        background_io.call("a node's log", lambda: lines.extend(paths.last_lines(path, LOG_LINES)), LOG_WAIT)
        lines = [line for line in lines if line != name]  # a node's log begins with its name
        if lines:
            self.log.write("last lines of %s:" % path)
            self.log.write_raw("".join(line + "\n" for line in lines))

    # -- actions -----------------------------------------------------------------------------------------

    def send(self, message: "messages.ToNodes") -> None:
        data = codec.encode(message)
        for step in self._steps:
            step.outbox.send(data)

    def read_trainer_output(self, folder: str) -> None:
        """Start processes that copy the trainer's output. Slurm and runtimes would buffer it."""
        program = loader.split_sections(script_parts.read_agent(self.text))["controller/copy_output.py"]
        ignored = ["TERM", *signals.NAMES.split()]  # after scancel the trainer still has its grace period
        for name, target in (("out", 1), ("err", 2)):
            path, source = os.path.join(folder, "inside", name), None
            if self.job["nodes"][0] != self.job["batch_host"]:
                source, path = self._read_elsewhere(path), "/dev/stdin"
            argv = [sys.executable, "-I", "-S", "-c", program, path, *ignored]
            self._readers.append(subprocess.Popen(argv, stdin=source or subprocess.DEVNULL, stdout=target))

    def _read_elsewhere(self, fifo: str) -> "IO[bytes]":
        """Start a step that reads a FIFO of the head node, where that is another host; return its output."""
        argv = script_parts.story_command(self.text, "read_output", self.job["nodes"][0], fifo)
        env = step_environment.step_environment(os.environ, self.text, self.components[0].record)
        reader = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, env=env)
        self._readers.append(reader)
        self._remote_readers.append(reader)
        assert reader.stdout
        return reader.stdout

    def find_ended_jobs(self, node: str, jobs: "List[str]") -> None:
        def find() -> None:
            active = command_runner.active_jobs(jobs, lambda argv: command_runner.run_slurm(argv, 20))
            ended = [] if active is None else [job for job in jobs if job not in active]
            self.send({"type": "ended_jobs", "node": node, "jobs": ended})

        self._questions.submit(find)

    def find_answers(self, addresses: "Dict[str, List[str]]") -> None:
        def find() -> None:
            from .. import hosts

            own = hosts.reachable_addresses()  # others may have some of these, too, e.g. of a bridge
            asked = {
                node: [address for address in given if address not in own or node == self.job["batch_host"]]
                for node, given in addresses.items()
            }
            answers = hosts.find_answering(asked, self.job["slurmd_port"], heartbeat.ASK_INTERVAL)
            if not answers and command_runner.run_slurm(["scontrol", "ping"], PING_TIMEOUT).code == 0:
                answers = {SLURMCTLD}
            for host in answers:
                self._inbox.append(functools.partial(self.controller.losses.on_answer, host))

        self._ask("questions to hosts", find)

    def find_connections(self) -> None:
        def find() -> None:
            from .. import hosts

            try:
                found = [hosts.connected_addresses(step.process.pid) for step in self._steps]
            except OSError:  # an srun has ended
                return
            addresses = set().union(*found)
            self._inbox.append(functools.partial(self.controller.losses.on_connections, addresses))

        self._ask("srun's connections", find)

    def find_node_records(self, nodes: "List[str]") -> None:
        def find() -> None:
            argv = ["scontrol", "--oneliner", "show", "node", ",".join(nodes)]
            done = command_runner.run_slurm(argv, RECORDS_TIMEOUT)
            if done.code == 0:
                self._inbox.append(functools.partial(self.controller.losses.on_node_records, done.out))

        self._ask("questions about nodes", find)

    def _ask(self, name: str, find: "Callable[[], None]") -> None:
        """Call a function in a thread, unless the last one with that name still runs."""
        if name not in self._asking or not self._asking[name].is_alive():
            self._asking[name] = background_io.start(name, find)

    def start_services(self, folder: str) -> None:
        if parts.is_needed("pyxis", self.settings):
            from .service_steps import list_steps

            record = self.components[0].record
            self._services = list(list_steps(self.text, self.settings, self.job, record, folder))
            for step in self._services:
                self.files.submit(step.start)  # the run directory may be slow

    def write_heartbeat_file(self) -> None:
        self.files.submit(functools.partial(run_directory.write_heartbeat, self.job["run_dir"]))

    def write_usage(self, nodes: "Dict[str, Dict[str, Any]]") -> None:
        self.files.submit(functools.partial(run_directory.write_usage, self.job["run_dir"], nodes))
        if self.settings["ray"]["metrics"]:
            from . import metrics

            text = metrics.as_text(nodes, self.job)
            self.files.submit(functools.partial(run_directory.write_metrics, self.job["run_dir"], text))

    def mark_done(self, name: str) -> None:
        self.job["done_before"].append(name)  # for a restart
        path = os.path.join(self.job["run_dir"], "prepared-" + name)
        self.files.submit(lambda: job_log.append(path, ""))


def _end(process: "subprocess.Popen[bytes]", seconds: float) -> None:
    """Wait for the end of a process, at most so many seconds, and kill it then."""
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.kill()
