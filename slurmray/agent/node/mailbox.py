"""The main thread of the node agent: messages, signals and heartbeats. It never blocks on anything else."""

import os
import signal
import threading
import time

from .. import background_io, heartbeat, job_errors, loop
from ..wire import codec

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List, Optional, Protocol, Set  # novermin

    from ..wire import messages
    from ..wire.settings import Job, Settings
    from .detached_process import DetachedProcess

    class Owner(Protocol):
        """The node agent as its mailbox uses it."""

        name: str
        env: Dict[str, str]
        settings: Settings

        def heartbeat(self) -> messages.NodeHeartbeat:
            """The next heartbeat."""

        def answer_about_gpus(self) -> None:
            """Send whether the node still has the job's GPUs."""

        def collect_evidence(self, number: int) -> None:
            """Write what this node shows of a stalled trainer."""


ANSWER_WAIT = 30.0  # seconds for the controller's answer about leftovers


class Mailbox:
    """Passes messages between the controller, the thread that does the work of a node, and its container.

    node: the agent of that node. rest: bytes of messages read along with the script.
    """

    def __init__(self, node: "Owner", rest: bytes) -> None:
        self.clock = heartbeat.Clock()
        self._node = node
        self._rest = rest
        self._decoder = codec.LineDecoder()
        self._messages = background_io.PipeWriter(os.dup(1))
        timeout = node.settings["timeouts"]["heartbeat"]
        self._heartbeat = heartbeat.Timer(heartbeat.interval(timeout))
        self._monitor = heartbeat.Monitor(timeout)  # of the head node
        self._record_message()
        self._asking: "Optional[threading.Thread]" = None  # asks the head node's host whether it answers
        self._answers: "List[str]" = []  # of that host
        self._is_input_over = False
        self._is_orphan = False  # there are no heartbeats from the controller
        self._is_stop_requested = False  # Slurm sent SIGTERM
        self._signals: "List[str]" = []  # names of others
        self._loop = loop.Loop(self._signals.append)
        self._loop.catch(signal.SIGTERM, lambda: setattr(self, "_is_stop_requested", True))
        self._own_messages: "Dict[str, Callable[[Any], None]]" = {  # the others go on
            "job": self._on_job,
            "ended_jobs": self._on_ended_jobs,
            "heartbeat": self._record_message,
        }
        self._changed = threading.Condition()  # guards the fields below, which both threads use
        self.job: "Optional[Job]" = None
        self.is_stopped = False  # this node is to clean up and exit
        self.has_succeeded = False  # the trainer exited with 0
        self._ended_jobs: "Optional[Set[str]]" = None  # the controller's answer
        self._container: "Optional[DetachedProcess]" = None
        self._waiting: "List[bytes]" = []  # messages for a container that has not started

    # -- the main thread ---------------------------------------------------------------------------------

    def run(self, work: "Callable[[], None]") -> bool:
        """Run until the work is done and the controller has closed the input; return whether it is lost.

        work: the work of the node, for another thread.
        """
        self.send({"type": "started", "step": os.environ.get("SLURM_STEP_ID", "")})
        worker = background_io.start("the work of the node", work)
        if self._rest:
            self._receive(self._rest)
        self._loop.add(0, self._receive)
        while worker.is_alive() or not (self._is_input_over or self._is_orphan):
            self._loop.turn(0.5)
            self._handle_signals()
            self._check_heartbeats()
        return self._is_orphan

    def close(self) -> None:
        """Wait until all messages are sent, for at most a second."""
        self._messages.close(1.0)

    def find_answering_head(self, seconds: float = 3.0) -> "Set[str]":
        """{"head"} if the head node's host answers to a new connection within so many seconds."""
        from .. import hosts

        assert self.job
        address = self._node.env.get("SLURM_LAUNCH_NODE_IPADDR") or self.job["batch_host"]
        return hosts.find_answering({"head": [address]}, self.job["slurmd_port"], seconds)

    def _receive(self, data: bytes) -> None:
        """Handle messages of the controller, or their end."""
        for line in self._decoder.feed(data):
            self._record_message()
            message = codec.decode(line)
            if not message:
                continue
            handle = self._own_messages.get(message["type"])
            if handle:
                handle(message)
            else:
                self._record_progress(message)
                self._forward(line + b"\n")
        if not data:
            self._is_input_over = True
            self._stop()

    def _record_message(self, _message: "object" = None) -> None:
        self._monitor.record("head", self.clock.now())

    def _on_job(self, message: "messages.StartOfJob") -> None:
        with self._changed:
            self.job = message["job"]
            self._changed.notify_all()

    def _on_ended_jobs(self, message: "messages.EndedJobs") -> None:
        with self._changed:
            if message["node"] == self._node.name:
                self._ended_jobs = set(message["jobs"])
                self._changed.notify_all()

    def _record_progress(self, message: "Any") -> None:
        """Keep what this node has to know of messages that go on, and do its part of them."""
        kind = message["type"]
        self.has_succeeded = self.has_succeeded or kind == "succeeded"
        if kind == "check_health":
            self._node.answer_about_gpus()
        elif kind == "collect_evidence":
            self._node.collect_evidence(message["number"])

    def _handle_signals(self) -> None:
        while self._signals:  # all nodes get them, but only one is to send them
            name = self._signals.pop(0)
            if self.job and self.job["nodes"][0] == self._node.name:
                self.send({"type": "signal", "name": name})
        if not self._is_stop_requested:
            return
        self._is_stop_requested = False
        self.send({"type": "stop_requested"})
        if self._container and self.job:  # the trainer gets the stop signal and its grace period
            self.send_to_container({"type": "stop", "seconds": self.job["grace"]})
        else:
            self._stop()

    def _check_heartbeats(self) -> None:
        now = self.clock.now()
        if self._heartbeat.is_due(now):
            self.send(self._node.heartbeat())
        if self._is_input_over or not self._monitor.overdue(now):
            return
        while self._answers:
            self._monitor.host_answers(self._answers.pop(), now)
        if self.job and not (self._asking and self._asking.is_alive()):
            self._asking = background_io.start("questions to the head node", self._ask_head)
        if self._monitor.lost(now):
            self._is_orphan = True
            self._stop()

    def _ask_head(self) -> None:
        self._answers.extend(self.find_answering_head(heartbeat.ASK_INTERVAL))
        time.sleep(heartbeat.ASK_INTERVAL)  # until it is asked again

    def _stop(self) -> None:
        with self._changed:
            self.is_stopped = True
            self._changed.notify_all()

    # -- for both threads --------------------------------------------------------------------------------

    def send(self, message: "messages.ToController") -> None:
        """Send a message to the controller."""
        self._messages.send(codec.encode_to_controller(message, self._node.name))

    def send_to_container(self, message: "messages.ToContainer") -> None:
        """Send a message to the container process, which may not have been started."""
        self._forward(codec.encode(message))

    def _forward(self, line: bytes) -> None:
        with self._changed:
            if self._container:
                self._container.send(line)
            else:
                self._waiting.append(line)

    # -- for the thread that works -----------------------------------------------------------------------

    def announce_end(self) -> None:
        """Have the main thread look whether this thread has ended."""
        self._loop.wake()

    def connect(self, container: "DetachedProcess", first: "List[messages.ToContainer]") -> None:
        """Send the container process its first messages, those that have waited for it, and later ones."""
        with self._changed:
            for line in [*map(codec.encode, first), *self._waiting]:
                container.send(line)
            self._container = container

    def wait_until(self, is_met: "Callable[[], object]", seconds: float = float("inf")) -> None:
        """Wait until a condition is met, at most so many seconds. Raises job_errors.Stopped.

        is_met: of fields that the main thread changes.
        """
        due = time.monotonic() + seconds
        with self._changed:
            while not is_met() and time.monotonic() < due:
                if self.is_stopped:
                    raise job_errors.Stopped
                self._changed.wait(min(1.0, max(0.0, due - time.monotonic())))

    def await_job(self) -> "Job":
        """Wait for the description of the job. Raises job_errors.Stopped."""
        self.wait_until(lambda: self.job)
        assert self.job
        return self.job

    def await_stop(self) -> None:
        """Wait until the node is to clean up."""
        self.wait_until(lambda: self.is_stopped)

    def ended_jobs(self, jobs: "Set[str]") -> "Set[str]":
        """Those of these jobs that have ended, by the controller; none if it does not know."""
        # A message loses what is too long, so the answer names the ended ones.
        self.send({"type": "leftover_jobs", "jobs": sorted(jobs)})
        self.wait_until(lambda: self._ended_jobs is not None, ANSWER_WAIT)
        return self._ended_jobs or set()
