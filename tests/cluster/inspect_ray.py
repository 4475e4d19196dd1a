"""A trainer that writes Ray's environment on each node, and the open metrics ports, into seen.json."""

from __future__ import annotations

import json
import os
import re
import socket
import time
from pathlib import Path
from typing import Any

import ray  # type: ignore[import-not-found, unused-ignore]
from ray.util.scheduling_strategies import (  # type: ignore[import-not-found, unused-ignore]
    NodeAffinitySchedulingStrategy,
)

LOGS = Path(os.environ["RAY_TMPDIR"], "session_latest/logs")
TIMEOUT = 300  # seconds; bounds a hang: on a busy machine the dashboard needs minutes
# Log lines of Ray just before it opens a metrics port.
OPENS = {
    "dashboard.log": "Starting dashboard metrics server",
    "monitor.log": "Starting autoscaler metrics server",
}


def inspect_node() -> dict[str, Any]:
    """Return this process's environment, and the authentication modes of all Ray processes of the node."""
    modes = set()
    for process in Path("/proc").glob("[0-9]*"):
        try:
            command, environment = ((process / name).read_bytes() for name in ("cmdline", "environ"))
        except OSError:  # the process has ended
            continue
        # Not the container process. A process title, e.g. ray::IDLE, overwrites the environment.
        is_ray = b"ray" in command and b"/agent\0container\0" not in command
        if is_ray and not command.startswith(b"ray"):
            modes.add(b"".join(re.findall(rb"\0RAY_AUTH_MODE=(\w*)", b"\0" + environment)).decode())
    return {"environment": dict(os.environ), "modes": sorted(modes)}


def listening() -> list[int]:
    """Return the listening TCP ports of this machine."""
    text = Path("/proc/net/tcp").read_text() + Path("/proc/net/tcp6").read_text()
    rows = [line.split() for line in text.splitlines()]
    return sorted({int(row[1].rpartition(":")[2], 16) for row in rows if row[3] == "0A"})


def exports(host: str, port: int) -> bool:
    """Return whether the port serves metrics without a token."""
    try:
        with socket.create_connection((host, port), 2) as link:
            link.settimeout(2)
            link.sendall(b"GET /metrics HTTP/1.0\r\nHost: x\r\n\r\n")
            return link.recv(64).startswith(b"HTTP/1.0 200")
    except OSError:
        return False


def main() -> None:
    ray.init(logging_level="error")
    task = ray.remote(num_cpus=0)(inspect_node)
    nodes = {}
    for row in ray.nodes():
        strategy = NodeAffinitySchedulingStrategy(row["NodeID"], soft=False)
        found = ray.get(task.options(scheduling_strategy=strategy).remote())
        nodes[row["NodeName"]] = {**found, "memory": row["Resources"]["memory"]}
    head, _, gcs = os.environ["RAY_ADDRESS"].rpartition(":")
    deadline = time.monotonic() + TIMEOUT
    while not (
        int(gcs) + 6 in listening() and all(text in (LOGS / log).read_text() for log, text in OPENS.items())
    ):
        assert time.monotonic() < deadline, "the dashboard, its agent and the monitor are not ready"
        time.sleep(0.2)
    time.sleep(1)  # between the log line and the open port
    hosts = (head.strip("[]"), "127.0.0.1")
    metrics = [port for port in listening() if any(exports(host, port) for host in hosts)]
    seen = {"ray": ray.__version__, "gcs": int(gcs), "nodes": nodes, "metrics": metrics}
    Path("seen.json").write_text(json.dumps(seen))


main()
