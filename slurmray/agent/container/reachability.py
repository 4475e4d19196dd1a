"""Preflight check of connections: from the head node to each worker and from each worker to the head node."""

import errno
import os
import selectors
import socket
import threading
import time

from .ray import network

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, Dict, List, Sequence, Tuple

    Target = Tuple[str, str, int]  # name, address, port
    Report = Callable[[str, str, str, str, str], None]  # a finding: kind, check, found, wanted, fix

CONNECT_TIMEOUT = 5.0  # seconds
ACCEPT_TIMEOUT = 60.0  # seconds that a worker waits for the head node's connection
MAX_SOCKETS = 256  # at one time, because of the limit of open files


def check_reachable(targets: "Sequence[Target]", report: "Report") -> None:
    """Connect to each target in a thread. report: called with a finding for each that fails."""

    def connect() -> None:
        for start in range(0, len(targets), MAX_SOCKETS):
            for name, address, port in unreachable(targets[start : start + MAX_SOCKETS]):
                found = "cannot reach %s at %s" % (name, network.join_host_port(address, port))
                fix = "open the firewall between them, or set network.interface"
                report("preflight", "connection", found, "a connection", fix)

    threading.Thread(target=connect, daemon=True).start()


def unreachable(targets: "Sequence[Target]", timeout: float = CONNECT_TIMEOUT) -> "List[Target]":
    """Targets to which no connection can be made within `timeout` seconds."""
    pending: "Dict[socket.socket, Target]" = {}
    failed: "List[Target]" = []
    with selectors.DefaultSelector() as selector:
        for target in targets:
            family = socket.AF_INET6 if ":" in target[1] else socket.AF_INET
            connection = socket.socket(family, socket.SOCK_STREAM)
            connection.setblocking(False)
            if connection.connect_ex((target[1], target[2])) in (0, errno.EINPROGRESS):
                selector.register(connection, selectors.EVENT_WRITE)
                pending[connection] = target
            else:  # e.g. no route
                failed.append(target)
                connection.close()
        deadline = time.monotonic() + timeout
        while pending and time.monotonic() < deadline:
            for key, _ in selector.select(deadline - time.monotonic()):
                connection = key.fileobj  # type: ignore[assignment]
                selector.unregister(connection)
                if connection.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
                    failed.append(pending[connection])
                del pending[connection]
                connection.close()
        for connection in pending:
            connection.close()
    failed += pending.values()
    return [target for target in targets if target in failed]


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
