"""Finds out that a trainer no longer gets anywhere, and what its processes wait for.

Without I/O. docs/guides/watching.md describes it to users. A false alarm is worse than a late one: any sign
of work, on any node, restarts the count of seconds.
"""

import collections
import os

from . import protocol
from .failure import Failure
from .host_list import names
from .part import Decider, Part

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, List, Optional, Tuple

    from ..wire import messages
    from .part import Handler

# CPUs of a node that are busy where it compiles, loads or writes. Ray itself needs less.
BUSY_CORES = 0.8
STEADY = 15  # W: by how much the power of a waiting GPU changes
EVIDENCE_WAIT = 40.0  # seconds for the nodes to collect what they can
ANSWER_WAIT = 60.0  # seconds without an answer after which a file system, not the trainer, is stalled
FEW = 3  # processes that are named


class StallWatch(Part):
    """Decides whether the trainer is stalled, from samples, output and progress file.

    The job's run directory gets the evidence, and the job counts the stalls of all starts.
    """

    def __init__(self, controller: Decider) -> None:
        super().__init__(controller)
        self._watch = self.settings["watch"]
        self._since: "Optional[float]" = None  # when something last moved; None: no trainer runs
        self._progress_since = 0.0
        self._progress_seen = float("-inf")  # when its file system last answered
        self._output = -1  # size of the job's log; -1: not a file
        self._output_seen = float("-inf")  # when its file system last answered
        self._progress = -1.0
        self._powers: "Dict[str, int]" = {}  # of nodes whose GPUs spin, since they do so
        self._still: "Dict[str, str]" = {}  # what the GPUs of nodes do that do not work
        self._text = ""  # of a stall whose evidence is being collected
        self._due = 0.0  # until when that is awaited
        self._stacks: "List[Tuple[str, str, str]]" = []  # node, process, place
        self._complete: "List[str]" = []  # nodes that have sent theirs

    def on_progress(self, progress: str, now: float) -> None:
        """The trainer starts."""
        if progress == protocol.TRAINING:
            self._begin(now)

    def _begin(self, now: float) -> None:
        self._since = self._progress_since = now

    def on_log_size(self, size: int, now: float) -> None:
        """After a silence of its file system the count begins again."""
        if size != self._output or now - self._output_seen >= ANSWER_WAIT:
            self._move(now)
        self._output, self._output_seen = size, now

    def on_progress_file(self, changed: float, now: float) -> None:
        self._progress_seen = now
        if changed != self._progress:
            self._progress = changed
            self._progress_since = now
            self._move(now)

    def on_sample(self, node: str, use: "messages.Use", now: float) -> None:
        """Without GPUs it shows nothing."""
        if not use.get("gpus"):
            return
        still = self._judge(node, use)
        if still:
            self._still[node] = still
        else:
            self._still.pop(node, None)
            self._powers.pop(node, None)
            self._move(now)

    def on_node_left_out(self, node: str) -> None:
        self._still.pop(node, None)

    def handlers(self) -> "Dict[str, Handler]":
        return {"stacks": self._on_stacks}

    def _on_stacks(self, node: str, message: "messages.Stacks", _now: float) -> None:
        if self._text and message["number"] == self.job["stalls"]:
            self._stacks += [(node, process, place) for process, place in message["rows"]]
            if message["is_complete"]:
                self._complete.append(node)

    def tick(self, now: float) -> "Optional[Failure]":
        """Return a failure once the trainer is stalled, the evidence is collected, and the job is to end."""
        state = self.state
        is_ending = state.failure or state.requests.is_end_requested
        if state.progress != protocol.TRAINING or is_ending or self._since is None:
            return None
        if not self._text:
            self._text = self._find(now)
            if self._text:
                self.job["stalls"] += 1
                self._stacks, self._complete = [], []
                self._due = now + EVIDENCE_WAIT
                self.actions.send({"type": "collect_evidence", "number": self.job["stalls"]})
            return None
        nodes = sum(state.nodes[name].takes_part for name in self.job["nodes"])
        if now < self._due and len(set(self._complete)) < nodes:
            return None
        text, self._text = "; ".join(filter(None, [self._text, describe_stacks(self._stacks)])), ""
        number = self.job["stalls"]
        folder = os.path.join(self.job["run_dir"], "logs", "stall-%d" % number)
        self.log.event("stall", number=number, text=text, folder=folder)
        self._begin(now)
        return None if self._watch["action"] == "report" else Failure([], "stalled", text)

    def _find(self, now: float) -> str:
        limit = self._watch["stall"]
        minutes = "%d min" % round(limit / 60) if limit >= 60 else "%d s" % limit
        has_answered = now - self._progress_seen < ANSWER_WAIT
        if has_answered and now - self._progress_since >= limit:
            return "%s has not changed for %s" % (self._watch["progress"], minutes)
        if not self._still or self._since is None or now - self._since < limit:
            return ""
        if self._output >= 0 and now - self._output_seen >= ANSWER_WAIT:
            return ""
        nodes: "Dict[str, List[str]]" = {}
        for node in sorted(self._still):
            nodes.setdefault(self._still[node], []).append(node)
        texts = ["%s: %s" % (names(nodes[what]), what) for what in sorted(nodes)]
        return "no output for %s; GPUs of %s" % (minutes, "; of ".join(texts))

    def _judge(self, node: str, use: "messages.Use") -> str:
        """What the GPUs of a node do, if that is no work; "" if it may be."""
        idle, waiting = use.get("idle_gpus", 0), use.get("waiting_gpus", 0)
        if idle + waiting < use.get("gpus", 1):
            return ""
        if not waiting:
            return "idle" if use.get("cores", 0.0) < BUSY_CORES else ""
        before = self._powers.setdefault(node, use.get("power", 0))
        if abs(use.get("power", 0) - before) > STEADY:
            return ""
        return "busy at a steady low power" + (", or idle" if idle else "")

    def _move(self, now: float) -> None:
        if self._since is not None:
            self._since = now


def describe_stacks(stacks: "List[Tuple[str, str, str]]") -> str:
    """Which processes wait for which, where that is plain; "" otherwise.

    stacks: node, process, and the function that it is in.
    """
    places = [place.partition(" ")[0] for _, _, place in stacks]
    place, count = collections.Counter(places).most_common(1)[0] if places else ("", 0)
    if count == len(places) > 1:
        return "all processes are in %s" % stacks[0][2]
    others = [row for row, other in zip(stacks, places) if other != place or len(places) == 1]
    if count < len(others) or len(others) > FEW:
        return ""
    named = ["%s on %s is in %s" % (process, node, where) for node, process, where in others]
    if count > 1:
        named.insert(0, "%d of %d processes are in %s" % (count, len(places), place))
    return ", ".join(named)
