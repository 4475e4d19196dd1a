"""Which address of this node Ray uses.

Runs in the container, which shares the host's network, so everything seen here is what the host has.
"""

import ipaddress
import socket

from ... import interfaces

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import List, Tuple, Union

    Address = Union[ipaddress.IPv4Address, ipaddress.IPv6Address]

# Interfaces made by container engines, hypervisors and pod networks: never the way to another node.
VIRTUAL = ("docker", "br-", "podman", "cni", "virbr", "lxc", "lxdbr", "veth", "flannel", "cali", "kube")


class NetworkError(Exception):
    """No usable address or port on this node; the text has what was found and what to set."""


def local_addresses() -> "List[Tuple[str, Address]]":
    """Every address of this host as (interface, address), IPv4 first, in the order of the kernel."""
    return [(name, ipaddress.ip_address(address)) for name, address in interfaces.interface_addresses()]


def choose_address(
    candidates: "List[str]", local: "List[Tuple[str, Address]]", family: str = "auto", interface: str = ""
) -> str:
    """The address at which other nodes reach this one. NetworkError where there is none.

    candidates: what the host's resolver answers for the name of this node, best first. local: as
    local_addresses() returns it. family: ipv4 | ipv6 | auto (IPv4 where there is one).
    """
    if interface and interface not in {name for name, _ in local}:
        names = ", ".join(sorted({name for name, _ in local}))
        raise NetworkError("no interface %s; this node has %s. Set network.interface" % (interface, names))
    usable = [
        (name, address)
        for name, address in local
        if not (address.is_loopback or address.is_link_local or address.is_unspecified)
        and (name == interface if interface else not name.startswith(VIRTUAL))
    ]
    named = []
    for text in candidates:
        try:
            named.append(ipaddress.ip_address(text.split("%")[0]))
        except ValueError:
            pass
    here = [address for _, address in usable]
    # The resolver's answers come first; a node that knows itself only as 127.0.1.1 still has its links.
    ordered = [address for address in named if address in here] + here
    for version in {"ipv4": (4,), "ipv6": (6,), "auto": (4, 6)}[family]:
        for address in ordered:
            if address.version == version:
                return str(address)
    seen = ", ".join("%s on %s" % (address, name) for name, address in local) or "no address at all"
    wanted = {"ipv4": "IPv4", "ipv6": "IPv6", "auto": "usable"}[family]
    where = " on %s" % interface if interface else ""
    raise NetworkError(
        "no %s address%s; found %s. Set network.interface or network.family" % (wanted, where, seen)
    )


def interface_of(address: str, local: "List[Tuple[str, Address]]") -> str:
    """The interface that has this address, or "". local: as local_addresses() returns it."""
    return next((name for name, known in local if str(known) == address), "")


def family_of(address: str) -> str:
    """The value for `family` that keeps the other nodes on the side of the head."""
    return "ipv6" if ":" in address else "ipv4"


def join_host_port(address: str, port: int) -> str:
    """`10.0.0.1:6379`, and `[fd00::1]:6379`."""
    return ("[%s]:%d" if ":" in address else "%s:%d") % (address, port)


def split_host_port(text: str) -> "Tuple[str, int]":
    """(address, port) of what join_host_port() made."""
    address, _, port = text.rpartition(":")
    return address.strip("[]"), int(port)


def is_open(address: str, port: int, timeout: float = 1.0) -> bool:
    """Whether something accepts connections there. timeout: seconds."""
    try:
        socket.create_connection((address, port), timeout).close()
    except OSError:
        return False
    return True
