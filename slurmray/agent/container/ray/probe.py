"""The readiness probe: waits until every node is alive in Ray with its GPUs.

Runs in a thread of the head node's `ray start`, which has imported Ray, from the end of its standard input
on: the GCS has answered. It sends the controller what it finds, and writes its result to the file RESULT.
"""

import os
import sys
import traceback

from ... import background_io, paths
from .readiness import evaluate, node_table, not_ready, wait_until_ready

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List

    from ...wire import messages

    Send = Callable[[messages.ToController], None]

RESULT = "probed"  # file in the job's folder, with READY or FAILED
READY, FAILED = "ready", "failed"  # failed: it has sent the message
NAMES_SENT = 10  # nodes in a message, which has at most 1,000 bytes; a name has at most 64


def start(folder: str, address: str, expected: "Dict[str, int]", timeout: float, send: "Send") -> None:
    """Start the thread.

    folder: of the job. address: `host:port` of the GCS. expected: GPUs by node, the head node first. timeout:
    seconds.
    """

    def run() -> None:
        sys.stdin.read()
        try:
            is_ready = _wait(address, expected, timeout, send)
        except Exception as error:
            traceback.print_exc()
            message = "the readiness probe failed: %s. The node's log has the traceback" % error
            send({"type": "failed", "kind": "probe", "message": message})
            is_ready = False
        paths.replace(os.path.join(folder, RESULT), (READY if is_ready else FAILED).encode())

    background_io.start("probe", run)


def _wait(address: str, expected: "Dict[str, int]", timeout: float, send: "Send") -> bool:
    """Whether all nodes are ready in time. If not, the controller knows which are not."""
    head = next(iter(expected))
    read_table = node_table(address)
    has_joined = False
    unready = dict(expected)

    def read_and_send() -> "List[Dict[str, Any]]":
        nonlocal has_joined
        table = read_table()
        # Workers join only now: one that finds no head node in the GCS retries every two seconds.
        if not has_joined and any(row["Alive"] and row["NodeName"] == head for row in table):
            has_joined = True
            send({"type": "join", "address": address})
        send_joined(evaluate(table, unready)[2], unready, send)
        return table

    def send_progress(text: str) -> None:
        send({"type": "phase", "phase": "probe", "text": text})

    lacking = wait_until_ready(read_and_send, expected, timeout, send_progress)
    for name, why in lacking.items():
        send({"type": "not_ready", "missing": name, "why": why})
    if lacking:
        send({"type": "failed", "kind": "probe", "message": not_ready(lacking, expected, timeout)})
    return not lacking


def send_joined(lacking: "Dict[str, str]", unready: "Dict[str, int]", send: "Send") -> None:
    """Send the controller which nodes have joined with all their GPUs, and remove them from `unready`.

    lacking: those that have not. unready: GPUs by node.
    """
    ready: "Dict[int, List[str]]" = {}
    for name in [name for name in unready if name not in lacking]:
        ready.setdefault(unready.pop(name), []).append(name)
    for gpus, names in ready.items():
        for first in range(0, len(names), NAMES_SENT):
            send({"type": "joined", "nodes": names[first : first + NAMES_SENT], "gpus": gpus})
