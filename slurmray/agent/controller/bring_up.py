"""Records the bring-up of nodes as events: which nodes are done with which step."""

from .. import heartbeat

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, List, Set, Tuple

    from ..job_log import JobLog

# Seconds for each node of the job between two turns of recording: an event is a write to the run directory,
# and at 1,024 nodes there is a message of some node in nearly every turn of the controller's loop.
PAUSE = 0.0005


class BringUp:
    """Collects nodes and records those that are done with the same step in one event. nodes: of the job."""

    def __init__(self, log: "JobLog", nodes: int) -> None:
        self._log = log
        self._pause = heartbeat.Timer(PAUSE * nodes)
        self._done: "Set[Tuple[str, str]]" = set()  # (step, node)
        self._unrecorded: "Dict[Tuple[str, int], List[str]]" = {}  # (step, GPUs of each node) -> nodes

    def done(self, step: str, nodes: "List[str]", gpus: int = 0) -> None:
        """Note that nodes are done with a step; the first time counts. gpus: of each node, in Ray."""
        new = [node for node in nodes if (step, node) not in self._done]
        self._done.update((step, node) for node in new)
        if new:
            self._unrecorded.setdefault((step, gpus), []).extend(new)

    def is_done(self, step: str, node: str) -> bool:
        """Whether a node is done with a step."""
        return (step, node) in self._done

    def record_if_due(self, now: float) -> None:
        """Record what is new, unless that was done a moment ago. now: seconds, as for the controller."""
        if self._unrecorded and self._pause.is_due(now):
            self.record()

    def record(self) -> None:
        """Record what is new."""
        for (step, gpus), nodes in self._unrecorded.items():
            self._log.event("nodes", step=step, nodes=nodes, gpus=gpus)
        self._unrecorded = {}
