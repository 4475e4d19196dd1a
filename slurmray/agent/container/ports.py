"""The ports of Ray on this node, and whether another process has taken one.

The container shares the host's network.
"""

import errno
import os
import socket
import time
import zlib

from .. import hosts
from ..job_errors import JobError
from . import process_tree

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Collection, List, Set, Tuple

# Places in a leased block of ports. Only the head node uses the first three and the last three.
GCS, DASHBOARD, MASTER = range(3)
NODE_MANAGER, OBJECT_MANAGER, AGENT, AGENT_GRPC, RUNTIME_ENV, METRICS = range(3, 9)
REACHABILITY_PORT, DASHBOARD_METRICS, AUTOSCALER_METRICS, BURN_IN = range(9, 13)

BLOCK = 16  # ports of a job on a node, including one for the lease
LISTEN = "0A"  # TCP_LISTEN in /proc/net/tcp (include/net/tcp_states.h)
CHECKS = 3  # further checks of a port that seems to be taken
CHECK_PAUSE = 0.3  # seconds between two


def is_free(port: int) -> bool:
    """Whether a server can listen on this port on all addresses of the host."""
    for kind, anywhere in ((socket.AF_INET, "0.0.0.0"), (socket.AF_INET6, "::")):
        try:
            with socket.socket(kind, socket.SOCK_STREAM) as test:
                # As Ray's servers do: ignores ended connections (TIME_WAIT).
                test.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                if kind == socket.AF_INET6:
                    test.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                test.bind((anywhere, port))
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                return False
            # Any other error: there is no IPv6 on this host.
    return True


def port_range(path: str = "/proc/sys/net/ipv4/ip_local_port_range") -> "Tuple[int, int]":
    """(first, last) port to choose from: the larger range below or above the kernel's ephemeral ports."""
    try:
        with open(path) as file:
            low, high = map(int, file.read().split())
    except OSError:
        low, high = 32768, 60999
    below, above = (10000, low - 1), (high + 1, 65535)
    widest = max(below, above, key=lambda span: span[1] - span[0])
    return widest if widest[1] - widest[0] >= 64 * BLOCK else (1024, 65535)


def lease_ports(job: str, skip: int = 0) -> "Tuple[socket.socket, List[int]]":
    """(lease, ports): BLOCK - 1 free ports in a row. JobError where there are none.

    lease: a bound socket. While it is open, no other job of slurmray takes the same block.
    job: determines where the search begins. skip: number of free blocks to skip, for another try.
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
    message = "no %d free ports in a row between %d and %d. Set ray.port, or end what listens there"
    raise JobError("preflight", message % (BLOCK, first, last))


def listeners(ports: "Collection[int]") -> "Tuple[Set[int], Set[int]]":
    """(own, foreign): those of these ports on which this process or a descendant listens, or only another.

    A bound socket of ours would not keep others out: every user may bind a port whose sockets have
    SO_REUSEADDR and do not listen (inet_csk_bind_conflict() in Linux). And Ray could not bind what listens.
    """
    own, foreign = _listeners(ports)
    # Repeated, as the lists of sockets and of processes are read one after the other: a descendant that ends
    # has no open files any more while its sockets are still being closed.
    for _ in range(CHECKS):
        if not foreign:
            break
        time.sleep(CHECK_PAUSE)
        own, again = _listeners(ports)
        foreign &= again
    return own, {port for _, port in foreign} - own


def listener_users(port: int) -> "Set[int]":
    """The user ids of the sockets that listen on a port, as this user namespace sees them."""
    return {int(row[7]) for row in _listening([port])}


def _listeners(ports: "Collection[int]") -> "Tuple[Set[int], Set[Tuple[str, int]]]":
    """As listeners(), but {(inode, port)} of foreign sockets."""
    listening = {(row[9], _port(row)) for row in _listening(ports)}
    sockets = _own_sockets() if listening else set()
    own = {port for inode, port in listening if inode in sockets}
    return own, {(inode, port) for inode, port in listening if inode not in sockets}


def _listening(ports: "Collection[int]") -> "List[List[str]]":
    """The rows of /proc/net/tcp and tcp6 of sockets that listen on these ports."""
    return [row for row in hosts.tcp_sockets() if row[3] == LISTEN and _port(row) in ports]


def _port(row: "List[str]") -> int:
    return int(row[1].rpartition(":")[2], 16)


def _own_sockets() -> "Set[str]":
    """The inodes of all sockets of this process and its descendants."""
    inodes = set()
    for pid in [os.getpid(), *process_tree.descendants()]:
        try:
            names = os.listdir("/proc/%d/fd" % pid)
        except OSError:  # it has ended
            continue
        for name in names:
            try:
                link = os.readlink("/proc/%d/fd/%s" % (pid, name))
            except OSError:
                continue
            if link.startswith("socket:["):
                inodes.add(link[8:-1])
    return inodes
