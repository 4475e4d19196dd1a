"""Which nodes of the allocation take part in the next start of Ray and trainer, and which ones are set aside.

Without I/O. docs/guides/requeue.md describes it to users.
"""

from .host_list import and_names
from .state import LOST, UNFIT

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, List

    from ..wire.settings import Job, Settings
    from .decisions import Controller
    from .outcome import Outcome

# Kinds of failures before the trainer has started that another node may not have.
OF_NODES = ("preflight", "image", "bring_up", "probe", "node_lost")


class Roster:
    """The nodes of an allocation, over all starts in it. job: of the first start."""

    def __init__(self, settings: "Settings", job: "Job") -> None:
        self._settings = settings
        self._size = self._wanted = len(job["nodes"])  # of the next start, and of one with enough nodes
        self._fewer = [int(number) for number in settings.get("fewer_nodes", {})]
        self._healthy = [*job["nodes"], *job["spares"]]
        self.restarts = 0  # of a trainer that had started

    def restart(self, controller: "Controller", outcome: "Outcome") -> bool:
        """Whether Ray and trainer are started again, on what `nodes` and `spares` have from now on."""
        if controller.requests.is_end_requested or not controller.state.failure:
            return False
        has_trained = controller.state.has_trained
        if has_trained:
            limit = self._settings["restart"]["max"]
            may_restart = self._settings["on_node_loss"] == "restart" and self.restarts < limit
            if not may_restart or outcome.kind != "node_lost":
                return False
        elif not (self._settings["spares"] or self._fewer) or outcome.kind not in OF_NODES:
            return False
        aside = _list_unhealthy(controller)
        healthy = [node for node in self._healthy if node not in aside]
        size = max([number for number in [*self._fewer, self._wanted] if number <= len(healthy)], default=0)
        if not aside or not size:
            return False
        self._healthy, self._size = healthy, size
        self.restarts += has_trained
        return True

    @property
    def nodes(self) -> "List[str]":
        """The nodes of the next start, the head node first."""
        return self._healthy[: self._size]

    @property
    def spares(self) -> "List[str]":
        """The nodes that wait for one of these to fail."""
        return self._healthy[self._size :]

    def describe(self, controller: "Controller", before: "List[str]") -> str:
        """Why there is another start, and on which nodes. before: the nodes of the one that failed."""
        gone = [node for node in before if node not in self.nodes]
        new = [node for node in self.nodes if node not in before]
        if len(self.nodes) == len(before):
            verb = "takes" if len(new) == 1 else "take"
            change = "%s %s the place of %s" % (and_names(new), verb, and_names(gone))
        else:
            parts = [word + and_names(names) for word, names in (("without ", gone), ("with ", new)) if names]
            change = "on %d of %d nodes, %s" % (len(self.nodes), self._wanted, ", ".join(parts))
        limit = self._settings["restart"]["max"]
        label = "restart %d of %d" % (self.restarts, limit) if controller.state.has_trained else "start again"
        return "%s: %s; %s" % (label, controller.state.failure, change)


def _list_unhealthy(controller: "Controller") -> "Dict[str, None]":
    """The nodes that failed, in this start; each once."""
    failure = controller.state.failure
    late = [node for node, _ in controller.not_ready]
    blamed = failure.nodes if failure and not late else late
    others = [
        node.name
        for node in controller.nodes.values()
        if node.end in (UNFIT, LOST) or node.is_left_out or node.has_finding
    ]
    return dict.fromkeys([*blamed, *others])
