"""The readiness check: waits until every node is alive in Ray with the GPUs it was promised.

`probe.py NODE GPUS_PER_NODE TIMEOUT NODE...`: NODE is the node this runs on, TIMEOUT is in seconds. It
imports Ray, which takes a second, and begins when it is told `host:port` of the GCS on standard input.
Messages go to standard output, one a line, as those of node.py do. Exit code 0: whole; 3: not in time; 1 is
that of a program which fails.
"""

import importlib
import sys
import time

NOT_IN_TIME = 3


def verdict(table, expected, gpus):
    """What is there and what is missing.

    table: dicts as `ray.nodes()` gives them. expected: node names. gpus: wanted on each node.
    Returns (alive nodes, their GPUs, {name: what is wrong with it}).
    """
    alive = {}
    for row in table:
        if row["Alive"]:
            alive[row["NodeName"]] = int(row["Resources"].get("GPU", 0))
    wrong = {}
    for name in expected:
        if name not in alive:
            wrong[name] = "has not joined"
        elif alive[name] < gpus:
            wrong[name] = f"has {alive[name]} of {gpus} GPUs"
    here = [name for name in expected if name in alive]
    return len(here), sum(alive[name] for name in here), wrong


def progress(nodes, total_gpus, wrong, expected, gpus):
    """`3/4 nodes, 24/32 GPUs, waiting for gpu-2`."""
    names = list(wrong)
    rest = f" and {len(names) - 4} more" if len(names) > 4 else ""
    waiting = ", waiting for " + ", ".join(names[:4]) + rest if names else ""
    devices = f", {total_gpus}/{gpus * len(expected)} GPUs" if gpus else ""
    return f"{nodes}/{len(expected)} nodes{devices}{waiting}"


def wait(read_table, expected, gpus, timeout, say, clock=time.monotonic, pause=time.sleep):
    """Reads the table until nothing is wrong (returns {}) or time is up (returns what is wrong)."""
    deadline = clock() + timeout
    said = None
    while True:
        nodes, total, wrong = verdict(read_table(), expected, gpus)
        text = progress(nodes, total, wrong, expected, gpus)
        if text != said:
            say("phase probe", text)
            said = text
        if not wrong or clock() >= deadline:
            return wrong
        pause(0.2)


def node_table(address):
    """A function that reads the node table of the GCS.

    Not `ray.init`: that registers a driver, for which the raylet starts a worker process per CPU.
    """
    from ray._private.state import GlobalState
    from ray._raylet import GcsClientOptions

    state = GlobalState()
    state._initialize_global_state(
        GcsClientOptions.create(address, None, allow_cluster_id_nil=True, fetch_cluster_id_if_nil=False)
    )
    return state.node_table


def main():
    """See the text of the module."""
    node, gpus, timeout, *expected = sys.argv[1:]

    def say(verb, *text):
        # In one piece, as others write to the same pipe; `print` would write word by word here.
        sys.stdout.write(" ".join(("slurmray", node, verb, *text)) + "\n")
        sys.stdout.flush()

    importlib.import_module("ray._private.state")  # while the GCS is not there yet
    address = sys.stdin.read().strip()
    read_table = node_table(address)
    told = []

    def read_and_tell():
        table = read_table()
        # A worker that asks the GCS before the head is in it sleeps for two seconds, again and again.
        if not told and any(row["Alive"] and row["NodeName"] == node for row in table):
            told.append(address)
            say("cluster", address)
        return table

    wrong = wait(read_and_tell, expected, int(gpus), float(timeout), say)
    for name, text in wrong.items():
        say("missing", name, text)
    return NOT_IN_TIME if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
