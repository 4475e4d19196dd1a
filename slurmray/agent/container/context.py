"""What every part of the container process knows: node, job, children, and how to send messages."""

import os

from .. import protocol
from . import process_tree

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List, Optional

    from ..settings import Job, Settings

STDOUT = 1


def send_to_controller(node: str, message_type: str, **fields: "Any") -> None:
    """Write one message in one piece: other processes write to the same pipe."""
    data = protocol.encode_to_controller(dict(fields, type=message_type, node=node))
    try:
        os.write(STDOUT, data)
    except BrokenPipeError:  # the node agent is gone; the end of the input is about to tell
        pass


class Context:
    """One node of the job, seen from inside its container.

    folder: the job's private folder, which holds the package `agent`. The fields `settings`, `job` and those
    of the message `node` are there once the messages have come, that is before Ray is started.
    """

    def __init__(self, folder: str, name: str, on_child_end: "Callable[[str, int], None]") -> None:
        self.folder = folder
        self.name = name
        self.children = process_tree.Children(on_child_end)
        self.settings: "Settings"
        self.job: "Job"
        self.rank = -1  # index in job["nodes"]; -1: not known yet
        self.user = ""
        self.memory = 0  # MiB of the job on this node; 0: unknown
        self.addresses: "List[str]" = []  # what the node's resolver answers for its name, best first
        self.exec_prefix: "List[str]" = []  # what runs a command inside this container; empty: none is needed
        self.workdir = ""  # where Ray and the trainer run
        self.peers: "List[str]" = []  # addresses of all nodes; empty where no proxy is set
        self.is_guarded = False  # no container: Python and Ray are what the job spec's `setup` activated
        self.is_ready = False  # whether the cluster is
        self.deadline: "Optional[float]" = None  # time.monotonic() at which what was asked to end is killed

    @property
    def is_head(self) -> bool:
        """Whether this is the head node."""
        return self.rank == 0

    @property
    def attempt_name(self) -> str:
        """`JOBID-ATTEMPT`."""
        return "%s-%d" % (self.job["id"], self.job["attempt"])

    def program(self, role: str) -> "List[str]":
        """argv that starts a role of this package.

        Not isolated (-I), as it may import Ray or what the trainer has: PYTHONPATH and the user's packages
        count.
        """
        import sys

        return [sys.executable, os.path.join(self.folder, "agent"), role]

    def send(self, message_type: str, **fields: "Any") -> None:
        """Send a message to the controller."""
        send_to_controller(self.name, message_type, **fields)

    def phase(self, phase: str, text: str) -> None:
        """Tell the job's log that something has happened."""
        self.send("phase", phase=phase, text=text)

    def finding(self, kind: str, check: str, found: str, wanted: str, fix: str) -> None:
        """Send a finding. kind: "warn" does not end the job, nor does any where preflight is "warn"."""
        level = self.settings["preflight"]
        if level != "none":
            kind = "warn" if level == "warn" else kind
            self.send("finding", kind=kind, check=check, found=found, wanted=wanted, fix=fix)

    @property
    def is_strict(self) -> bool:
        """Whether a finding ends the job."""
        return self.settings["preflight"] == "fail"

    def facts(self, address: str) -> "Dict[str, str]":
        """Variables with this node's place in the job. address: of the GCS; "" before it is ready."""
        found = {
            "NNODES": str(len(self.job["nodes"])),
            "NODE_RANK": str(self.rank),
            "GPUS_PER_NODE": str(self.settings["ray"]["gpus"]),
            "SLURMRAY_ATTEMPT": str(self.job["attempt"]),
        }
        if address:
            found["RAY_ADDRESS"] = address
        return found
