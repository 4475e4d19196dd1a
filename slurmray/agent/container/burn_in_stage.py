"""The stage in which GPUs are measured before the trainer starts: `checks.burn_in`."""

import json
import os
import subprocess
import time

from .. import nodes
from ..job_errors import JobError
from . import node_address, process_tree, variables
from .stage import Stage

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import IO, Any, Dict, List, Optional

    from .node_context import NodeContext

LIMIT = 450  # seconds beside checks.burn_in: more than burn_in.py can need
OUTPUT = "burn-in"  # file in the job's folder with the figures
STORE = "burn-in-store"  # role of PyTorch's store, on the head node


class BurnInStage(Stage):
    """Runs burn_in.py, which imports PyTorch while Ray starts, on each node in Ray that has GPUs.

    Where no node has any, all take part with their CPUs.
    """

    def __init__(self, context: "NodeContext", name: str) -> None:
        super().__init__(context, name)
        self.kinds = (name, STORE)
        settings, counts = context.settings, context.job["spares_of_groups"]
        groups = [nodes.group_number(settings, rank, counts) for rank in range(settings["ray"]["nodes"])]
        self._gpus = [settings["groups"][number]["gpus_per_node"] for number in groups]
        self._limit = settings["checks"]["burn_in"] + LIMIT
        self._deadline: "Optional[float]" = None  # time.monotonic()
        self._inputs: "List[Optional[IO[bytes]]]" = []
        self._is_measured = context.is_in_ray and bool(self._gpus[context.rank] or not any(self._gpus))
        if context.is_head:
            self._start(STORE, "store", os.devnull)
        if self._is_measured:
            self._start(name, str(settings["checks"]["burn_in"]), os.path.join(context.folder, OUTPUT))

    def _start(self, role: str, argument: str, output: str) -> None:
        context = self.context
        argv = [*context.program(self.name), argument]
        with open(output, "wb") as out:
            env = variables.collect(variables.GPU_CHECK, context)
            self._inputs.append(context.children.spawn(role, argv, env, out, stdin=subprocess.PIPE).stdin)

    def begin(self) -> None:
        """Let it measure: the cluster is ready."""
        context = self.context
        request = {
            "gpus": self._gpus,
            "rank": context.rank,
            "address": node_address.split_host_port(context.gcs)[0] if self._inputs else "",
            "port": context.burn_in_port,
            "env": variables.collect(variables.GPU_CHECK, context),
        }
        for pipe in self._inputs:
            process_tree.write_and_close(pipe, json.dumps(request).encode())
        self._deadline = time.monotonic() + self._limit
        if not self._is_measured:
            self.send_done()

    def tick(self) -> None:
        """Give up on a program that has not ended in time, as importing PyTorch may hang, too."""
        if self._deadline is not None and time.monotonic() > self._deadline:
            self._send({"problems": [["burn-in", "no end after %d s" % self._limit]]})
            self.end()

    def end(self) -> None:
        """End what still runs: PyTorch's store."""
        for kind in self.kinds:
            self.context.children.send_signal(kind, "KILL")

    def child_ended(self, kind: str, name: str, code: int) -> None:
        """Send the figures. JobError where the image has no PyTorch."""
        del name
        if self.context.deadline is not None or self.is_done_here or kind == STORE:
            return
        figures: "Dict[str, Any]" = {"problems": [["burn-in", "its program exited with %d" % code]]}
        with open(os.path.join(self.context.folder, OUTPUT), errors="replace") as file:
            text = file.read()
        if text.endswith("}"):  # else it was killed
            figures = json.loads(text)
        if "error" in figures:
            raise JobError("image", "checks.burn_in: %s. Install PyTorch in the image" % figures["error"])
        self._send(figures)

    def _send(self, figures: "Dict[str, Any]") -> None:
        self.is_done_here = True
        none = {"kind": "", "products": [], "copies": [], "within": 0, "pairs": 0, "all": 0}
        message: "Any" = dict(none, type="burn_in", **figures)
        self.context.send(message)
