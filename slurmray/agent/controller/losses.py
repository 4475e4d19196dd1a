"""Finds out which nodes are lost, and which steps have ended, from heartbeats and from srun."""

from .. import heartbeat
from . import node_records, srun_errors
from .failure import Failure
from .part import Decider
from .protocol import WAITING

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, Iterator, List, Optional, Set, Tuple

STEP_SIGNAL_DELAY = 3.0  # seconds by which Slurm may signal steps before the batch script
SLURMCTLD = "slurmctld"  # among the hosts that answer
ANSWER_VALID = 7.0  # seconds for which an answer shows that this host has its network
CONNECTIONS_INTERVAL = 1.0  # seconds between two looks at srun's connections, while nodes are late
RECORDS_INTERVAL = 3.0  # seconds between two questions to slurmctld about late nodes
# Seconds by which a record's boot time may change without a boot: slurmd sends for how long its host has run,
# and slurmctld subtracts that from the time of the message (validate_node_specs() of node_mgr.c). A virtual
# machine that was paused was silent for that time, which its uptime lacks.
BOOT_MARGIN = 10.0


class Losses(Decider):
    """What is known of the nodes' heartbeats and steps."""

    def __init__(self, controller: Decider) -> None:
        super().__init__(controller)
        timeout = self.settings["timeouts"]["heartbeat"]
        self.monitor = heartbeat.Monitor(timeout)
        self._until_lost = timeout + heartbeat.answer_wait(timeout) + heartbeat.ASK_INTERVAL
        self._questions = heartbeat.Timer(heartbeat.ASK_INTERVAL)  # to hosts without heartbeats
        self._connections_due = heartbeat.Timer(CONNECTIONS_INTERVAL)
        self._connected: "Set[str]" = set()  # nodes that srun has had a connection to
        self._records_due = heartbeat.Timer(RECORDS_INTERVAL)
        self._boots: "Dict[str, int]" = {}  # node -> when it booted, as slurmctld first said
        self._closed: "List[str]" = []  # late nodes whose connection is no longer there
        self._proofs: "Dict[str, str]" = {}  # late node -> what Slurm's record of it shows
        self.is_aborted = False  # srun ends all tasks, because of one node that it names
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
            if self.is_aborted:  # srun would wait for the lost one as long as KillWait
                self.state.lose_task(name)
        lost = srun_errors.lost_node(line, nodes)
        if not lost:
            return None
        name, text, is_over = lost
        self.state.lose_host(name)
        if is_over:
            self.is_aborted = True
            self.monitor.forget(name)
            self.state.lose_task(name)
        return Failure([name], "node_lost", text, must_end=is_over)

    def on_answer(self, host: str, now: float) -> None:
        """Note that a host, or SLURMCTLD, has answered: see Actions.find_answers."""
        if host != self.job["batch_host"]:
            self._answered = now
        if host != SLURMCTLD:
            self.monitor.host_answers(host, now)

    def on_connections(self, addresses: "Set[str]", now: float) -> None:
        """Look for late nodes whose connection has been closed. addresses: that srun has connections to.

        srun ignores the end of a connection, unless it was reset (_server_read() of api/step_io.c).
        """
        late = self.monitor.late(now)
        for node in self.state.nodes.values():
            if addresses.intersection(node.addresses):
                self._connected.add(node.name)
            elif node.name in self._connected and node.name in late:
                self._closed.append(node.name)

    def on_node_records(self, shown: str, now: float) -> None:
        """Look in Slurm's records of late nodes for proof of a loss: see Actions.find_node_records."""
        self.on_answer(SLURMCTLD, now)
        records = node_records.parse(shown)
        for node in records.keys() & set(self.monitor.late(now)):
            is_down, boot = records[node]
            silence = self.monitor.seconds_since(node, now)
            if is_down:
                self._proofs[node] = srun_errors.MARKED_DOWN
            elif boot - self._boots.setdefault(node, boot) > silence + BOOT_MARGIN:
                self._proofs[node] = "its host has booted again"

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
        if self.monitor.late(now) and self._connections_due.is_due(now):
            self.actions.find_connections()
        late = self.monitor.late(now, 2)
        if late and self._records_due.is_due(now):
            self.actions.find_node_records(late)
        while self._closed:
            node = self._closed.pop()
            self.monitor.forget(node)
            self.state.lose_task(node)  # not its host, which has closed the connection
            yield Failure([node], "ray", "its connection to srun is closed: its task or slurmstepd has ended")
        while self._proofs:
            node, text = self._proofs.popitem()
            self._lose([node])
            yield Failure([node], "node_lost", text)
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
        self._lose(lost)
        question = "Has it lost power or its" if len(lost) == 1 else "Have they lost power or their"
        text = "no heartbeat for %d s. %s network?" % (self.settings["timeouts"]["heartbeat"], question)
        yield Failure([node for node in self.state.nodes if node in lost], "node_lost", text)

    def _lose(self, nodes: "List[str]") -> None:
        for node in nodes:
            self.monitor.forget(node)
            self.state.lose_host(node)
            self.state.lose_task(node)

    def _is_cut_off(self, lost: "List[str]", now: float) -> bool:
        """Whether it is this host that has lost its network."""
        host = self.job["batch_host"]
        if host in lost or now - self._answered <= ANSWER_VALID:
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
        wait = STEP_SIGNAL_DELAY + (self._until_lost if self.settings["on_node_loss"] == "continue" else 0)
        for name, (of_service, code, then) in self._service_steps.items():
            if now - then > wait and not all(nodes[node].is_left_out for node in of_service):
                text = "the step of service %s ended, srun exited with %d. Its log has the reason"
                yield Failure([], "service", text % (name, code))
        if self._output_step and self.state.trainer_code is None:
            code, then = self._output_step
            if now - then > STEP_SIGNAL_DELAY + self._until_lost:
                text = "the step that copies the trainer's output ended, srun exited with %d"
                yield Failure([self.state.head], "ray", text % code)

    @staticmethod
    def _list_late(since: "Dict[str, float]", now: float) -> "List[str]":
        return [name for name, then in since.items() if now - then > STEP_SIGNAL_DELAY]
