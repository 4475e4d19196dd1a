"""Which address and which ports network.py chooses."""

import errno
import importlib
import ipaddress
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from slurmray.render import template_root

LISTDIR = os.listdir

# They have no package: in the container they lie side by side in one folder.
sys.path.insert(0, str(template_root() / "node"))
network: Any = importlib.import_module("network")
sys.path.pop(0)

# -- network: the address --------------------------------------------------------------------------


def addresses(*pairs: str) -> list[tuple[str, Any]]:
    """`eth0=10.0.0.1` as local_addresses() gives it."""
    return [(name, ipaddress.ip_address(text)) for name, _, text in (pair.partition("=") for pair in pairs)]


LO = ("lo=127.0.0.1", "lo=::1")
BOTH = addresses(*LO, "eth0=10.0.0.5", "ib0=10.1.0.5", "eth0=fe80::5", "eth0=fd00::5", "ib0=fd01::5")
ONLY_4 = addresses(*LO, "eth0=10.0.0.5")
ONLY_6 = addresses(*LO, "eth0=fe80::5", "eth0=fd00::5")
VIRTUAL = addresses(
    *LO,
    "docker0=172.17.0.1",
    "virbr0=192.168.122.1",
    "br-1f=172.18.0.1",
    "podman1=10.88.0.1",
    "eno1=10.0.0.5",
)


@pytest.mark.parametrize(
    ("candidates", "local", "family", "interface", "expected"),
    [
        (["10.0.0.5"], BOTH, "auto", "", "10.0.0.5"),
        (["10.1.0.5"], BOTH, "auto", "", "10.1.0.5"),  # the resolver's choice, not the kernel's first
        (["fd01::5", "10.1.0.5"], BOTH, "auto", "", "10.1.0.5"),
        (["fd01::5", "10.1.0.5"], BOTH, "ipv6", "", "fd01::5"),
        (["fd01::5"], BOTH, "auto", "", "10.0.0.5"),
        (["127.0.1.1"], ONLY_4, "auto", "", "10.0.0.5"),  # Debian's own /etc/hosts
        (["::1", "127.0.0.1"], BOTH, "auto", "", "10.0.0.5"),
        (["fe80::5%eth0", "fd00::5"], ONLY_6, "auto", "", "fd00::5"),
        ([], ONLY_6, "auto", "", "fd00::5"),
        (["192.0.2.7"], ONLY_4, "auto", "", "10.0.0.5"),  # a NAT address, which this node does not have
        (["not an address", ""], ONLY_4, "auto", "", "10.0.0.5"),
        (["172.17.0.1"], VIRTUAL, "auto", "", "10.0.0.5"),
        ([], VIRTUAL, "auto", "docker0", "172.17.0.1"),  # somebody asked for it
        (["10.0.0.5"], BOTH, "auto", "ib0", "10.1.0.5"),
        (["10.0.0.5"], BOTH, "ipv6", "ib0", "fd01::5"),
    ],
)
def test_choose_address(
    candidates: list[str], local: list[Any], family: str, interface: str, expected: str
) -> None:
    assert network.choose_address(candidates, local, family, interface) == expected


@pytest.mark.parametrize(
    ("local", "family", "interface", "said"),
    [
        (ONLY_4, "ipv6", "", "no IPv6 address; found 127.0.0.1 on lo, ::1 on lo, 10.0.0.5 on eth0"),
        (ONLY_6, "ipv4", "", "no IPv4 address"),
        (addresses(*LO, "docker0=172.17.0.1"), "auto", "", "no usable address"),
        ([], "auto", "", "no address at all"),
        (BOTH, "auto", "ib1", "network.interface: there is no ib1, this node has eth0, ib0, lo"),
        (addresses(*LO, "ib0=10.1.0.5", "eth0=fd00::5"), "ipv6", "ib0", "no IPv6 address on ib0"),
    ],
)
def test_no_address(local: list[Any], family: str, interface: str, said: str) -> None:
    with pytest.raises(network.NetworkError) as caught:
        network.choose_address(["10.0.0.5"], local, family, interface)
    assert said in str(caught.value)
    assert "network." in str(caught.value)


