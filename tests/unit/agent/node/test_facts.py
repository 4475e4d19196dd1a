"""Facts about a node: memory, addresses."""

import ipaddress
import os
import socket
import subprocess
from pathlib import Path

import pytest

from slurmray.agent import hosts
from slurmray.agent.node import facts


def test_addresses_of_the_resolver() -> None:
    assert facts.resolved_addresses("localhost")[0] in ("127.0.0.1", "::1")
    addresses = facts.resolved_addresses("no-such-node.invalid")
    assert addresses == facts.resolved_addresses(os.uname().nodename)
    assert len(set(addresses)) == len(addresses)


def test_reachable_addresses_are_those_of_hostname_i() -> None:
    known = subprocess.run(["hostname", "-I"], capture_output=True, text=True, check=True).stdout.split()
    assert sorted(hosts.reachable_addresses()) == sorted(known)
    addresses = facts.all_addresses("localhost")
    assert addresses[0] in ("127.0.0.1", "::1"), "those of the name come first"
    assert set(known) <= set(addresses)
    assert [str(ipaddress.ip_address(address)) for address in addresses] == addresses


@pytest.mark.parametrize(
    ("family", "address", "shown"),
    [
        (socket.AF_INET, "127.0.0.9", "127.0.0.9"),
        (socket.AF_INET6, "::1", "::1"),
        (socket.AF_INET6, "::ffff:127.0.0.9", "127.0.0.9"),
    ],
)
def test_addresses_of_connections(family: int, address: str, shown: str) -> None:
    with socket.socket(family) as server, socket.socket(family) as client:
        server.bind((address, 0))
        server.listen()
        assert shown not in hosts.connected_addresses(os.getpid())
        client.connect(server.getsockname()[:2])
        assert shown in hosts.connected_addresses(os.getpid())
        assert not hosts.connected_addresses(os.getppid()) & {shown}
        accepted, _ = server.accept()
        accepted.close()
        assert shown not in hosts.connected_addresses(os.getpid()), "the other side has closed it"


def test_ipv6_addresses_of_interfaces(tmp_path: Path) -> None:
    table = tmp_path / "if_inet6"
    table.write_text(
        "00000000000000000000000000000001 01 80 10 80       lo\n"
        "fd7800000000000000000000000000fe 03 40 00 80     eth1\n"  # in the order of a hash
        "fe80000000000000021122fffe334455 02 40 20 80     eth0\n"
        "fd000000000000000000000000000002 02 40 00 80     eth0\n"
    )
    addresses = hosts.interface_addresses(str(table))
    assert [pair for pair in addresses if ":" in pair[1]] == [
        ("lo", "::1"),
        ("eth0", "fd00::2"),
        ("eth0", "fe80::211:22ff:fe33:4455"),
        ("eth1", "fd78::fe"),
    ]
    without = hosts.interface_addresses(str(tmp_path / "none"))
    assert without == [pair for pair in addresses if ":" not in pair[1]]


def test_addresses_that_another_host_can_use(monkeypatch: pytest.MonkeyPatch) -> None:
    every = [("lo", "127.0.0.1"), ("eth0", "10.0.0.2"), ("eth0", "169.254.3.4"), ("lo", "::1")]
    every += [("eth0", "fe80::2"), ("eth0", "fd00::2")]
    monkeypatch.setattr(hosts, "interface_addresses", lambda: every)
    assert hosts.reachable_addresses() == ["10.0.0.2", "fd00::2"]


@pytest.mark.parametrize(
    ("given", "charged", "expected"),
    [
        ("", 0, 0),
        ("SLURM_MEM_PER_NODE=300", 16000, 300),
        ("SLURM_MEM_PER_CPU=100", 16000, 400),
        ("SLURM_MEM_PER_GPU=1000", 16000, 3000),
        ("SLURM_MEM_PER_NODE=", 0, 0),
        ("", 16000, 16000),  # `mem: 0`
        ("", 99999, 20480),  # another node of the job has more
    ],
)
def test_the_memory_of_a_job(
    monkeypatch: pytest.MonkeyPatch, given: str, charged: int, expected: int
) -> None:
    monkeypatch.setattr(os, "sysconf", {"SC_PHYS_PAGES": 20 * 2**18, "SC_PAGE_SIZE": 4096}.__getitem__)
    env = {"SLURM_CPUS_ON_NODE": "4", "SLURM_GPUS_ON_NODE": "3"}
    name, _, value = given.partition("=")
    assert facts.job_memory({**env, name: value}, charged) == expected


def test_variables_of_a_login_session_that_is_not_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """sbatch exports the login node's; on a compute node systemd has made no such folder."""
    bus = f"unix:path={tmp_path}/bus,guid=1f"

    def kept(folder: str, bus: str) -> set[str]:
        env = {"PATH": "/bin", "XDG_RUNTIME_DIR": folder, "DBUS_SESSION_BUS_ADDRESS": bus}
        return facts.drop_foreign_session(env).keys() - {"PATH"}

    assert kept("/no/such/folder", "unix:abstract=/tmp/x") == set()
    with monkeypatch.context() as patch:
        patch.setattr(os, "geteuid", lambda: os.getuid() + 1)
        assert kept(str(tmp_path), bus) == set()
    assert kept(str(tmp_path), bus) == {"XDG_RUNTIME_DIR"}
    (tmp_path / "bus").touch()
    assert kept(str(tmp_path), bus) == {"XDG_RUNTIME_DIR", "DBUS_SESSION_BUS_ADDRESS"}
    only_bus = {"DBUS_SESSION_BUS_ADDRESS": "unix:path=/no/such/bus"}
    assert facts.drop_foreign_session(only_bus) == {}


@pytest.mark.parametrize(
    ("pattern", "address", "label"),
    [
        ("node", "node7", ""),  # Slurm's default
        ("switch.switch.node", "core.leaf-1.node7", "switch: leaf-1"),
        ("block.node", "b12345.node7", "block: b12345"),
        ("switch.node", f"{'s' * 63}.node7", f"switch: {'s' * 63}"),
        ("switch.switch.node", "core[1-2].leaf1.node7", "switch: leaf1"),
        ("switch.node", "leaf[1-2].node7", ""),
        ("switch.node", "-leaf.node7", ""),
        ("switch.node", f"{'s' * 64}.node7", ""),
        ("switch.node", "leaf1\n.node7", ""),
        ("sw=itch.node", "leaf1.node7", ""),
        ("switch.switch.node", "core.leaf.1.node7", ""),
        ("switch.switch.node", "leaf1.node7", ""),
        ("switch.node", "leaf1.node8", ""),
        ("switch.node", "", ""),
        ("", "leaf1.node7", ""),
    ],
)
def test_the_switch_of_a_node(pattern: str, address: str, label: str) -> None:
    env = {"SLURM_TOPOLOGY_ADDR": address, "SLURM_TOPOLOGY_ADDR_PATTERN": pattern}
    kind, _, name = label.partition(": ")
    assert facts.topology_labels(env, "node7") == ({f"slurm-topology/{kind}": name} if label else {})
    assert facts.topology_labels({}, "node7") == {}


def test_a_node_with_a_domain() -> None:
    env = {"SLURM_TOPOLOGY_ADDR": "leaf1.node7.site.org", "SLURM_TOPOLOGY_ADDR_PATTERN": "switch.node"}
    assert facts.topology_labels(env, "node7.site.org") == {"slurm-topology/switch": "leaf1"}
