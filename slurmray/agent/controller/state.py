"""The state of the job and its nodes. Nothing else changes it; what may change it is in protocol.py.

Without I/O.
"""

from .failure import Failure
from .protocol import (
    CHECKED,
    CHECKING,
    ENDS,
    GONE,
    IN_RAY,
    KINDS,
    LOST,
    NODE,
    STARTING_RAY,
    TRAINED,
    TRAINING,
    UNFIT,
    UP,
    WAITING,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, List, Optional


class Requests:
    """What was asked of the job. Signal handlers and threads set it; nothing is taken back."""

    def __init__(self) -> None:
        self.is_time_up = False  # Slurm sent the warning signal
        self.is_stopping = False  # Slurm is ending the job
        self.is_grace_over = False  # by `slurmray cancel --now`
        self.signals: "List[str]" = []  # names of those for the trainer

    @property
    def is_end_requested(self) -> bool:
        """Whether nodes and trainer may end: somebody has asked for it."""
        return self.is_stopping or self.is_time_up


class Node:
    """A node of the job."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.progress = WAITING
        self.end = UP
        self.addresses: "List[str]" = []
        self.field = ""  # of the job spec, whose commands run there
        self.has_unknown_gpus = False  # it has not answered yet whether it still has its GPUs
        self.is_healthy = False  # it has answered that Ray runs
        self.is_signalled = False  # its container process got SIGTERM
        self.has_finding = False  # that ends the job
        self.is_lost = False  # no heartbeat, or srun has lost it
        self.is_left_out = False  # lost or failed, and the job continues without it

    @property
    def has_been_checked(self) -> bool:
        """Whether its checks outside the container are done."""
        return self.progress in (CHECKED, IN_RAY)

    @property
    def has_ended(self) -> bool:
        """Whether nothing more is to be expected of it."""
        return self.end in (LOST, GONE)

    @property
    def takes_part(self) -> bool:
        """Whether the job still counts on it."""
        return self.end == UP and not self.is_left_out

    def may_come_to(self, progress: str) -> bool:
        """Whether that is the next step of its bring-up."""
        return NODE.index(progress) == NODE.index(self.progress) + 1


class JobState:
    """The nodes, how far the job has come, and its end. names: of the nodes, the head node first."""

    def __init__(self, names: "List[str]", requests: Requests) -> None:
        self.head = names[0]
        self.nodes = {name: Node(name) for name in names}
        self.requests = requests
        self.progress = CHECKING
        self.is_ending = False  # the step is being ended; failures no longer count
        self.failure: "Optional[Failure]" = None
        self.later: "List[Failure]" = []  # losses of other nodes after it, while the start ends
        self.trainer_code: "Optional[int]" = None
        self._count = dict.fromkeys([*NODE, *ENDS], 0)  # nodes that have come so far, at any time
        self._taken = 0  # of `later`

    # -- questions ---------------------------------------------------------------------------------------

    @property
    def blamed(self) -> "List[str]":
        """The nodes whose failures end this start."""
        return [node for failure in [self.failure, *self.later] if failure for node in failure.nodes]

    @property
    def has_trained(self) -> bool:
        """Whether the trainer has been started."""
        return self.progress in (TRAINING, TRAINED)

    @property
    def has_succeeded(self) -> bool:
        """Whether the trainer has exited with 0."""
        return self.trainer_code == 0

    def count(self, state: str) -> int:
        """How many nodes have ever come to that: one of NODE or of ENDS, but not their first."""
        return self._count[state]

    def have_all(self, state: str) -> bool:
        """Whether all nodes have come to that."""
        return self._count[state] == len(self.nodes)

    def refusal(self, name: str, kind: str) -> str:
        """Why a message has no effect now; "" where it has one. name: of its node."""
        node, row = self.nodes[name], KINDS[kind]
        if node.end == GONE:
            return "%s, from a node that is gone" % kind
        if row.is_from_head and name != self.head:
            return "%s, from a worker node" % kind
        if self.progress not in row.during:
            return "%s, while the job is %s" % (kind, self.progress)
        # The head node names nodes that are in Ray again and again.
        if row.node and not row.is_from_head and not node.may_come_to(row.node):
            return "%s, from a node that is %s" % (kind, node.progress)
        return ""

    # -- changes -----------------------------------------------------------------------------------------

    def receive(self, message: "Any") -> None:
        """Note what a message changes that is neither wrong nor refused."""
        node, kind = self.nodes[message["node"]], message["type"]
        row = KINDS[kind]
        if row.node:
            self._advance(message["nodes"] if kind == "joined" else [node.name], row.node)
        if row.end:
            self._end(node, row.end)
        if row.job:
            self.progress = row.job
        if kind == "heartbeat":
            node.field = message.get("field") or ""
        elif kind == "checked":
            node.addresses = message["addresses"]
            node.has_unknown_gpus = bool(message.get("gpus"))
        elif kind == "gpus":
            node.has_unknown_gpus = False
            node.has_finding = node.has_finding or bool(message["lost"])
        elif kind == "healthy":
            node.is_healthy = True
        elif kind == "signalled":
            node.is_signalled = True
        elif kind == "exit":
            self.trainer_code = message["code"]
        elif kind == "stop_requested":
            self.requests.is_stopping = True  # a preemption with GraceTime signals only the steps

    def _advance(self, names: "List[str]", progress: str) -> None:
        for node in map(self.nodes.__getitem__, names):
            if node.may_come_to(progress) and not node.is_left_out:
                node.progress = progress
                self._count[progress] += 1

    def _end(self, node: Node, end: str) -> None:
        if ENDS.index(end) > ENDS.index(node.end):
            node.end = end
            self._count[end] += 1

    def start_ray(self) -> None:
        """Note that the nodes may start Ray."""
        self.progress = STARTING_RAY

    def begin_end(self) -> None:
        """Note that the step is being ended: only KINDS that are late have an effect from now on."""
        self.is_ending = True

    def note_finding(self, name: str) -> None:
        """Note a finding about a node: no later start uses it."""
        self.nodes[name].has_finding = True

    def note_unfit(self, name: str) -> None:
        """Note that a node sends no more findings."""
        self._end(self.nodes[name], UNFIT)

    def lose_host(self, name: str) -> None:
        """Note that a host no longer answers, or that srun has lost it."""
        self.nodes[name].is_lost = True

    def lose_task(self, name: str) -> None:
        """Note that a node sends no more messages."""
        self._end(self.nodes[name], LOST)

    def leave_out(self, name: str) -> bool:
        """Continue without a node; return whether that is new."""
        node = self.nodes[name]
        if node.is_left_out:
            return False
        node.is_left_out = True
        for state in NODE[NODE.index(node.progress) + 1 :]:  # nothing waits for it
            self._count[state] += 1
        return True

    def fail(self, failure: Failure) -> bool:
        """Note a failure; return whether it is what ends this start: the first one is.

        Of others, only losses of further nodes are kept, because no later start uses these.
        """
        if not self.failure:
            self.failure = failure
            return True
        more = [node for node in failure.nodes if node not in self.blamed]
        if more and (failure.kind == "node_lost" or (failure.kind == "ray" and self.has_trained)):
            last = self.later[-1] if len(self.later) > self._taken else None
            if last and (last.kind, last.text) == (failure.kind, failure.text):
                more = self.later.pop().nodes + more  # one line for all
            self.later.append(Failure(more, failure.kind, failure.text))
        return False

    def replace_failure(self, failure: Failure) -> None:
        """Let another failure, whose cause is the same, be what ends this start."""
        self.failure = failure

    def take_later(self) -> "List[Failure]":
        """Those of `later` that are new since the last call."""
        new, self._taken = self.later[self._taken :], len(self.later)
        return new
