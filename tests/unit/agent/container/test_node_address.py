"""Choice of a node's address for Ray."""

import ipaddress
from pathlib import Path
from typing import Any

import pytest

from slurmray.agent.container import node_address
from slurmray.agent.job_errors import JobError


def choose(
    candidates: list[str], local: list[Any], family: str, interface: str = "", subnet: str = ""
) -> str:
    options: Any = {"interface": interface, "subnet": subnet}
    return node_address.choose_address(candidates, local, family, options)


def addresses(*pairs: str) -> list[tuple[str, Any]]:
    """`eth0=10.0.0.1` in the form of network.local_addresses()."""
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
        ([], VIRTUAL, "auto", "docker0", "172.17.0.1"),  # network.interface names it
        (["10.0.0.5"], BOTH, "auto", "ib0", "10.1.0.5"),
        (["10.0.0.5"], BOTH, "ipv6", "ib0", "fd01::5"),
    ],
)
def test_choose_address(
    candidates: list[str], local: list[Any], family: str, interface: str, expected: str
) -> None:
    assert choose(candidates, local, family, interface) == expected


@pytest.mark.parametrize(
    ("subnet", "family", "interface", "expected"),
    [
        ("10.1.0.0/16", "auto", "", "10.1.0.5"),
        ("10.1.0.0/16", "ipv4", "ib0", "10.1.0.5"),
        ("fd01::/64", "auto", "", "fd01::5"),
        ("10.0.0.0/8", "auto", "", "10.0.0.5"),
        ("172.17.0.0/16", "auto", "", "172.17.0.1"),  # although it is a bridge
    ],
)
def test_an_address_of_a_subnet(subnet: str, family: str, interface: str, expected: str) -> None:
    local = [*BOTH, *addresses("docker0=172.17.0.1")]
    assert choose(["10.0.0.5"], local, family, interface, subnet) == expected


def test_no_address_of_a_subnet() -> None:
    with pytest.raises(JobError, match=r"no usable address in 10\.9\.0\.0/16; .* network\.subnet"):
        choose(["10.0.0.5"], BOTH, "auto", "", "10.9.0.0/16")


@pytest.mark.parametrize(
    ("local", "family", "interface", "expected"),
    [
        (ONLY_4, "ipv6", "", "no IPv6 address; found 127.0.0.1 on lo, ::1 on lo, 10.0.0.5 on eth0"),
        (ONLY_6, "ipv4", "", "no IPv4 address"),
        (addresses(*LO, "docker0=172.17.0.1"), "auto", "", "no usable address"),
        ([], "auto", "", "no address at all"),
        (BOTH, "auto", "ib1", "no interface ib1; this node has eth0, ib0, lo. Set network.interface"),
        (addresses(*LO, "ib0=10.1.0.5", "eth0=fd00::5"), "ipv6", "ib0", "no IPv6 address on ib0"),
    ],
)
def test_no_suitable_address(local: list[Any], family: str, interface: str, expected: str) -> None:
    with pytest.raises(JobError) as caught:
        choose(["10.0.0.5"], local, family, interface)
    assert expected in str(caught.value)
    assert "network." in str(caught.value)


def test_the_addresses_of_this_machine() -> None:
    local = node_address.local_addresses()
    assert ("lo", ipaddress.ip_address("127.0.0.1")) in local
    kernel = Path("/proc/net/if_inet6")
    if kernel.exists():
        assert len([1 for _, address in local if address.version == 6]) == len(
            kernel.read_text().splitlines()
        )


def test_the_interface_of_an_address() -> None:
    assert node_address.find_interface("10.1.0.5", BOTH) == "ib0"
    assert node_address.find_interface("fd00::5", BOTH) == "eth0"
    assert node_address.find_interface("192.0.2.7", BOTH) == ""


def test_address_with_port_is_joined_and_split() -> None:
    assert node_address.join_host_port("10.0.0.1", 6379) == "10.0.0.1:6379"
    assert node_address.join_host_port("fd00::1", 6379) == "[fd00::1]:6379"
    assert node_address.split_host_port("10.0.0.1:6379") == ("10.0.0.1", 6379)
    assert node_address.split_host_port("[fd00::1]:6379") == ("fd00::1", 6379)
    assert (node_address.address_family("10.0.0.1"), node_address.address_family("fd00::1")) == (
        "ipv4",
        "ipv6",
    )
