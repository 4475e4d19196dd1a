"""Stand-in for a trainer: prints its environment and the environment of each node as one line of JSON.

Finds the cluster like real trainers: with `ray status` (ROLL), and with ray.init() without an address. With
the argument `retriever.url=URL` it sends a query to that address from each node, like Search-R1's rollouts.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import urllib.request
from typing import Any

import ray  # type: ignore[import-not-found, unused-ignore]
from ray.util.scheduling_strategies import (  # type: ignore[import-not-found, unused-ignore]
    NodeAffinitySchedulingStrategy,
)


def inspect_node(url: str | None) -> dict[str, Any]:
    """Return environment and limits of a task on this node, and the retriever's answer."""
    seen: dict[str, Any] = {"environment": dict(os.environ), "found": None}
    shm = os.statvfs("/dev/shm")
    seen["shm"] = shm.f_blocks * shm.f_frsize
    seen["files"] = list(resource.getrlimit(resource.RLIMIT_NOFILE))
    if url:
        body = json.dumps({"queries": ["Which program runs tasks?"], "topk": 1, "return_scores": True})
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(urllib.request.Request(url, body.encode()), timeout=20) as answer:  # noqa: S310
            seen["found"] = json.load(answer)["result"][0][0]["document"]["contents"]
    return seen


def main() -> None:
    status = subprocess.run(["ray", "status"], capture_output=True, text=True, check=False, timeout=60)
    ray.init(logging_level="error")
    urls = [argument.partition("=")[2] for argument in sys.argv if argument.startswith("retriever.url=")]
    url = urls[0] if urls else None
    task = ray.remote(num_cpus=0)(inspect_node)
    nodes = {}
    for row in ray.nodes():
        place = NodeAffinitySchedulingStrategy(row["NodeID"], soft=False)
        found = ray.get(task.options(scheduling_strategy=place).remote(url))
        nodes[row["NodeName"]] = {**found, "gpus": row["Resources"].get("GPU", 0)}
    seen = {
        "argv": sys.argv,
        "folder": os.getcwd(),  # noqa: PTH109 - like most programs
        "environment": dict(os.environ),
        "status": status.returncode,
        "gpus": ray.cluster_resources().get("GPU", 0),
        "nodes": nodes,
    }
    print("seen: " + json.dumps(seen), flush=True)


if __name__ == "__main__":
    main()
