"""Whether a Ray cluster is ready: every node is alive in Ray with its GPUs.

dstack tasks contain this file, too, so it imports nothing of the agent.
"""

import importlib
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List, Tuple

NAMES_SHOWN = 4  # nodes named in a line; there may be hundreds


def evaluate(table: "List[Dict[str, Any]]", expected: "Dict[str, int]") -> "Tuple[int, int, Dict[str, str]]":
    """(number of alive nodes, number of their GPUs, {node: why it is not ready}).

    table: rows as in `ray.nodes()`. expected: GPUs by node.
    """
    alive = {row["NodeName"]: int(row["Resources"].get("GPU", 0)) for row in table if row["Alive"]}
    lacking = {}
    for name, gpus in expected.items():
        if name not in alive:
            lacking[name] = "has not joined"
        elif alive[name] < gpus:
            lacking[name] = "has %d of %d GPUs" % (alive[name], gpus)
    here = [name for name in expected if name in alive]
    return len(here), sum(alive[name] for name in here), lacking


def progress(nodes: int, total_gpus: int, lacking: "Dict[str, str]", expected: "Dict[str, int]") -> str:
    """`3/4 nodes, 24/32 GPUs, waiting for gpu-2`."""
    waiting = ", waiting for " + _names(list(lacking)) if lacking else ""
    wanted = sum(expected.values())
    devices = ", %d/%d GPUs" % (total_gpus, wanted) if wanted else ""
    return "%d/%d nodes%s%s" % (nodes, len(expected), devices, waiting)


def not_ready(lacking: "Dict[str, str]", expected: "Dict[str, int]", timeout: float) -> str:
    """`cluster not ready after 600 s: 3 of 4 nodes joined, missing node4. FIX`."""
    missing = [name for name, why in lacking.items() if why == "has not joined"]
    joined = len(expected) - len(missing)
    parts = ["%d of %d nodes joined" % (joined, len(expected))]
    if missing:
        parts.append("missing " + _names(missing))
    other = ["%s %s" % (name, why) for name, why in lacking.items() if name not in missing]
    parts += [_names(other)] if other else []
    fix = "Look at the logs of these nodes, or raise ray.ready_timeout"
    return "cluster not ready after %g s: %s. %s" % (timeout, ", ".join(parts), fix)


def wait_until_ready(
    read_table: "Callable[[], List[Dict[str, Any]]]",
    expected: "Dict[str, int]",
    timeout: float,
    on_progress: "Callable[[str], None]",
    clock: "Callable[[], float]" = time.monotonic,
    pause: "Callable[[float], None]" = time.sleep,
) -> "Dict[str, str]":
    """Read the table until the cluster is ready or the timeout is over.

    Returns {node: why it is not ready}. expected: GPUs by node. timeout: seconds. on_progress: called
    with each new line about it.
    """
    deadline = clock() + timeout
    last = ""
    while True:
        began = clock()
        nodes, total, lacking = evaluate(read_table(), expected)
        text = progress(nodes, total, lacking, expected)
        if text != last:
            on_progress(text)
            last = text
        if not lacking or clock() >= deadline:
            return lacking
        # The table of 1,000 nodes is large. That of a few is asked for often, as all wait for its last node.
        pause(min(0.2, max(0.02, 4 * (clock() - began))))


def node_table(address: str) -> "Callable[[], List[Dict[str, Any]]]":
    """Return a function that reads the node table of the GCS. address: `host:port`.

    `ray.init` would register a driver, for which the raylet starts a worker process per CPU.
    """
    from ray._private.state import GlobalState

    options = importlib.import_module("ray._raylet").GcsClientOptions  # Ray's types do not name it
    state = GlobalState()
    state._initialize_global_state(
        options.create(address, None, allow_cluster_id_nil=True, fetch_cluster_id_if_nil=False)
    )
    read: "Callable[[], List[Dict[str, Any]]]" = state.node_table
    return read


def _names(names: "List[str]") -> str:
    more = len(names) - NAMES_SHOWN
    return ", ".join(names[:NAMES_SHOWN]) + (" and %d more" % more if more > 0 else "")
