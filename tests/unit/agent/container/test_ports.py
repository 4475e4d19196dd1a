"""Leased ports, and ports that other processes have taken."""

import errno
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from slurmray.agent.container import node_address, ports

LISTDIR = os.listdir
JOB = f"{os.getpid()}-0"  # the search for ports begins at a place that depends on the job id


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server


def test_a_port_that_is_taken(listener: socket.socket) -> None:
    port = listener.getsockname()[1]
    assert not ports.is_free(port)
    assert node_address.is_open("127.0.0.1", port)
    listener.close()
    assert ports.is_free(port)
    assert not node_address.is_open("127.0.0.1", port)


def test_the_port_of_a_server_that_has_ended() -> None:
    """Its connections are in TIME_WAIT for a minute."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        client = socket.create_connection(("127.0.0.1", port))
        accepted, _ = server.accept()
        accepted.close()  # the side of the server first
        client.close()
    assert ports.is_free(port)


def test_a_port_that_is_taken_on_ipv6_only() -> None:
    try:
        server = socket.create_server(("::1", 0), family=socket.AF_INET6)
    except OSError as error:
        assert error.errno in (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL)
        pytest.skip("no IPv6 on this machine")
    with server:
        assert not ports.is_free(server.getsockname()[1])


@pytest.mark.parametrize(
    ("kernel", "expected"),
    [
        ("32768\t60999\n", (10000, 32767)),
        ("9000\t65000\n", (1024, 65535)),  # no large enough range is left: all ports
        ("10000\t40000\n", (40001, 65535)),
        (None, (10000, 32767)),
    ],
)
def test_port_range(kernel: str | None, expected: tuple[int, int], tmp_path: Path) -> None:
    file = tmp_path / "range"
    if kernel:
        file.write_text(kernel)
    assert ports.port_range(str(file)) == expected


def test_two_leases_never_share_a_port() -> None:
    one, block = ports.lease_ports(JOB)
    two, others = ports.lease_ports(JOB)
    with one, two:
        assert len(block) == len(set(block)) == ports.BLOCK - 1
        assert not set(block) & set(others)
        assert one.getsockname()[1] not in {*block, *others}
    again, same = ports.lease_ports(JOB)
    again.close()
    assert same == block


def test_a_block_with_a_taken_port_is_passed_over() -> None:
    lease, block = ports.lease_ports(JOB)
    lease.close()
    with socket.create_server(("127.0.0.1", block[7])):
        other, others = ports.lease_ports(JOB)
        other.close()
    assert block[7] not in others
    later, second = ports.lease_ports(JOB, 1)
    later.close()
    assert second not in (block, [])


HOLDER = """
import socket, sys
family = socket.AF_INET6 if ":" in sys.argv[1] else socket.AF_INET
server = socket.create_server((sys.argv[1], 0), family=family)
print(server.getsockname()[1], flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("address", ["127.0.0.1", "::1"])
def test_ports_taken_by_a_process_of_another_container(
    address: str, listener: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    if family == socket.AF_INET6 and not Path("/proc/net/if_inet6").exists():
        pytest.skip("no IPv6 on this machine")
    mine = listener.getsockname()[1]
    argv = [sys.executable, "-c", HOLDER, address]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdin
        assert other.stdout
        port = int(other.stdout.readline())
        assert ports.listeners([mine, port]) == ({mine, port}, set())
        theirs = str(other.pid)
        monkeypatch.setattr(os, "listdir", lambda path: [n for n in LISTDIR(path) if n != theirs])
        assert ports.listeners([mine, port, 1]) == ({mine}, {port})
        with socket.create_connection((address, port)):
            other.stdin.close()
            other.wait(30)
            assert ports.listeners([mine, port]) == ({mine}, set())  # the rest of a closed connection


def test_a_child_does_not_inherit_the_lease() -> None:
    lease, _ = ports.lease_ports(JOB)
    with lease:
        assert not os.get_inheritable(lease.fileno())
