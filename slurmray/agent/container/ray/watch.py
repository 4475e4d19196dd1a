"""Watches the start of Ray on one node, as Ray may need minutes to notice an error."""

import os
import sys
import time

from ...errors import JobError
from .. import process_tree
from . import ports, preload

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, List, Set

    from ..node_context import NodeContext

LAST_LINES = 5  # of a log of Ray
INTERVAL = 1.0  # seconds between two checks
TRAINER_BEGINS = 60.0  # seconds in which a trainer may end Ray, to start one of its own
SEE_LOG = "The node's log has its last lines"


class RayWatch:
    """Checks Ray's processes and ports once a second until `ray start` itself notices ended processes."""

    def __init__(self, context: "NodeContext") -> None:
        self.context = context
        self.ports: "List[int]" = []
        self.is_active = False
        self.has_gcs_answered = False  # other nodes may know the ports, so they cannot change any more
        self.guards_ports = False  # another process may still take a leased port
        self.port_was_taken = False
        self.plain_reason = ""  # why Ray's own start is used; "" for fast
        self._due = 0.0
        self._ended: "Dict[int, str]" = {}  # pid -> name of processes that had ended at the last check

    def begin(self, leased_ports: "List[int]") -> None:
        """Start watching: Ray is being started with these ports."""
        self.ports = leased_ports
        self.is_active = self.guards_ports = True
        self.port_was_taken, self._ended = False, {}
        self._due = time.monotonic() + INTERVAL
        try:
            os.unlink(self._path(preload.STARTED))  # of an earlier try
        except FileNotFoundError:
            pass

    def release_ports(self) -> None:
        """Stop watching ports: the cluster is ready, and the trainer listens on one of them."""
        self.guards_ports = False

    def is_started(self) -> bool:
        """Whether all processes of Ray have been started: `ray start` notices their end from then on.

        Ray's own start begins the raylet last, so once the node is in the GCS all have been started.
        """
        return os.path.exists(self._path(preload.STARTED)) or bool(
            self.plain_reason and self.context.is_ready
        )

    def is_dashboard_started(self) -> bool:
        """Whether the dashboard of a head node that is in the GCS answers or has failed."""
        return os.path.exists(self._path(preload.STARTED)) or bool(self.plain_reason)

    def tick(self) -> None:
        """Check if due. Called in each turn of the loop."""
        if not self.is_active or time.monotonic() < self._due:
            return
        self._due = time.monotonic() + INTERVAL
        self._read_plain_reason()
        self.is_active = self.guards_ports or not self.is_started()
        if self.is_active and not self.is_port_taken():
            self._detect_end()

    def use_plain(self, reason: str) -> None:
        """Note that Ray's own start is used, and report it."""
        self.plain_reason = reason
        self.context.phase("ray", "using Ray's own start: " + reason)

    def is_healthy(self) -> bool:
        """Whether Ray's essential processes run on this node."""
        return self._essential() <= set(process_tree.descendant_names().values())

    def is_port_taken(self) -> bool:
        """Whether another process took a port between lease and use. If so, kills Ray to start it again."""
        taken = ports.taken_ports(self.ports) if self.guards_ports else []
        if taken and not self.port_was_taken:
            text = "another process took port %d of this node after it was chosen" % taken[0]
            if self.has_gcs_answered:
                raise JobError("bring_up", text + ". Submit the job again")
            sys.stderr.write(text + ": Ray is started again\n")
            sys.stderr.flush()
            self.port_was_taken = True
            self.context.children.kill("ray")
        return self.port_was_taken

    def _read_plain_reason(self) -> None:
        try:
            with open(self._path(preload.NOT_FAST)) as file:
                reason = file.read()
        except FileNotFoundError:
            return
        if not self.plain_reason:
            self.use_plain(reason)

    def _essential(self) -> "Set[str]":
        return {"raylet", "gcs_server"} if self.context.is_head else {"raylet"}

    def _detect_end(self) -> None:
        """Raise a JobError if an essential process has ended, which `ray start` does not notice so early.

        It must be a zombie in two checks: others, e.g. `raylet --help`, are reaped at once.
        """
        before, self._ended = self._ended, process_tree.descendant_names(ended=True)
        for name in sorted(self._essential() & {before.get(pid, "") for pid in self._ended}):
            show_last_lines(self.context.folder)
            raise JobError("ray", self.end_text(name + " exited"))

    def end_text(self, text: str) -> str:
        """The message about a process of Ray that has ended. text: which, e.g. `raylet exited`."""
        started = self.context.trainer_started
        if started is not None and time.monotonic() - started < TRAINER_BEGINS:
            text += " while the trainer ran. Does it run ray stop or pkill? Remove that: Ray runs already"
        elif not self.context.is_ready:
            text += " while Ray was starting"
        return "%s. %s" % (text, SEE_LOG)

    def _path(self, name: str) -> str:
        return os.path.join(self.context.folder, name)


def show_last_lines(folder: str) -> None:
    """Copy the last lines of Ray's error logs into the node's log, as `ray start` does not show them."""
    import glob

    for name in ("gcs_server", "raylet"):
        pattern = os.path.join(glob.escape(folder), "session_2*", "logs", name + ".err")
        for path in sorted(glob.glob(pattern))[-1:]:
            with open(path, errors="replace") as file:
                text = file.read().partition("*** StackTrace")[0]
            for line in text.splitlines()[-LAST_LINES:]:
                sys.stderr.write("%s: %s\n" % (name, line))
    sys.stderr.flush()
