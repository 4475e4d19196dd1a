"""Addresses of this host, and connections to other hosts, many at once: whether they can be made."""

import errno
import os
import socket
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, List, Sequence, Set, Tuple

    Target = Tuple[str, str, int]  # name, address, port

SIOCGIFCONF = 0x8912  # linux/sockios.h
IFREQ = 40  # bytes of a struct ifreq on 64-bit Linux: the name takes 16, the IPv4 address is at 20
# Loopback and link-local: of no use to another host.
_LOCAL = ("127.", "169.254.", "::1", "fe80:")
ESTABLISHED, SYN_SENT = "01", "02"  # states in /proc/net/tcp (include/net/tcp_states.h)
ANSWERS = (0, errno.ECONNREFUSED)  # errno of connections to a host that can be reached
MAX_SOCKETS = 256  # at one time, because of the limit of open files


def interface_addresses(ipv6_table: str = "/proc/net/if_inet6") -> "List[Tuple[str, str]]":
    """All addresses as (interface, address), IPv4 first, in the order of the interfaces."""
    import array
    import fcntl
    import struct

    buffer = array.array("B", bytes(64 * 1024))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        request = struct.pack("iL", len(buffer), buffer.buffer_info()[0])
        used = struct.unpack("iL", fcntl.ioctl(any_socket.fileno(), SIOCGIFCONF, request))[0]
    addresses = []
    for start in range(0, used, IFREQ):
        name = buffer[start : start + 16].tobytes().split(b"\0", 1)[0].decode()
        addresses.append((name.split(":")[0], socket.inet_ntoa(buffer[start + 20 : start + 24].tobytes())))
    try:
        with open(ipv6_table) as table:
            # The kernel's table has the order of a hash (net/ipv6/addrconf.c, if6_seq). getifaddrs goes by
            # interface, and there by scope, global first.
            rows = [line.split() for line in table]
            rows.sort(key=lambda row: (int(row[1], 16), int(row[3], 16)))
    except FileNotFoundError:  # no IPv6 on this host
        rows = []
    return addresses + [(row[5], socket.inet_ntop(socket.AF_INET6, bytes.fromhex(row[0]))) for row in rows]


def reachable_addresses() -> "List[str]":
    """Addresses that another host could use."""
    return [address for _, address in interface_addresses() if not address.startswith(_LOCAL)]


def connect(targets: "Sequence[Target]", timeout: float) -> "Dict[Target, int]":
    """Connect to each target and close the connection; return errno of each, 0 where it was made.

    timeout: seconds for MAX_SOCKETS targets, after which the rest has ETIMEDOUT.
    """
    import selectors

    codes: "Dict[Target, int]" = dict.fromkeys(targets, errno.ETIMEDOUT)
    for start in range(0, len(targets), MAX_SOCKETS):
        pending: "Dict[socket.socket, Target]" = {}
        with selectors.DefaultSelector() as selector:
            for target in targets[start : start + MAX_SOCKETS]:
                family = socket.AF_INET6 if ":" in target[1] else socket.AF_INET
                try:
                    connection = socket.socket(family, socket.SOCK_STREAM)
                except OSError as error:  # a host without IPv6
                    codes[target] = error.errno or errno.EAFNOSUPPORT
                    continue
                connection.setblocking(False)
                codes[target] = connection.connect_ex((target[1], target[2]))
                if codes[target] == errno.EINPROGRESS:
                    codes[target] = errno.ETIMEDOUT
                    selector.register(connection, selectors.EVENT_WRITE)
                    pending[connection] = target
                else:  # e.g. no route
                    connection.close()
            deadline = time.monotonic() + timeout
            while pending and time.monotonic() < deadline:
                for key, _ in selector.select(deadline - time.monotonic()):
                    connection = key.fileobj  # type: ignore[assignment]
                    selector.unregister(connection)
                    codes[pending.pop(connection)] = connection.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
                    connection.close()
            for connection in pending:
                connection.close()
    return codes


def find_answering(addresses: "Dict[str, List[str]]", port: int, timeout: float) -> "Set[str]":
    """Those of these hosts that answer at one of their addresses. A refused connection is an answer, too.

    addresses: of each host, or names; without any, its own name is resolved. port: of slurmd, as hosts of
    a cluster let such connections of each other through; slurmd ignores one without data.
    """
    targets = [
        (host, address, port)
        for host, given in addresses.items()
        for name in given or [host]
        for address in resolve(name)
    ]
    codes = connect(targets, timeout)
    return {target[0] for target in targets if codes[target] in ANSWERS}


def is_connecting(targets: "Sequence[Target]") -> bool:
    """Whether a process of this host waits for one of these targets to accept a connection."""
    import struct

    def as_in_table(address: str, port: int) -> str:
        packed = socket.inet_pton(socket.AF_INET6 if ":" in address else socket.AF_INET, address)
        words = struct.unpack("=%dI" % (len(packed) // 4), packed)
        return "".join("%08X" % word for word in words) + ":%04X" % port

    waiting = {row[2] for row in tcp_sockets() if row[3] == SYN_SENT}
    return any(as_in_table(address, port) in waiting for _, address, port in targets)


def connected_addresses(pid: int) -> "Set[str]":
    """The addresses to which a process of this user has connections."""
    import struct

    def as_address(text: str) -> str:
        words = [int(text[start : start + 8], 16) for start in range(0, len(text), 8)]
        family = socket.AF_INET6 if len(words) > 1 else socket.AF_INET
        address = socket.inet_ntop(family, struct.pack("=%dI" % len(words), *words))
        return address[7:] if address.startswith("::ffff:") else address  # IPv4 on a socket of IPv6

    folder, links = "/proc/%d/fd" % pid, set()
    for name in os.listdir(folder):
        try:
            links.add(os.readlink(os.path.join(folder, name)))
        except FileNotFoundError:  # it has just been closed
            pass
    rows = [row for row in tcp_sockets() if row[3] == ESTABLISHED and "socket:[%s]" % row[9] in links]
    return {as_address(row[2].partition(":")[0]) for row in rows}


def tcp_sockets() -> "List[List[str]]":
    """The rows of /proc/net/tcp and tcp6."""
    rows = []
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            with open(table) as file:
                rows += [line.split() for line in file.readlines()[1:]]
        except FileNotFoundError:
            pass
    return rows


def resolve(name: str) -> "List[str]":
    """The addresses of a name; none where the resolver knows none."""
    try:
        entries = socket.getaddrinfo(name, None, 0, socket.SOCK_STREAM)
    except OSError:
        return []
    return [str(entry[4][0]) for entry in entries]
