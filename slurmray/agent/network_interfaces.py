"""Addresses of this host's network interfaces, as the kernel lists them."""

import array
import fcntl
import socket
import struct

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import List, Tuple

SIOCGIFCONF = 0x8912  # linux/sockios.h
IFREQ = 40  # bytes of a struct ifreq on 64-bit Linux: the name takes 16, the IPv4 address is at 20
# Loopback and link-local: of no use to another host.
_LOCAL = ("127.", "169.254.", "::1", "fe80:")


def interface_addresses(ipv6_table: str = "/proc/net/if_inet6") -> "List[Tuple[str, str]]":
    """All addresses as (interface, address), IPv4 first, in the order of the kernel."""
    buffer = array.array("B", bytes(64 * 1024))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        request = struct.pack("iL", len(buffer), buffer.buffer_info()[0])
        used = struct.unpack("iL", fcntl.ioctl(any_socket.fileno(), SIOCGIFCONF, request))[0]
    found = []
    for start in range(0, used, IFREQ):
        name = buffer[start : start + 16].tobytes().split(b"\0", 1)[0].decode()
        found.append((name.split(":")[0], socket.inet_ntoa(buffer[start + 20 : start + 24].tobytes())))
    try:
        with open(ipv6_table) as table:
            # The file's order is that of a hash table (if6_get_next() in Linux); field 1 is the index.
            rows = sorted((line.split() for line in table), key=lambda row: int(row[1], 16))
    except FileNotFoundError:  # no IPv6 on this host
        rows = []
    return found + [(row[5], socket.inet_ntop(socket.AF_INET6, bytes.fromhex(row[0]))) for row in rows]


def reachable_addresses() -> "List[str]":
    """Addresses that another host could use."""
    return [address for _, address in interface_addresses() if not address.startswith(_LOCAL)]
