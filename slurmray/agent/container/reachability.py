"""Preflight check of connections: from the head node to each worker and from each worker to the head node.

The head node connects to a leased port of each worker, and to an ephemeral one: Ray's worker processes and
NCCL listen on these. Where they are closed between nodes, Ray gets ready and tasks wait for ever.
"""

import os
import socket

from .. import background_io, hosts
from . import node_address

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, List, Sequence

    from ..hosts import Target
    from .node_context import NodeContext

CONNECT_TIMEOUT = 5.0  # seconds
ACCEPT_TIMEOUT = 60.0  # seconds that a worker waits for the head node's connection


def check_reachable(targets: "Sequence[Target]", context: "NodeContext") -> None:
    """Connect to each target in a thread, and send a finding for each node with one that fails.

    The thread is added to context.connection_checks.
    """

    def connect() -> None:
        unreachable: "Dict[str, Target]" = {}
        for target in find_unreachable(targets):
            unreachable.setdefault(target[0], target)
        for name, address, port in unreachable.values():
            found = "cannot reach %s at %s" % (name, node_address.join_host_port(address, port))
            fix = "open all ports between the nodes, also ephemeral ones, or set network.interface"
            worker = name if context.is_head else context.name
            context.finding("preflight", "connection", found, "a connection", fix, worker)

    context.connection_checks.append(background_io.start("checks of connections", connect))


def find_unreachable(targets: "Sequence[Target]", timeout: float = CONNECT_TIMEOUT) -> "List[Target]":
    """Targets to which no connection can be made within `timeout` seconds."""
    codes = hosts.connect(targets, timeout)
    return [target for target in targets if codes[target]]


def accept_once(address: str, port: int) -> int:
    """Listen on a port, return it, and accept one connection in a thread. port: 0 for an ephemeral one."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    server = socket.socket(family, socket.SOCK_STREAM)
    os.set_inheritable(server.fileno(), False)
    server.settimeout(ACCEPT_TIMEOUT)
    server.bind((address, port))
    server.listen(1)
    port = server.getsockname()[1]

    def accept() -> None:
        with server:
            try:
                server.accept()[0].close()
            except OSError:  # timeout: the head node sends a finding
                pass

    background_io.start("a connection of the head node", accept)
    return port
