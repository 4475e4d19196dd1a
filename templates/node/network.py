"""Which address of this node Ray uses.

Runs in the container, which shares the network of the host, so everything seen here is what the host has.
"""

import array
import contextlib
import fcntl
import ipaddress
import socket
import struct

# Interfaces made by container engines, hypervisors and pod networks: never the way to another node.
VIRTUAL = ("docker", "br-", "podman", "cni", "virbr", "lxc", "lxdbr", "veth", "flannel", "cali", "kube")
SIOCGIFCONF = 0x8912  # linux/sockios.h
IFREQ = 40  # bytes of a struct ifreq on 64-bit Linux: the name takes 16, the IPv4 address is at 20


class NetworkError(Exception):
    """No usable address or port on this node; the text says what was found and what to set."""


def local_addresses():
    """Every address of this host as (interface, address), IPv4 first, in the order of the kernel."""
    buffer = array.array("B", bytes(64 * 1024))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        request = struct.pack("iL", len(buffer), buffer.buffer_info()[0])
        used = struct.unpack("iL", fcntl.ioctl(any_socket.fileno(), SIOCGIFCONF, request))[0]
    found = []
    for start in range(0, used, IFREQ):
        name = buffer[start : start + 16].tobytes().split(b"\0", 1)[0].decode()
        found.append((name.split(":")[0], ipaddress.ip_address(buffer[start + 20 : start + 24].tobytes())))
    with contextlib.suppress(FileNotFoundError), open("/proc/net/if_inet6") as table:
        for line in table:
            fields = line.split()
            found.append((fields[5], ipaddress.ip_address(bytes.fromhex(fields[0]))))
    return found


def choose_address(candidates, local, family="auto", interface=""):
    """The address at which other nodes reach this one.

    candidates: what the resolver of the host says of the name of this node, best first (texts).
    local: as local_addresses() gives it. family: ipv4 | ipv6 | auto (IPv4 where there is one).
    """
    if interface and interface not in {name for name, _ in local}:
        names = ", ".join(sorted({name for name, _ in local}))
        raise NetworkError(f"network.interface: there is no {interface}, this node has {names}")
    usable = [
        (name, address)
        for name, address in local
        if not (address.is_loopback or address.is_link_local or address.is_unspecified)
        and (name == interface if interface else not name.startswith(VIRTUAL))
    ]
    named = []
    for text in candidates:
        with contextlib.suppress(ValueError):
            named.append(ipaddress.ip_address(text.split("%")[0]))
    here = [address for _, address in usable]
    # What the resolver says comes first; a node that knows itself only as 127.0.1.1 still has its links.
    ordered = [address for address in named if address in here] + here
    for version in {"ipv4": (4,), "ipv6": (6,), "auto": (4, 6)}[family]:
        for address in ordered:
            if address.version == version:
                return str(address)
    seen = ", ".join(f"{address} on {name}" for name, address in local) or "no address at all"
    wanted = {"ipv4": "IPv4", "ipv6": "IPv6", "auto": "usable"}[family]
    where = f" on {interface}" if interface else ""
    raise NetworkError(f"no {wanted} address{where}; found {seen}; set network.interface or network.family")


def interface_of(address, local):
    """The interface that has this address (a text), or "". local: as local_addresses() gives it."""
    return next((name for name, known in local if str(known) == address), "")


def family_of(address):
    """The value for `family` that keeps the other nodes on the side of the head."""
    return "ipv6" if ":" in address else "ipv4"


def host_port(address, port):
    """`10.0.0.1:6379`, and `[fd00::1]:6379`."""
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


def parts_of(place):
    """(address, port) of what host_port() made."""
    address, _, port = place.rpartition(":")
    return address.strip("[]"), int(port)


def is_open(address, port, timeout=1.0):
    """Whether something accepts connections there. timeout: seconds."""
    try:
        socket.create_connection((address, port), timeout).close()
    except OSError:
        return False
    return True