def test_the_addresses_of_this_machine() -> None:
    found = network.local_addresses()
    assert ("lo", ipaddress.ip_address("127.0.0.1")) in found
    kernel = Path("/proc/net/if_inet6")
    if kernel.exists():
        assert len([1 for _, address in found if address.version == 6]) == len(
            kernel.read_text().splitlines()
        )


def test_the_interface_of_an_address() -> None:
    assert network.interface_of("10.1.0.5", BOTH) == "ib0"
    assert network.interface_of("fd00::5", BOTH) == "eth0"
    assert network.interface_of("192.0.2.7", BOTH) == ""


def test_an_address_with_its_port() -> None:
    assert network.host_port("10.0.0.1", 6379) == "10.0.0.1:6379"
    assert network.host_port("fd00::1", 6379) == "[fd00::1]:6379"
    assert (network.family_of("10.0.0.1"), network.family_of("fd00::1")) == ("ipv4", "ipv6")


# -- network: the ports ----------------------------------------------------------------------------


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server


def test_a_port_that_is_taken(listener: socket.socket) -> None:
    port = listener.getsockname()[1]
    assert not network.is_free(port)
    assert network.is_open("127.0.0.1", port)
    listener.close()
    assert network.is_free(port)
    assert not network.is_open("127.0.0.1", port)


def test_a_port_that_is_taken_on_ipv6_only() -> None:
    try:
        server = socket.create_server(("::1", 0), family=socket.AF_INET6)
    except OSError as error:
        assert error.errno in (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL)
        pytest.skip("no IPv6 on this machine")
    with server:
        assert not network.is_free(server.getsockname()[1])


@pytest.mark.parametrize(
    ("kernel", "expected"),
    [
        ("32768\t60999\n", (10000, 32767)),
        ("9000\t65000\n", (1024, 65535)),  # nothing of use is left: the whole range
        ("10000\t40000\n", (40001, 65535)),
        (None, (10000, 32767)),
    ],
)
def test_port_range(kernel: str | None, expected: tuple[int, int], tmp_path: Path) -> None:
    file = tmp_path / "range"
    if kernel:
        file.write_text(kernel)
    assert network.port_range(str(file)) == expected


def test_two_leases_never_share_a_port() -> None:
    one, ports = network.lease_ports("1-0")
    two, others = network.lease_ports("1-0")
    with one, two:
        assert len(ports) == len(set(ports)) == network.BLOCK - 1
        assert not set(ports) & set(others)
        assert one.getsockname()[1] not in {*ports, *others}
    again, same = network.lease_ports("1-0")
    again.close()
    assert same == ports


def test_a_block_with_a_taken_port_is_passed_over() -> None:
    lease, ports = network.lease_ports("1-0")
    lease.close()
    with socket.create_server(("127.0.0.1", ports[7])):
        other, others = network.lease_ports("1-0")
        other.close()
    assert ports[7] not in others
    later, second = network.lease_ports("1-0", 1)
    later.close()
    assert second not in (ports, [])


HOLDER = """
import socket, sys
family = socket.AF_INET6 if ":" in sys.argv[1] else socket.AF_INET
server = socket.create_server((sys.argv[1], 0), family=family)
print(server.getsockname()[1], flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("address", ["127.0.0.1", "::1"])
def test_ports_that_somebody_else_holds(
    address: str, listener: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    if family == socket.AF_INET6 and not Path("/proc/net/if_inet6").exists():
        pytest.skip("no IPv6 on this machine")
    mine = listener.getsockname()[1]
    words = [sys.executable, "-c", HOLDER, address]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdin
        assert other.stdout
        port = int(other.stdout.readline())
        assert network.taken([mine, port]) == []  # a process of the same container
        theirs = str(other.pid)
        monkeypatch.setattr(os, "listdir", lambda path: [n for n in LISTDIR(path) if n != theirs])
        assert network.taken([mine, port, 1]) == [port]
        with socket.create_connection((address, port)):
            other.stdin.close()
            other.wait(30)
            assert network.taken([mine, port]) == []  # what is left of a connection


def test_a_child_does_not_inherit_the_lease() -> None:
    lease, _ = network.lease_ports("1-0")
    with lease:
        assert not os.get_inheritable(lease.fileno())
