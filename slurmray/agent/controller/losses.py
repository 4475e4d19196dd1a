"""Finds out which nodes are lost, and which steps have ended, from heartbeats and from srun."""

from .. import heartbeat
from . import srun_errors
from .failure import Failure
from .part import Decider
from .protocol import WAITING

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, Iterator, List, Optional, Tuple

STEP_SIGNAL_DELAY = 3.0  # seconds by which Slurm may signal steps before the batch script
SLURMCTLD = "slurmctld"  # among the hosts that answer
ASK_INTERVAL = 1.0  # seconds between two questions to hosts without heartbeats


class Losses(Decider):
    """What is known of the nodes' heartbeats and steps."""

    def __init__(self, controller: Decider) -> None:
        super().__init__(controller)
        self.monitor = heartbeat.Monitor(self.settings["timeouts"]["heartbeat"])
        self._questions = heartbeat.Timer(ASK_INTERVAL)  # to hosts without heartbeats
        self._answered = float("-inf")  # when another host, or slurmctld, last did
        self._without_task: "Dict[str, float]" = {}  # nodes on which the step is over, and since when
        self._killed: "Dict[str, float]" = {}  # nodes whose task was killed, and since when; -1: a moment ago
        # Steps that are over: nodes, exit code of srun, when.
        self._service_steps: "Dict[str, Tuple[List[str], int, float]]" = {}
        self._output_step: "Optional[Tuple[int, float]]" = None  # without the nodes

    @property
    def is_step_over(self) -> bool:
        """Whether no task of the job's step runs any more."""
        return len(self._without_task) == len(self.state.nodes)

    @property
    def ended_services(self) -> "List[str]":
        """Names of services whose steps are over."""
        return list(self._service_steps)

    def on_message(self, node: str, now: float) -> None:
        """Note that a node has sent a message."""
        if not self.state.nodes[node].has_ended:
            self.monitor.record(node, now)

    def on_srun_error(self, line: str, nodes: "List[str]") -> "Optional[Failure]":
        """Look in what srun prints for a lost node; return the failure. nodes: of its step."""
        for name in srun_errors.nodes_of_killed_tasks(line, nodes):
            self._killed.setdefault(name, -1.0)
        lost = srun_errors.lost_node(line, nodes)
        if not lost:
            return None
        name, text, is_over = lost
        self.state.lose_host(name)
        if is_over:
            self.monitor.forget(name)
            self.state.lose_task(name)
        return Failure([name], "node_lost", text, must_end=is_over)

    def on_answer(self, host: str, now: float) -> None:
        """Note that a host, or SLURMCTLD, has answered: see Actions.find_answers."""
        if host != self.job["batch_host"]:
            self._answered = now
        if host != SLURMCTLD:
            self.monitor.host_answers(host, now)

    def on_step_over(self, nodes: "List[str]", now: float) -> None:
        """Note that an srun has closed its output: no task runs any more on its nodes."""
        self._without_task.update(dict.fromkeys(nodes, now))

    def on_service_step_over(self, name: str, nodes: "List[str]", code: int, now: float) -> None:
        """Note that the step of a service has ended; srun exited with `code`. May be called again."""
        self._service_steps.setdefault(name, (nodes, code, now))

    def on_output_step_over(self, code: int, now: float) -> None:
        """Note that the srun that copies the trainer's output has failed. May be called again."""
        self._output_step = self._output_step or (code, now)

    def find_lost_nodes(self, now: float) -> "Iterator[Failure]":
        """Yield failures of nodes without heartbeats."""
        overdue = self.monitor.overdue(now)
        if not overdue:
            return
        if self._questions.is_due(now):
            self.actions.find_answers({node: self.state.nodes[node].addresses for node in overdue})
        lost = self.monitor.lost(now)
        if not lost:
            return
        if self._is_cut_off(lost, now) and not self.state.failure:
            text = "no heartbeat from any other node, and slurmctld does not answer. Has it lost its network?"
            yield Failure([self.job["batch_host"]], "node_lost", text, must_end=True)
        for node in lost:
            self.monitor.forget(node)
            self.state.lose_host(node)
            self.state.lose_task(node)
        question = "Has it lost power or its" if len(lost) == 1 else "Have they lost power or their"
        text = "no heartbeat for %d s. %s network?" % (self.settings["timeouts"]["heartbeat"], question)
        yield Failure([node for node in self.state.nodes if node in lost], "node_lost", text)

    def _is_cut_off(self, lost: "List[str]", now: float) -> bool:
        """Whether it is this host that has lost its network."""
        host = self.job["batch_host"]
        if host in lost or now - self._answered <= heartbeat.ANSWER_WAIT + ASK_INTERVAL:
            return False
        others = [node for node in self.state.nodes.values() if node.name != host]
        return all(node.has_ended or node.name in lost for node in others)

    def find_ended_steps(self, now: float) -> "Iterator[Failure]":
        """Yield failures of steps that have ended, once Slurm would have signalled the batch script, too."""
        nodes = self.state.nodes
        late = [name for name in self._list_late(self._without_task, now) if not nodes[name].has_ended]
        if late:
            yield Failure(late, "ray", "the step ended unexpectedly. The job's log has the messages of srun")
        self._killed = {name: now if then < 0 else then for name, then in self._killed.items()}
        # Later it is noticed by its heartbeats.
        killed = [name for name in self._list_late(self._killed, now) if nodes[name].progress == WAITING]
        killed = [name for name in killed if not nodes[name].has_ended]
        for name in killed:
            self.state.lose_task(name)
        if killed:
            yield Failure(killed, "node_lost", "killed before the node agent could begin")
        # The loss of a node may be noticed later than the end of a step on it.
        until_lost = self.settings["timeouts"]["heartbeat"] + heartbeat.ANSWER_WAIT + ASK_INTERVAL
        wait = STEP_SIGNAL_DELAY + (until_lost if self.settings["on_node_loss"] == "continue" else 0)
        for name, (of_service, code, then) in self._service_steps.items():
            if now - then > wait and not all(nodes[node].is_left_out for node in of_service):
                text = "the step of service %s ended, srun exited with %d. Its log has the reason"
                yield Failure([], "service", text % (name, code))
        if self._output_step and self.state.trainer_code is None:
            code, then = self._output_step
            if now - then > STEP_SIGNAL_DELAY + until_lost:
                text = "the step that copies the trainer's output ended, srun exited with %d"
                yield Failure([self.state.head], "ray", text % code)

    @staticmethod
    def _list_late(since: "Dict[str, float]", now: float) -> "List[str]":
        return [name for name, then in since.items() if now - then > STEP_SIGNAL_DELAY]
