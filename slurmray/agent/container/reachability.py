"""Preflight check of connections: from the head node to each worker and from each worker to the head node."""

import os
import socket
import threading

from .. import hosts
from .ray import node_address

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, List, Sequence

    from ..hosts import Target

    Report = Callable[[str, str, str, str, str], None]  # a finding: kind, check, found, wanted, fix

CONNECT_TIMEOUT = 5.0  # seconds
ACCEPT_TIMEOUT = 60.0  # seconds that a worker waits for the head node's connection


def check_reachable(targets: "Sequence[Target]", report: "Report") -> None:
    """Connect to each target in a thread. report: called with a finding for each that fails."""

    def connect() -> None:
        for name, address, port in find_unreachable(targets):
            found = "cannot reach %s at %s" % (name, node_address.join_host_port(address, port))
            fix = "open the firewall between them, or set network.interface"
            report("preflight", "connection", found, "a connection", fix)

    threading.Thread(target=connect, daemon=True).start()


def find_unreachable(targets: "Sequence[Target]", timeout: float = CONNECT_TIMEOUT) -> "List[Target]":
    """Targets to which no connection can be made within `timeout` seconds."""
    codes = hosts.connect(targets, timeout)
    return [target for target in targets if codes[target]]


def accept_once(address: str, port: int) -> None:
    """Listen on a port and accept one connection in a thread."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    server = socket.socket(family, socket.SOCK_STREAM)
    os.set_inheritable(server.fileno(), False)
    server.settimeout(ACCEPT_TIMEOUT)
    server.bind((address, port))
    server.listen(1)

    def accept() -> None:
        with server:
            try:
                server.accept()[0].close()
            except OSError:  # timeout: the head node sends a finding
                pass

    threading.Thread(target=accept, daemon=True).start()
