"""Stand-in for Ray that uses almost no CPU, to measure the overhead of slurmray. It runs no tasks.

Implements the parts that the agent uses: the command `ray start --block`, the internals that
`ray.start: fast` patches, the table of nodes for the readiness probe, and processes named gcs_server and
raylet. The head node's gcs_server serves the table over TCP: a raylet connects and sends its row, which is
removed when the connection ends.

`install` writes a package `ray` that imports this module. It runs on the hosts' Python.
"""

from __future__ import annotations

import json
import os
import select
import socket
import sys
import time

TYPE_CHECKING = False  # each import costs CPU time in every process of a measured job
if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from typing import Any

VERSION = "2.60.0"
MODULE = "stand_in_ray"  # this file, installed beside the package `ray`
READ_TABLE = b"table\n"
RETRY_PAUSE = 0.05  # seconds between two connection attempts of a raylet
# Modules of Ray that the agent imports -> names that they import from this module.
FILES = {
    "ray/__init__.py": "",
    "ray/_private/__init__.py": "",
    "ray/_private/node.py": "Node",
    "ray/_private/services.py": "start_ray_process",
    "ray/_private/state.py": "GlobalState",
    "ray/_private/utils.py": "get_dashboard_dependency_error",
    "ray/_raylet.py": "GcsClientOptions",
    "ray/experimental/__init__.py": "",
    "ray/experimental/internal_kv.py": "_internal_kv_del, _internal_kv_get, _internal_kv_put",
    "ray/scripts/__init__.py": "",
    "ray/scripts/scripts.py": "main",
}


def install(folder: Path) -> None:
    """Write the package into a folder for PYTHONPATH."""
    from pathlib import Path

    text = f'"""Stand-in for Ray: see bench/{MODULE}.py of slurmray."""\n'
    for name, names in FILES.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(
            text + (f"from {MODULE} import {names}\n" if names else f'__version__ = "{VERSION}"\n')
        )
    metadata = folder / f"ray-{VERSION}.dist-info/METADATA"
    metadata.parent.mkdir(exist_ok=True)
    metadata.write_text(f"Metadata-Version: 2.1\nName: ray\nVersion: {VERSION}\nSummary: Stand-in for Ray\n")
    (folder / f"{MODULE}.py").write_text(Path(__file__).read_text())
    program = folder / "bin/ray"
    program.parent.mkdir(exist_ok=True)
    program.write_text("#!/usr/bin/python3\nfrom ray.scripts.scripts import main\nmain()\n")
    program.chmod(0o755)


# -- ray start -----------------------------------------------------------------------------------------------


def main() -> None:
    """The command `ray start --block`; ignores options that it does not need."""
    if sys.argv[1:2] != ["start"]:
        sys.exit("the stand-in for Ray has only the command `ray start`")
    options = dict(argument[2:].partition("=")[::2] for argument in sys.argv[2:])
    from ray._private import node  # type: ignore[import-not-found, unused-ignore]

    node.Node(options, head="head" in options)
    pid, status = os.wait()  # --block: Ray exits when one of its processes does
    sys.exit(f"process {pid} of the stand-in for Ray ended with status {status}")


class Node:
    """Ray's processes on one node, in the order that `ray.start: fast` patches. ray_params: options."""

    def __init__(self, ray_params: dict[str, str], head: bool = False) -> None:
        self.options = ray_params
        self._webui_url = ""
        self._has_raylet = False
        if head:
            address, port = ray_params["node-ip-address"], int(ray_params["port"])
            _fork("gcs_server", lambda: serve_table(address, port))
            self.start_api_server(include_dashboard=True)
        self.start_ray_processes()

    def start_api_server(self, *, include_dashboard: bool) -> None:
        """Read the dashboard's address, like Ray; during that call `fast` starts the raylet."""
        from ray.experimental import internal_kv  # type: ignore[import-not-found, unused-ignore]

        if include_dashboard:
            internal_kv._internal_kv_get("webui:url", namespace="dashboard")

    def start_ray_processes(self) -> None:
        """Start the raylet, once."""
        if not self._has_raylet:
            self._has_raylet = True
            _fork("raylet", lambda: run_raylet(self.options))


