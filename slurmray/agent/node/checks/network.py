"""The addresses of this node."""

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import List

    from ..api import NodeApi


def resolved_addresses(name: str) -> "List[str]":
    """Addresses of the node's name, or else of this host's name, in the resolver's order."""
    import socket

    for host in (name, os.uname().nodename):
        try:
            found = socket.getaddrinfo(
                host, None, 0, socket.SOCK_STREAM, 0, socket.AI_ADDRCONFIG | socket.AI_V4MAPPED
            )
        except (OSError, UnicodeError):
            continue
        return _unique([str(entry[4][0]) for entry in found])
    return []


def addresses(node: "NodeApi") -> "List[str]":
    """All addresses of this node: those of its name and those of its interfaces (for network.interface)."""
    from ...network_interfaces import reachable_addresses

    return _unique(resolved_addresses(node.name) + reachable_addresses())


def _unique(texts: "List[str]") -> "List[str]":
    found: "List[str]" = []
    for text in texts:
        if text not in found:
            found.append(text)
    return found
