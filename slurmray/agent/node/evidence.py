"""Writes what this node shows of a stalled trainer into the run directory: its GPUs, then its container."""

import os
import time

from .. import command_runner, paths

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .agent_interface import NodeApi

TIMEOUT = 20.0  # seconds for nvidia-smi
CONTAINER_WAIT = 35.0  # seconds for the container's part
MAX_SIZE = 4 << 20  # bytes of that


def collect(node: "NodeApi", number: int) -> None:
    """Write logs/stall-NUMBER/NODE.txt. OSError where that is impossible."""
    folder = os.path.join(os.path.dirname(node.log_path), "stall-%d" % number)
    os.makedirs(folder, 0o755, exist_ok=True)
    with open(os.path.join(folder, node.name + ".txt"), "wb", opener=paths.own_file) as file:
        if node.gpus:
            done = command_runner.run(["nvidia-smi"], node.env, TIMEOUT, lambda: node.mail.is_stopped, False)
            text = "== nvidia-smi\n%s\n" % (done.out or done.why)
            file.write(text.encode("utf-8", "replace"))
        file.write(_from_container(node, os.path.join(node.inside, "evidence-%d.txt" % number)))


def _from_container(node: "NodeApi", path: str) -> bytes:
    due = time.monotonic() + CONTAINER_WAIT
    while True:
        is_last = node.mail.is_stopped or time.monotonic() > due
        try:
            return paths.read_begin(path, MAX_SIZE)[0]  # any program in the container can make it
        except FileNotFoundError:
            if is_last:
                return b"== the container process has sent nothing\n"
            time.sleep(0.2)
