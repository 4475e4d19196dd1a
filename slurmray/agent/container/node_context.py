"""The shared state of the container process: node, job, child processes, messages to the controller."""

import os
import sys

from .. import nodes, paths
from ..wire import codec
from . import process_tree

TYPE_CHECKING = False
if TYPE_CHECKING:
    import threading
    from typing import Any, Callable, Dict, List, Optional, Tuple

    from ..wire import messages
    from ..wire.settings import Group, Job, Settings
    from .node_address import Address

STDOUT = 1
# File in the job's folder, by which the container process starts again after container.setup: what that
# exports as JSON, then messages.
RESUME = "resume"


def send_to_controller(node: str, message: "messages.ToController") -> None:
    """Send a message to the controller, in one write, as other processes use the same pipe."""
    data = codec.encode_to_controller(message, node)
    try:
        os.write(STDOUT, data)
    except BrokenPipeError:  # the node agent is gone; the input ends, too
        pass


class NodeContext:
    """The node as the container process sees it.

    folder: the job's folder, with the program `agent`. The messages `settings`, `job` and `node` set the
    other fields before Ray is started.
    """

    def __init__(self, folder: str, name: str, on_child_end: "Callable[[str, int], None]") -> None:
        self.folder = folder
        self.name = name
        self.children = process_tree.Children(on_child_end)
        self.settings: "Settings"
        self.job: "Job"
        self.rank = -1  # index in job["nodes"], and after these in job["spares"]; -1: unknown so far
        self.user = ""
        self.memory = 0  # MiB of the job on this node; 0: unknown
        self.addresses: "List[str]" = []  # of the node's name, in the resolver's order
        self.labels: "Dict[str, str]" = {}  # of the node in Ray
        self.runtime = ""  # name of the runtime
        self.unset: "List[str]" = []  # variables to remove in order to attach from outside
        self.workdir = ""  # working directory of Ray and the trainer
        self.gpu_masks: "Dict[str, str]" = {}  # GPU_MASKS as Slurm set them
        self.env_file: "Dict[str, str]" = {}
        self.node_env: "Dict[str, str]" = {}
        self.setup_env: "Dict[str, Optional[str]]" = {}  # what container.setup exports; None: what it unsets
        self.peers: "List[str]" = []  # addresses of all nodes; empty unless a proxy is set
        self.is_guarded = False  # runs below guard.py: Python and Ray may differ between nodes
        self.ray_version: "Tuple[int, ...]" = ()  # (major, minor), known before Ray starts
        self.token = ""  # path of Ray's token; "": Ray requires none
        # Known once Ray gets its address on this node:
        self.address = ""
        self.interfaces: "List[Tuple[str, Address]]" = []  # see node_address.local_addresses
        self.ports: "List[int]" = []
        self.gcs = ""  # `host:port` of the GCS
        self.connection_checks: "List[threading.Thread]" = []  # until each ends, it may send a finding
        self.burn_in_port = 0  # of PyTorch's store on the head node
        self.is_replacement = False  # it was a spare node, and takes the place of a lost one
        self.is_ready = False  # the cluster is ready, with this node in it
        self.trainer_started: "Optional[float]" = None  # time.monotonic() when the trainer was started here
        self.has_succeeded = False  # the trainer exited with 0
        # Of the grace period, time.monotonic(); None: the job is not being ended.
        self.deadline: "Optional[float]" = None

    @property
    def is_head(self) -> bool:
        """Whether this is the head node."""
        return self.rank == 0

    @property
    def group(self) -> "Group":
        """The group of this node."""
        return self.settings["groups"][self._group_number]

    @property
    def cpus(self) -> int:
        """CPUs of the job on this node."""
        return self.job["cpus"][self._group_number]

    @property
    def _group_number(self) -> int:
        return nodes.group_number(self.settings, self.rank, self.job["spares_of_groups"])

    @property
    def ray_nodes(self) -> "List[str]":
        """The nodes in Ray, the head node first."""
        return self.job["nodes"][: self.settings["ray"]["nodes"]]

    @property
    def is_in_ray(self) -> bool:
        """Whether this node is one of them."""
        return self.rank < self.settings["ray"]["nodes"]

    @property
    def is_spare(self) -> bool:
        """Whether this node waits for another one to fail."""
        return self.name in self.job["spares"]

    @property
    def attempt_name(self) -> str:
        """`JOBID-ATTEMPT`."""
        return "%s-%d" % (self.job["id"], self.job["attempt"])

    @property
    def end_time(self) -> str:
        """When Slurm ends the job, in seconds since 1970; "": without a time limit, or unknown."""
        return str(self.job["end_time"] or "")

    def write_end_time(self) -> None:
        """Write it to a file in the job's folder, where the trainer can look again."""
        try:
            paths.replace(os.path.join(self.folder, paths.END_TIME), self.end_time.encode() + b"\n")
        except OSError as error:  # e.g. a full disk, which need not end the job
            sys.stderr.write("cannot write the file %s: %s\n" % (paths.END_TIME, error.strerror))

    def own_items(self, items: "List[Dict[str, Any]]") -> "List[Dict[str, Any]]":
        """The items of `prepare` or `services` that run on this node."""
        names, count = self.job["nodes"], self.settings["ray"]["nodes"]
        return [item for item in items if self.name in nodes.places(item["where"], names, count)]

    def program(self, role: str) -> "List[str]":
        """argv that starts a role of this package.

        Not isolated (-I): it may import Ray or the trainer's packages from PYTHONPATH or the user's folder.
        """
        return [sys.executable, os.path.join(self.folder, "agent"), role]

    def send(self, message: "messages.ToController") -> None:
        """Send a message to the controller."""
        send_to_controller(self.name, message)

    def phase(self, phase: str, text: str) -> None:
        """Log progress."""
        self.send({"type": "phase", "phase": phase, "text": text})

    def finding(self, kind: str, check: str, found: str, wanted: str, fix: str, worker: str = "") -> None:
        """Send a finding. It ends the job, unless `kind` or the setting `preflight` is "warn".

        worker: that does not match the head node; either of them may be the reason.
        """
        level = self.settings["preflight"]
        if level != "none":
            self.send_finding("warn" if level == "warn" else kind, check, found, wanted, fix, worker)

    def send_finding(
        self, kind: str, check: str, found: str, wanted: str, fix: str, worker: str = ""
    ) -> None:
        """Send a finding, whatever the setting `preflight` is."""
        message: "messages.Finding" = {
            "type": "finding",
            "kind": kind,
            "check": check,
            "found": found,
            "wanted": wanted,
            "fix": fix,
        }
        if worker:
            message["worker"] = worker
        self.send(message)

    @property
    def is_strict(self) -> bool:
        """Whether a finding ends the job."""
        return self.settings["preflight"] == "fail"
