"""The address that Ray uses on this node. The container shares the host's network."""

import ipaddress
import socket

from .. import hosts
from ..job_errors import JobError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import List, Tuple, Union

    from ..wire.settings import Network

    Address = Union[ipaddress.IPv4Address, ipaddress.IPv6Address]

# Interfaces of container engines, hypervisors and pod networks, which do not lead to other nodes.
VIRTUAL = ("docker", "br-", "podman", "cni", "virbr", "lxc", "lxdbr", "veth", "flannel", "cali", "kube")


def local_addresses() -> "List[Tuple[str, Address]]":
    """All addresses of this host as (interface, address), IPv4 first, in the order of the kernel."""
    return [(name, ipaddress.ip_address(address)) for name, address in hosts.interface_addresses()]


def choose_address(
    candidates: "List[str]", local: "List[Tuple[str, Address]]", family: str, options: "Network"
) -> str:
    """The address at which other nodes reach this one. JobError where there is none.

    candidates: addresses of the node's name, in the resolver's order. local: as returned by
    local_addresses(). family: ipv4, ipv6, or auto, which prefers IPv4. options: with interface and subnet.
    """
    interface, subnet = options["interface"], options["subnet"]
    network = ipaddress.ip_network(subnet) if subnet else None
    if interface and interface not in {name for name, _ in local}:
        names = ", ".join(sorted({name for name, _ in local}))
        message = "no interface %s; this node has %s. Set network.interface"
        raise JobError("preflight", message % (interface, names))
    here = {
        str(address): address
        for name, address in local
        if not (address.is_loopback or address.is_link_local or address.is_unspecified)
        and (name == interface if interface else network or not name.startswith(VIRTUAL))
        and (network is None or address in network)
    }
    named = [candidate.split("%")[0] for candidate in candidates]
    # Interfaces last, for a node whose name resolves only to 127.0.1.1.
    ordered = [here[address] for address in named if address in here] + [*here.values()]
    for version in {"ipv4": (4,), "ipv6": (6,), "auto": (4, 6)}[family]:
        for address in ordered:
            if address.version == version:
                return str(address)
    seen = ", ".join("%s on %s" % (address, name) for name, address in local) or "no address at all"
    wanted = {"ipv4": "IPv4", "ipv6": "IPv6", "auto": "usable"}[family]
    where = (" on %s" % interface if interface else "") + (" in %s" % subnet if subnet else "")
    fix = "Set network.subnet" if subnet else "Set network.interface or network.family"
    raise JobError("preflight", "no %s address%s; found %s. %s" % (wanted, where, seen, fix))


def find_interface(address: str, local: "List[Tuple[str, Address]]") -> str:
    """The interface with this address, or "". local: as returned by local_addresses()."""
    return next((name for name, known in local if str(known) == address), "")


def does_nccl_find(interface: str, local: "List[Tuple[str, Address]]") -> bool:
    """Whether NCCL needs no NCCL_SOCKET_IFNAME: it finds this interface first, or one of InfiniBand.

    It takes those named ib*, else all but docker* and lo*; its bootstrap takes the first of them
    (ncclFindInterfaces() in NCCL's src/misc/socket.cc). local: as returned by local_addresses().
    """
    names = [name for name, _ in local]
    if any(name.startswith("ib") for name in names):
        return True
    return [name for name in names if not name.startswith(("docker", "lo"))][:1] == [interface]


def address_family(address: str) -> str:
    """The family of an address: ipv4 or ipv6."""
    return "ipv6" if ":" in address else "ipv4"


def join_host_port(address: str, port: int) -> str:
    """`10.0.0.1:6379`, and `[fd00::1]:6379`."""
    return ("[%s]:%d" if ":" in address else "%s:%d") % (address, port)


def split_host_port(text: str) -> "Tuple[str, int]":
    """(address, port): the inverse of join_host_port()."""
    address, _, port = text.rpartition(":")
    return address.strip("[]"), int(port)


def is_open(address: str, port: int, timeout: float = 1.0) -> bool:
    """Whether a server accepts connections at this address. timeout: seconds."""
    try:
        socket.create_connection((address, port), timeout).close()
    except OSError:
        return False
    return True
