"""Which address and which ports Ray uses on this node.

Runs in the container, which shares the network of the host, so everything seen here is what the host has.
"""

import array
import contextlib
import errno
import fcntl
import ipaddress
import os
import socket
import struct
import zlib

# Interfaces made by container engines, hypervisors and pod networks: never the way to another node.
VIRTUAL = ("docker", "br-", "podman", "cni", "virbr", "lxc", "lxdbr", "veth", "flannel", "cali", "kube")
BLOCK = 16  # ports that one job takes on a node
LISTEN = "0A"  # include/net/tcp_states.h, as /proc/net/tcp shows it
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


def is_free(port):
    """Whether a server could listen on this port, on every address of the host."""
    for kind, anywhere in ((socket.AF_INET, "0.0.0.0"), (socket.AF_INET6, "::")):
        try:
            with socket.socket(kind, socket.SOCK_STREAM) as test:
                if kind == socket.AF_INET6:
                    test.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                test.bind((anywhere, port))
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                return False
            # No IPv6 on this host: nothing can be in the way there.
    return True


def port_range(path="/proc/sys/net/ipv4/ip_local_port_range"):
    """(first, last): ports below or above those that the kernel hands out to anybody."""
    try:
        with open(path) as file:
            low, high = map(int, file.read().split())
    except OSError:
        low, high = 32768, 60999
    below, above = (10000, low - 1), (high + 1, 65535)
    widest = max(below, above, key=lambda span: span[1] - span[0])
    return widest if widest[1] - widest[0] >= 64 * BLOCK else (1024, 65535)


def lease_ports(job, skip=0):
    """(lease, ports): a block of BLOCK - 1 free ports of this node, for this job alone.

    lease: a bound socket; while it is open, no other slurmray job takes the same block. Jobs start to look at
    different places. skip: how many good blocks to pass over, for a second try.
    """
    first, last = port_range()
    blocks = (last - first + 1) // BLOCK
    start = zlib.crc32(job.encode()) % blocks
    for turn in range(blocks):
        base = first + (start + turn) % blocks * BLOCK
        lease = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        os.set_inheritable(lease.fileno(), False)
        ports = list(range(base + 1, base + BLOCK))
        try:
            lease.bind(("127.0.0.1", base))
            free = all(is_free(port) for port in ports)
        except OSError:
            free = False
        if free and skip == 0:
            return lease, ports
        skip -= free
        lease.close()
    raise NetworkError(f"no {BLOCK} free ports in a row between {first} and {last}")


def taken(ports):
    """Those of these ports on which a process outside of this container listens, whatever its address."""
    found = foreign(ports)
    # Looked at twice: the kernel lists sockets at one moment, and processes have them at another.
    return sorted({port for _, port in found & foreign(ports)}) if found else []


def foreign(ports):
    """{(inode, port)} of sockets that listen on one of these ports and are not of this container."""
    rows = []
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        with contextlib.suppress(FileNotFoundError), open(table) as file:
            rows += [line.split() for line in file.readlines()[1:]]
    listening = {(row[9], int(row[1].rpartition(":")[2], 16)) for row in rows if row[3] == LISTEN}
    suspects = {(inode, port) for inode, port in listening if port in set(ports)}
    if not suspects:
        return suspects
    own = own_sockets()
    return {(inode, port) for inode, port in suspects if inode not in own}


def own_sockets():
    """The inodes of all sockets of this container."""
    found = set()
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):  # it has ended
            for name in os.listdir(f"/proc/{pid}/fd"):
                with contextlib.suppress(OSError):
                    link = os.readlink(f"/proc/{pid}/fd/{name}")
                    if link.startswith("socket:["):
                        found.add(link[8:-1])
    return found


def is_open(address, port, timeout=1.0):
    """Whether something accepts connections there. timeout: seconds."""
    try:
        socket.create_connection((address, port), timeout).close()
    except OSError:
        return False
    return True
