"""Watches the start of Ray on one node, as Ray may need minutes to notice an error."""

import os
import sys
import time

from ...job_errors import JobError
from .. import ports, process_tree
from ..part import Part
from . import fast_start, preload

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, List, Set

    from ..node_context import NodeContext

LAST_LINES = 5  # of a log of Ray
INTERVAL = 1.0  # seconds between two checks
TRAINER_BEGINS = 60.0  # seconds in which a trainer may end Ray, to start one of its own
PORTS_WAIT = 120.0  # seconds after `ready` for Ray's processes to listen: the dashboard is the last one
SEE_LOG = "The node's log has its last lines"


class RayWatch(Part):
    """Checks Ray's processes and ports once a second until `ray start` itself notices ended processes."""

    is_busy = False

    def __init__(self, context: "NodeContext") -> None:
        self.context = context
        self.has_gcs_answered = False  # other nodes may know the ports, so they cannot change any more
        self.own_ports: "Set[int]" = set()  # leased ports on which a process of the job has listened
        self.port_was_taken = False
        self.standard_reason = ""  # why Ray's own start is used; "" for fast
        self._due = 0.0
        self._ended: "Dict[int, str]" = {}  # pid -> name of processes that had ended at the last check
        self._guarded: "Set[int]" = set()  # leased ports that another process may still take
        self._named: "Set[int]" = set()  # leased ports that are in the options of `ray start`
        self._dashboard = 0  # port
        self._guarded_until = float("inf")

    def start(self, argv: "List[str]") -> None:
        """Start watching: Ray is being started with the leased ports. argv: of `ray start`."""
        self._guarded, self._dashboard = set(self.context.ports), self.context.ports[ports.DASHBOARD]
        self._named = {
            port for port in self._guarded if any(option.endswith("port=%d" % port) for option in argv)
        }
        self.is_busy, self.own_ports = True, set()
        self.port_was_taken, self._ended = False, {}
        self._guarded_until = float("inf")
        self._due = time.monotonic() + INTERVAL
        try:
            os.unlink(self._path(fast_start.STARTED))  # of an earlier try
        except FileNotFoundError:
            pass

    def release_ports(self) -> None:
        """Guard only ports that Ray is still to open: the cluster is ready, the trainer may take another."""
        self._guarded &= self._named
        self._guarded_until = time.monotonic() + PORTS_WAIT

    @property
    def has_dashboard(self) -> bool:
        """Whether a process of the job has listened on the dashboard's port."""
        return self._dashboard in self.own_ports

    def is_started(self) -> bool:
        """Whether all processes of Ray have been started: `ray start` notices their end from then on.

        Ray's own start begins the raylet last, so once the node is in the GCS all have been started.
        """
        return os.path.exists(self._path(fast_start.STARTED)) or bool(
            self.standard_reason and self.context.is_ready
        )

    def is_raylet_running(self) -> bool:
        """Whether the raylet of this node runs, once it is to: drivers wait some seconds until it answers."""
        return self.is_dashboard_started() and self.is_healthy()

    def is_dashboard_started(self) -> bool:
        """Whether the dashboard of a head node that is in the GCS answers or has failed.

        On a worker: whether all has been started, but for a standard start, where that is unknown.
        """
        return os.path.exists(self._path(fast_start.STARTED)) or bool(self.standard_reason)

    def tick(self) -> None:
        """Check if due. Called in each turn of the loop."""
        if not self.is_busy or time.monotonic() < self._due:
            return
        self._due = time.monotonic() + INTERVAL
        self._read_standard_reason()
        if time.monotonic() > self._guarded_until:
            self._guarded = set()
        is_taken = self.is_port_taken()
        is_started = self.is_started()
        self.is_busy = bool(self._guarded) or not is_started
        if not (is_taken or is_started):
            self._detect_end()

    def use_standard(self, reason: str) -> None:
        """Note that Ray's own start is used, and log it once. reason: "" for fast."""
        if reason and not self.standard_reason:
            self.standard_reason = reason
            self.context.phase("ray", "using Ray's own start: " + reason)

    def is_healthy(self) -> bool:
        """Whether Ray's essential processes run on this node."""
        return self._essential() <= set(process_tree.descendant_names().values())

    def is_port_taken(self) -> bool:
        """Whether another process took a port between lease and use. If so, kills Ray to start it again.

        A cluster that is ready goes on, as does one without its dashboard: the log then names the port.
        """
        own, taken = ports.listeners(self._guarded) if self._guarded else (set(), set())
        self.own_ports |= own
        self._guarded -= own | taken
        for port in sorted(taken):
            message = "another process took port %d of this node after it was chosen" % port
            if self.context.is_ready or (self.has_gcs_answered and port == self._dashboard):
                self._log_taken(port)
            elif self.has_gcs_answered:
                raise JobError("bring_up", message + ". Submit the job again")
            elif not self.port_was_taken:
                sys.stderr.write(message + ": Ray is started again\n")
                sys.stderr.flush()
                self.port_was_taken = True
                self.context.children.kill("ray")
        return self.port_was_taken

    def _log_taken(self, port: int) -> None:
        is_dashboard = port == self._dashboard
        found = "a process that is not of this job listens on it"
        wanted = "Ray's dashboard" if is_dashboard else "a process of Ray"
        fix = "do without slurmray dashboard in this job" if is_dashboard else "submit the job again"
        self.context.send_finding("warn", "port %d" % port, found, wanted, fix)

    def _read_standard_reason(self) -> None:
        try:
            with open(self._path(preload.NOT_FAST)) as file:
                self.use_standard(file.read())
        except FileNotFoundError:
            pass

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
