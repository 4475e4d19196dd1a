"""The readiness probe: waits until every node is alive in Ray with its GPUs.

Role `probe`, with the arguments NODE TIMEOUT NODE GPUS...: this node, seconds, and each node with its GPUs.
It imports Ray, which takes a second, and then reads `host:port` of the GCS from standard input. Messages to
the controller go to standard output. Exit code 0: ready. NOT_READY: not ready in time; it has sent `failed`.
"""

import importlib
import sys

from ..node_context import send_to_controller
from .readiness import evaluate, node_table, not_ready, wait_until_ready

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List

NOT_READY = 3
NAMES_SENT = 10  # nodes in a message, which has at most 1,000 bytes; a name has at most 64


def main(argv: "List[str]") -> int:
    """Run the probe. argv: NODE TIMEOUT NODE GPUS..."""
    node, timeout, *rest = argv
    expected = dict(zip(rest[::2], map(int, rest[1::2])))
    importlib.import_module("ray._private.state")  # early, while the GCS starts
    address = sys.stdin.read().strip()
    read_table = node_table(address)
    joined: "List[str]" = []
    unready = dict(expected)

    def read_and_send() -> "List[Dict[str, Any]]":
        table = read_table()
        # Workers join only now: one that finds no head node in the GCS retries every two seconds.
        if not joined and any(row["Alive"] and row["NodeName"] == node for row in table):
            joined.append(node)
            send_to_controller(node, {"type": "join", "address": address})
        send_joined(node, evaluate(table, unready)[2], unready)
        return table

    def send_progress(text: str) -> None:
        send_to_controller(node, {"type": "phase", "phase": "probe", "text": text})

    lacking = wait_until_ready(read_and_send, expected, float(timeout), send_progress)
    if not lacking:
        return 0
    for name, why in lacking.items():
        send_to_controller(node, {"type": "not_ready", "missing": name, "why": why})
    send_to_controller(
        node, {"type": "failed", "kind": "probe", "message": not_ready(lacking, expected, float(timeout))}
    )
    return NOT_READY


def send_joined(node: str, lacking: "Dict[str, str]", unready: "Dict[str, int]") -> None:
    """Send the controller which nodes have joined with all their GPUs, and remove them from `unready`.

    node: this one. lacking: those that have not. unready: GPUs by node.
    """
    ready: "Dict[int, List[str]]" = {}
    for name in [name for name in unready if name not in lacking]:
        ready.setdefault(unready.pop(name), []).append(name)
    for gpus, names in ready.items():
        for first in range(0, len(names), NAMES_SENT):
            send_to_controller(
                node, {"type": "joined", "nodes": names[first : first + NAMES_SENT], "gpus": gpus}
            )
