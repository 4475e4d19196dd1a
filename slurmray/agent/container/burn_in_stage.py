"""The stage in which GPUs are measured before the trainer starts: `checks.burn_in`."""

import json
import os
import signal
import subprocess
import time

from .. import nodes
from ..job_errors import JobError
from . import process_tree, variables
from .ray import node_address
from .stage import Stage

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import IO, Any, Dict, Optional

    from .node_context import NodeContext

LIMIT = 400  # seconds beside checks.burn_in: more than burn_in.py can need
OUTPUT = "burn-in"  # file in the job's folder with the figures


class BurnInStage(Stage):
    """Runs burn_in.py, which imports PyTorch while Ray starts, on each node in Ray that has GPUs.

    Where no node has any, all take part with their CPUs. The head node always has PyTorch's store.
    """

    def __init__(self, context: "NodeContext", name: str) -> None:
        super().__init__(context, name)
        settings, counts = context.settings, context.job["spares_of_groups"]
        groups = [nodes.group_number(settings, rank, counts) for rank in range(settings["ray"]["nodes"])]
        self._gpus = [settings["groups"][number]["gpus_per_node"] for number in groups]
        self._limit = settings["checks"]["burn_in"] + LIMIT
        self._deadline: "Optional[float]" = None  # time.monotonic()
        self._input: "Optional[IO[bytes]]" = None
        self._is_measured = context.is_in_ray and bool(self._gpus[context.rank] or not any(self._gpus))
        if self._is_measured or context.is_head:
            argv = [*context.program(name), str(settings["checks"]["burn_in"])]
            env = variables.collect(variables.GPU_CHECK, context)
            with open(os.path.join(context.folder, OUTPUT), "wb") as out:
                child = context.children.spawn(name, argv, env, out, stdin=subprocess.PIPE)
            self._input = child.stdin

    def begin(self) -> None:
        """Let it measure: the cluster is ready."""
        context = self.context
        if self._input:
            request = {
                "gpus": self._gpus,
                "rank": context.rank,
                "address": node_address.split_host_port(context.gcs)[0],
                "port": context.burn_in_port,
                "env": variables.collect(variables.GPU_CHECK, context),
            }
            process_tree.write_and_close(self._input, json.dumps(request).encode())
            self._deadline = time.monotonic() + self._limit
        if not self._is_measured:
            self.report_done()

    def tick(self) -> None:
        """Give up on a program that has not ended in time, as importing PyTorch may hang, too."""
        if self._deadline is not None and not self.is_done_here and time.monotonic() > self._deadline:
            self._report({"problems": [["burn-in", "no end after %d s" % self._limit]]})
            self.end()

    def end(self) -> None:
        """End the program, e.g. PyTorch's store on a head node without GPUs."""
        pid = self.context.children.find_pid(self.name)
        if pid is not None:
            os.killpg(pid, signal.SIGKILL)

    def child_ended(self, kind: str, name: str, code: int) -> None:
        """Send the figures. JobError where the image has no PyTorch."""
        del kind, name
        if self.context.deadline is not None or self.is_done_here:
            return
        figures: "Dict[str, Any]" = {"problems": [["burn-in", "its program exited with %d" % code]]}
        with open(os.path.join(self.context.folder, OUTPUT), errors="replace") as file:
            text = file.read()
        if text.endswith("}"):  # else it was killed
            figures = json.loads(text)
        if "error" in figures:
            raise JobError("image", "checks.burn_in: %s. Install PyTorch in the image" % figures["error"])
        self._report(figures)

    def _report(self, figures: "Dict[str, Any]") -> None:
        self.is_done_here = True
        self.context.send(
            {
                "type": "burn_in",
                "kind": figures.get("kind", ""),
                "products": figures.get("products", []),
                "copies": figures.get("copies", []),
                "within": figures.get("within", 0),
                "pairs": figures.get("pairs", 0),
                "all": figures.get("all", 0),
                "problems": figures["problems"],
            }
        )