def _fork(name: str, function: Callable[[], None]) -> None:
    """Run a function in a child process with this name."""
    if os.fork():
        return
    with open("/proc/self/comm", "w") as file:  # noqa: PTH123 - pathlib is slow to import
        file.write(name)
    try:
        function()
    finally:
        os._exit(1)


def run_raylet(options: dict[str, str]) -> None:
    """Add a row to the table of nodes, for as long as this process lives."""
    host, port = split_address(options.get("address") or f"{options['node-ip-address']}:{options['port']}")
    row = {
        "NodeName": options.get("node-name", socket.gethostname()),
        "Alive": True,
        "Resources": {"GPU": int(options.get("num-gpus", 0))},
    }
    while True:
        try:
            connection = socket.create_connection((host, port))
            break
        except OSError:
            time.sleep(RETRY_PAUSE)
    connection.sendall(json.dumps(row).encode() + b"\n")
    connection.recv(1)


def start_ray_process(command: list[str], process_type: str) -> None:
    """Ray's signature; starts nothing."""


def get_dashboard_dependency_error() -> None:
    """Return None: no package is missing."""


def _internal_kv_get(key: str, namespace: str = "") -> bytes:
    """Ray's signature; there is no store."""
    del key, namespace
    return b""


def _internal_kv_put(key: str, value: str, overwrite: bool = True, namespace: str = "") -> None:
    """Ray's signature; there is no store."""


def _internal_kv_del(key: str, namespace: str = "") -> None:
    """Ray's signature; there is no store."""


# -- the table of nodes --------------------------------------------------------------------------------------


def serve_table(address: str, port: int) -> None:
    """Serve the table of nodes forever. A line from a client is a row of the table, or READ_TABLE."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    rows: dict[socket.socket, Any] = {}
    pending: dict[socket.socket, bytes] = {}
    with socket.create_server((address, port), family=family, backlog=4096) as server, select.epoll() as poll:
        poll.register(server, select.EPOLLIN)
        connections: dict[int, socket.socket] = {}
        while True:
            for descriptor, _ in poll.poll():
                if descriptor == server.fileno():
                    connection = server.accept()[0]
                    connections[connection.fileno()] = connection
                    pending[connection] = b""
                    poll.register(connection, select.EPOLLIN)
                    continue
                connection = connections[descriptor]
                data = receive(connection)
                *lines, pending[connection] = (pending[connection] + data).split(b"\n")
                for line in lines:
                    if line + b"\n" == READ_TABLE:
                        connection.sendall(json.dumps(list(rows.values())).encode() + b"\n")
                    else:
                        rows[connection] = json.loads(line)
                if not data:
                    rows.pop(connection, None)
                    del pending[connection], connections[descriptor]
                    poll.unregister(descriptor)
                    connection.close()


def receive(connection: socket.socket) -> bytes:
    """Received data; b"" at the end of the connection, also after a reset."""
    try:
        return connection.recv(65536)
    except ConnectionError:
        return b""


class GcsClientOptions:
    """Ray's signature: the address of the GCS."""

    def __init__(self, address: str) -> None:
        self.address = address

    @classmethod
    def create(cls, address: str, cluster_id: None, **options: bool) -> GcsClientOptions:
        """Ray's signature."""
        del cluster_id, options
        return cls(address)


class GlobalState:
    """Ray's signature: reads the table of nodes."""

    def _initialize_global_state(self, options: GcsClientOptions) -> None:
        self._file = socket.create_connection(split_address(options.address)).makefile("rwb")

    def node_table(self) -> list[dict[str, Any]]:
        """One row for each node, like `ray.nodes()`."""
        self._file.write(READ_TABLE)
        self._file.flush()
        rows: list[dict[str, Any]] = json.loads(self._file.readline())
        return rows


def split_address(address: str) -> tuple[str, int]:
    """Split `10.0.0.1:6379` or `[fd00::1]:6379` into host and port."""
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)
