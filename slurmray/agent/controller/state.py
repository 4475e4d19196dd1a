"""States of the job and its nodes, as tables: which message may come when, and what it changes.

Without I/O. docs/inside/wire.md has diagrams that are drawn from these tables.
"""

from .host_list import and_names, host_list

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import List, Optional

# How far the bring-up of a node has come.
WAITING, STARTED, CHECKED, IN_RAY = NODE = ("waiting", "started", "checked", "in Ray")
# Whether a node still takes part. It only goes on from one to a later one.
UP, UNFIT, LOST, GONE = ENDS = ("up", "unfit", "lost", "gone")
# How far the job has come.
CHECKING, STARTING_RAY, READY, TRAINING, TRAINED = JOB = (
    "checking",
    "starting Ray",
    "ready",
    "training",
    "trained",
)

# Message -> what a node has come to by it, from the one before in NODE.
NEXT_OF_NODE = {"started": STARTED, "checked": CHECKED, "joined": IN_RAY}
# Message, or what the controller finds out, -> what becomes of a node.
END_OF_NODE = {"unfit": UNFIT, "lost": LOST, "gone": GONE}
# Message that the head node sends, or the controller, -> what the job has come to by it.
NEXT_OF_JOB = {"start_ray": STARTING_RAY, "ready": READY, "trainer": TRAINING, "exit": TRAINED}
# Message -> where the job must be. The others may come at any time, as long as their node is not gone.
EXPECTED = {
    "leftover_jobs": (CHECKING,),
    "checked": (CHECKING,),
    "versions": (STARTING_RAY,),
    "reachable_at": (STARTING_RAY,),
    "join": (STARTING_RAY,),
    "joined": (STARTING_RAY,),
    "ready": (STARTING_RAY,),
    "burn_in": (READY,),
    "stage_done": (STARTING_RAY, READY, TRAINING),  # while it trains: of a node that joins
    "prepared": (STARTING_RAY, READY, TRAINING),
    "attach": (READY,),
    "trainer": (READY,),
    "exit": (TRAINING,),
    "healthy": (TRAINED,),
    "gpus": (TRAINED,),
    "stacks": (TRAINING,),
}
FROM_HEAD = ("versions", "join", "joined", "ready", "attach", "dashboard", "trainer", "exit", "signal")
# Messages that still have an effect while the step is being ended.
WHILE_ENDING = ("started", "phase", "finding", "thread_error", "gone")
LOGS_SHOWN = 2  # nodes whose logs are shown


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
    def is_over(self) -> bool:
        """Whether nothing more is to be expected of it."""
        return self.end in (LOST, GONE)


class Failure:
    """The reason why the job cannot go on. nodes: none where no node is the cause.

    log: name of the log in the run directory that shows why, if not the nodes'.
    """

    def __init__(self, nodes: "List[str]", kind: str, text: str, log: str = "") -> None:
        self.nodes = nodes
        self.kind = kind
        self.text = text
        self.logs = [log] if log else nodes[:LOGS_SHOWN]
        self.ends_job = True  # False: Slurm was ending the job already

    @property
    def node(self) -> str:
        """The node, or the host list of several."""
        return host_list(self.nodes)

    def __str__(self) -> str:
        return "%s: %s" % (and_names(self.nodes), self.text) if self.nodes else self.text


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

    @property
    def blamed(self) -> "List[str]":
        """The nodes whose failures end this start."""
        return [node for failure in [self.failure, *self.later] if failure for node in failure.nodes]

    def leave_out(self, name: str) -> bool:
        """Continue without a node; return whether that is new."""
        node = self.nodes[name]
        if node.is_left_out:
            return False
        node.is_left_out = True
        for state in NODE[NODE.index(node.progress) + 1 :]:  # nothing waits for it
            self._count[state] += 1
        return True

    def refusal(self, name: str, kind: str) -> str:
        """Why a message has no effect now; "" where it has one. name: of its node."""
        node = self.nodes[name]
        if node.end == GONE:
            return "%s, from a node that is gone" % kind
        if kind in FROM_HEAD and name != self.head:
            return "%s, from a worker node" % kind
        if self.progress not in EXPECTED.get(kind, JOB):
            return "%s, while the job is %s" % (kind, self.progress)
        if kind in ("started", "checked") and not self._may_advance(node, kind):
            return "%s, from a node that is %s" % (kind, node.progress)
        return ""

    @staticmethod
    def _may_advance(node: Node, kind: str) -> bool:
        return NODE.index(NEXT_OF_NODE[kind]) == NODE.index(node.progress) + 1

    def advance(self, names: "List[str]", kind: str) -> None:
        """Change nodes as a message about them says. kind: of the message; or `lost`."""
        for name in names:
            node = self.nodes[name]
            end = END_OF_NODE.get(kind, UP)
            if ENDS.index(end) > ENDS.index(node.end):
                node.end = end
                self._count[end] += 1
            elif kind in NEXT_OF_NODE and not node.is_left_out and self._may_advance(node, kind):
                node.progress = NEXT_OF_NODE[kind]
                self._count[node.progress] += 1

    def count(self, state: str) -> int:
        """How many nodes have ever come to that: one of NODE, or what is in END_OF_NODE."""
        return self._count[state]

    def have_all(self, state: str) -> bool:
        """Whether all nodes have come to that."""
        return self._count[state] == len(self.nodes)

    @property
    def has_trained(self) -> bool:
        """Whether the trainer has been started."""
        return self.progress in (TRAINING, TRAINED)
