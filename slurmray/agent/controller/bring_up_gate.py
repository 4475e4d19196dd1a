"""What the job waits for until its trainer starts: checks of all nodes, Ray, findings; and for how long."""

from . import protocol
from .failure import Failure
from .host_list import host_list, names
from .part import Decider

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, List, Optional, Set, Tuple

    from ..wire import messages

FINDINGS_WAIT = 10.0  # seconds after the first finding, in which other nodes may send theirs
READY_MARGIN = 15  # seconds added to the probe's timeout: its error is the more detailed one
REACHABILITY_WAIT = 0.5  # seconds during which workers' addresses are collected into one message


class BringUpGate(Decider):
    """Lets the nodes start Ray once all are checked, and ends a bring-up that gets no further."""

    def __init__(self, controller: Decider) -> None:
        super().__init__(controller)
        self.folder = ""  # the job's folder on the head node
        self.gcs = ""  # `host:port`
        self.not_ready: "List[Tuple[str, str]]" = []  # (node, why)
        self._timeout = self.settings["timeouts"]["ready"] + READY_MARGIN
        self._deadline = float(self._timeout)
        self._is_waiting_logged = False
        self._peers: "Set[str]" = set()
        self._is_proxy_set = False
        self._targets: "List[Tuple[str, str, List[int]]]" = []  # for the head node to connect to
        self._targets_due: "Optional[float]" = None
        self._unmatched: "Set[str]" = set()  # workers without a connection with the head node, or unlike it
        self._unfit_until = 0.0
        self._is_unfit_late = False  # a finding came after `checked`: it is about image or container

    def extend(self, now: float) -> None:
        """Note that a node gets on."""
        self._deadline = now + self._timeout

    def on_checked(self, node: str, message: "messages.Checked") -> None:
        """Note what a checked node says about itself."""
        self._peers.update(message["addresses"])
        self._is_proxy_set = self._is_proxy_set or message["proxy"]
        if node == self.state.head:
            self.folder = message["folder"]

    def is_open(self) -> bool:
        """Whether Ray can be started now."""
        return self.state.have_all(protocol.CHECKED) and self.state.progress == protocol.CHECKING

    def start_ray(self) -> None:
        """Start services that are steps of their own, and let the nodes start Ray."""
        self.actions.start_services(self.folder)
        # Only a proxy's exceptions (no_proxy) need the addresses of all nodes.
        peers = sorted(self._peers) if self._is_proxy_set else []
        self.state.start_ray()
        self.actions.send({"type": "start_ray", "peers": peers})

    def on_reachable_at(self, node: str, message: "messages.ReachableAt", now: float) -> None:
        """Collect workers for the head node to connect to."""
        self._targets.append((node, message["address"], message["ports"]))
        self._targets_due = self._targets_due or now + REACHABILITY_WAIT
        if len(self._targets) == self.settings["ray"]["nodes"] - 1:
            self._targets_due = now

    def send_targets(self, now: float) -> None:
        """Send these workers, if it is time."""
        if self._targets_due is not None and now >= self._targets_due:
            self.actions.send({"type": "check_reachable", "targets": self._targets})
            self._targets, self._targets_due = [], None

    def on_join(self, _node: str, message: "messages.HeadJoined", _now: float) -> None:
        """Let the workers join Ray."""
        self.gcs = message["address"]
        self.actions.send({"type": "join", "address": self.gcs})

    def on_not_ready(self, _node: str, message: "messages.NotReady", _now: float) -> None:
        """Note which node has not joined Ray in time."""
        self.not_ready.append((message["missing"], message["why"]))

    # -- nodes that are not fit --------------------------------------------------------------------------

    def note_unfit(self, node: str, now: float) -> None:
        """Note that a node has a finding, and wait for what other nodes find, too."""
        self.state.note_finding(node)
        self._wait_for_findings(node, now)

    def note_unmatched(self, worker: str, now: float) -> None:
        """Note that a worker does not match the head node. Which of the two is to blame, others show."""
        self._unmatched.add(worker)
        self._wait_for_findings(worker, now)
        if self.state.is_ending:  # it comes late
            self.blame_unmatched()

    def _wait_for_findings(self, node: str, now: float) -> None:
        self._is_unfit_late = self._is_unfit_late or self.state.nodes[node].has_been_checked
        self._unfit_until = now + FINDINGS_WAIT

    def has_all_findings(self, now: float) -> bool:
        """Whether no node is about to send further findings."""
        return now >= self._unfit_until or all(
            node.end != protocol.UP or (node.has_been_checked and not self._is_unfit_late)
            for node in self.state.nodes.values()
        )

    def blame_unmatched(self) -> None:
        """Let no later start use workers that do not match the head node, or where most do not, that one."""
        state = self.state
        unfit, failure = [node for node in state.nodes if node in self._unmatched], state.failure
        are_most = 2 * len(unfit) > self.settings["ray"]["nodes"] - 1
        if are_most and len(unfit) > 1:
            if failure and set(failure.nodes) <= self._unmatched:
                check, _, found = failure.text.partition(": ")
                text = "%s of %s: %s" % (check, host_list(unfit), found)
                state.replace_failure(Failure([state.head], failure.kind, text))
            unfit = [state.head]
        for node in unfit:
            state.note_finding(node)

    # -- time --------------------------------------------------------------------------------------------

    def tick(self, now: float) -> "Optional[Failure]":
        """Return the failure of a bring-up without progress. Logs once which nodes it waits for."""
        state = self.state
        if not state.has_trained and now > self._deadline and not state.failure:
            text = "cluster not ready, and no progress on any node for %d s" % self._timeout
            self.not_ready = [(node, self._why_unchecked(node)) for node in self._unchecked()]
            running = [node for node in state.nodes.values() if node.field]
            if running:
                fields, where = max(node.field for node in running), names([node.name for node in running])
                text += "; %s still runs on %s" % (fields, where)
            return Failure([state.head], "probe", text)
        if now > FINDINGS_WAIT and not self._is_waiting_logged and self._unchecked():
            self._is_waiting_logged = True
            self.log.event("phase", phase="preflight", text="waiting for " + names(self._unchecked()))
        return None

    def _why_unchecked(self, name: str) -> str:
        node = self.state.nodes[name]
        if node.field:
            return "has not been checked: its %s still runs" % node.field
        # Without a Python, a node runs `setup` before it can send messages.
        is_silent = self.settings["setup"] and node.progress == protocol.WAITING
        return "has not been checked" + (": its setup may still run" if is_silent else "")

    def _unchecked(self) -> "List[str]":
        if self.state.have_all(protocol.CHECKED):  # called in each turn
            return []
        nodes = self.state.nodes.values()
        return [node.name for node in nodes if not (node.has_been_checked or node.is_left_out)]

    def not_ready_texts(self) -> "List[str]":
        """A text for each reason why nodes are not ready: `node[3-64] has not joined`."""
        nodes: "Dict[str, List[str]]" = {}
        for node, why in self.not_ready:
            nodes.setdefault(why, []).append(node)
        return ["%s %s" % (host_list(nodes[why]), why) for why in nodes]
