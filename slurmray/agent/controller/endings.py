"""How a start ends: what was asked of the job, the trainer's time for its end, and when its step may end."""

from .. import signals
from . import protocol
from .failure import Failure
from .part import Decider

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, Optional, Set

    from ..heartbeat import Monitor

HEALTH_CHECK_WAIT = 5.0  # seconds for the nodes to answer whether Ray runs, after the trainer has failed
GPUS_WAIT = 12.0  # seconds for the nodes to answer whether they still have their GPUs
SIGNAL_DELAY = 2.0  # seconds in which a signal may reach several processes: tasks, and the batch script
LIMIT_MARGIN = 15  # seconds of stop.lead that remain for clean-up before the time limit
STOP_MARGIN = 5  # seconds after the grace period in which the trainer's exit code may arrive
NODE_LOSSES = ("ray", "node_lost")  # kinds of failures


class Endings(Decider):
    """Sends the nodes what was asked of the job, and decides when nothing more is to be awaited."""

    def __init__(self, controller: Decider) -> None:
        super().__init__(controller)
        self.is_trainer_stopping = False  # for another start
        self._sent: "Set[str]" = set()  # requests that the nodes know
        self._signals: "Dict[str, float]" = {}  # names of signals for the trainer, and when they came
        self._stop_until: "Optional[float]" = None
        self._asked: "Optional[float]" = None  # when the nodes were asked whether Ray runs

    @property
    def is_expected(self) -> bool:
        """Whether nodes may end their part of the job."""
        return self.state.requests.is_end_requested or self.state.is_ending or self.is_trainer_stopping

    @property
    def does_trainer_run(self) -> bool:
        """Whether the trainer runs, and no failure is of its node."""
        state = self.state
        has_head = not state.nodes[state.head].has_ended and state.head not in state.blamed
        return has_head and state.progress == protocol.TRAINING and state.trainer_code is None

    def on_signal(self, name: str, now: float) -> None:
        """Pass a signal on to the trainer, once where it has reached several processes of the job."""
        before = self._signals.get(name)
        if name not in signals.PASSED_ON or (before is not None and now - before < SIGNAL_DELAY):
            return
        self._signals[name] = now
        if self.state.progress == protocol.TRAINING:
            self.log.write("signal %s: passed on to the trainer" % name)
            self.actions.send({"type": "signal", "name": name})
        else:
            self.log.write("signal %s: ignored, as no trainer runs" % name)

    def tick(self, now: float) -> None:
        """Pass on what was asked, and let the trainer end where it is to start again."""
        self._pass_requests_on(now)
        failure = self.state.failure
        if failure and self.does_trainer_run and not self.state.requests.is_end_requested:
            self._stop_before_restart(failure, now)
        self._log_later_failures(now)

    def _pass_requests_on(self, now: float) -> None:
        """Send the nodes what was asked of the job, each request once."""
        requests, grace = self.state.requests, self.job["grace"]
        if requests.is_stopping and "stop" not in self._sent:
            self._sent.add("stop")
            self.log.event("stop")
            self._stop(grace, now)
        elif "stop" in self._sent and requests.is_grace_over and "stop_now" not in self._sent:
            self._sent.add("stop_now")
            self.log.event("stop_now")
            self._stop(0, now)
        elif requests.is_time_up and "time_limit" not in self._sent:
            self._sent.add("time_limit")
            stop = self.settings["stop"]
            seconds = max(stop["lead"] - LIMIT_MARGIN, grace)
            self.log.event("time_limit", signal=stop["signal"], seconds=seconds)
            self.actions.send({"type": "stop_at_limit", "seconds": seconds})

    def _stop(self, grace: int, now: float) -> None:
        self.actions.send({"type": "stop", "seconds": grace})
        until = now + grace + STOP_MARGIN
        self._stop_until = until if self._stop_until is None else min(until, self._stop_until)

    def _stop_before_restart(self, failure: Failure, now: float) -> None:
        """Give the trainer time for its end where another node was lost and it is to start again."""
        is_loss = failure.kind in NODE_LOSSES and self.settings["on_node_loss"] == "restart"
        if (is_loss or failure.kind == "stalled") and self._stop_until is None:
            self.is_trainer_stopping = True
            grace = self.settings["restart"]["grace"]
            if is_loss:
                self.log.event("failure", nodes=failure.nodes, text=str(failure), seconds=grace)
            self.actions.send({"type": "stop_before_restart", "seconds": grace})
            self._stop_until = now + grace + STOP_MARGIN

    def _log_later_failures(self, now: float) -> None:
        """Log the losses after the first one, with the rest of the trainer's grace period."""
        is_end_requested = self.state.requests.is_end_requested
        for failure in self.state.take_later():
            if self.is_trainer_stopping and self.does_trainer_run and not is_end_requested:
                left = max(0, round((self._stop_until or now) - STOP_MARGIN - now))
                self.log.event("failure", nodes=failure.nodes, text=str(failure), seconds=left)
            else:
                self.log.write(str(failure))

    def may_end(self, monitor: "Monitor", has_all_findings: bool, now: float) -> bool:
        """Whether the step can be ended, if its tasks run.

        has_all_findings: no node is about to send more. monitor: of the nodes' messages.
        """
        state, requests = self.state, self.state.requests
        if state.nodes[state.head].end == protocol.GONE:
            return True
        if self._stop_until is not None and now > self._stop_until:
            return True
        # Slurm's signal may have ended other tasks before they became agents: these send nothing.
        if requests.is_stopping and state.count(protocol.STARTED) and self._have_started_ones_gone():
            return True
        is_stopping = self.is_trainer_stopping or requests.is_end_requested
        has_failed = state.failure and not (is_stopping and self.does_trainer_run)
        if has_failed and has_all_findings:
            return True
        if self.settings["only_checks"] and state.have_all(protocol.CHECKED):
            return True
        return state.trainer_code is not None and not self._may_be_node_loss(monitor, now)

    def _have_started_ones_gone(self) -> bool:
        nodes = self.state.nodes.values()
        return all(node.end == protocol.GONE or node.progress == protocol.WAITING for node in nodes)

    def _may_be_node_loss(self, monitor: "Monitor", now: float) -> bool:
        """Whether the trainer may have failed because of a lost node. Asks the nodes if Ray runs."""
        state = self.state
        is_head_signalled = state.nodes[state.head].is_signalled
        if state.has_succeeded or state.requests.is_end_requested or is_head_signalled:
            return False
        if self._asked is None:
            self._asked = now
            self.actions.send({"type": "check_health"})
        waited = now - self._asked
        for node in map(state.nodes.__getitem__, monitor.nodes()):
            if node.is_signalled:
                return True  # it exits after its grace period
            if node.has_unknown_gpus and waited < GPUS_WAIT:
                return True
            # A node that has sent another message instead of the answer is not lost: its Ray may have ended.
            is_connected = waited > HEALTH_CHECK_WAIT and monitor.seconds_since(node.name, now) < waited
            if not node.is_healthy and not is_connected:
                return True
        return False
