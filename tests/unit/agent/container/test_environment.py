"""Environment variables that depend on the machine."""

from __future__ import annotations

import ipaddress
import os
import site
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from slurmray.agent.container import environment


def test_default_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert environment.default_environment("alice", "/tmp/r") == {"USER": "alice", "LOGNAME": "alice"}
    monkeypatch.setenv("HOME", "/no/such/home")
    assert environment.default_environment("alice", "/tmp/r")["HOME"] == "/tmp/r"


LOCAL = [
    (name, ipaddress.ip_address(address))
    for name, address in (("lo", "127.0.0.1"), ("eth0", "10.9.0.5"), ("eth1", "10.1.0.5"))
]


def found_environment(env: dict[str, str], address: str = "10.1.0.5") -> dict[str, str]:
    return environment.network_environment(env, address, ["10.1.0.4", "gpu-1", "gpu-2"], LOCAL)


def test_libraries_use_the_interface_of_the_address() -> None:
    found = {"VLLM_HOST_IP": "10.1.0.5", "NCCL_SOCKET_IFNAME": "=eth1", "GLOO_SOCKET_IFNAME": "eth1"}
    assert found_environment({}) == found
    assert found_environment({"NCCL_SOCKET_IFNAME": "^lo"}) == {**found, "NCCL_SOCKET_IFNAME": "^lo"}
    assert found_environment({}, "10.9.9.9") == {"VLLM_HOST_IP": "10.9.9.9"}


@pytest.mark.parametrize(
    ("names", "interface", "is_set"),
    [
        (["lo", "eth0"], "eth0", False),
        (["lo", "docker0", "eth0", "eth1"], "eth0", False),
        (["lo", "eth0", "eth1"], "eth1", True),
        (["lo", "eth0", "ib0"], "ib0", False),
        (["lo", "eth0", "ib0"], "eth0", False),
        (["lo", "docker0"], "docker0", True),
    ],
)
def test_nccl_chooses_where_it_finds_the_interface_or_infiniband(
    names: list[str], interface: str, is_set: bool
) -> None:
    local = [(name, ipaddress.ip_address(f"10.{number}.0.1")) for number, name in enumerate(names)]
    address = f"10.{names.index(interface)}.0.1"
    found = environment.network_environment({}, address, [], local)
    assert found.get("NCCL_SOCKET_IFNAME") == (f"={interface}" if is_set else None)
    assert found["GLOO_SOCKET_IFNAME"] == interface


def test_nccl_s_own_configuration_stays(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    conf = tmp_path / "nccl.conf"
    conf.write_text("NCCL_DEBUG=WARN\n# NCCL_SOCKET_IFNAME=eth2\n")
    original = open
    monkeypatch.setattr(
        "builtins.open", lambda path, *a, **k: original(conf if path == "/etc/nccl.conf" else path, *a, **k)
    )
    assert "NCCL_SOCKET_IFNAME" in found_environment({})
    conf.write_text("NCCL_SOCKET_IFNAME=eth2\n")
    assert "NCCL_SOCKET_IFNAME" not in found_environment({})


@pytest.mark.parametrize("proxy", ["http_proxy", "HTTPS_PROXY", "all_proxy"])
def test_nodes_are_reached_without_a_proxy(proxy: str) -> None:
    found = found_environment({proxy: "http://proxy:3128", "NO_PROXY": "example.org,localhost"})
    assert found["no_proxy"] == found["NO_PROXY"]
    assert found["no_proxy"] == "example.org,localhost,127.0.0.1,::1,10.1.0.5,10.1.0.4,gpu-1,gpu-2"
    assert found_environment({proxy: "http://proxy:3128", "no_proxy": "*"})["no_proxy"] == "*"
    assert "no_proxy" not in found_environment({proxy: ""})


def test_no_proxy_of_10000_nodes_fits_into_a_variable() -> None:
    peers = [f"2001:db8::{number:x}" for number in range(10_000)]
    found = environment.network_environment({"http_proxy": "x"}, "10.1.0.5", peers, LOCAL)["no_proxy"]
    assert 99_000 < len(found) < 2**17
    assert set(found.split(",")) <= {*peers, "10.1.0.5", *environment.LOCAL_NAMES}


PATHS = ["/lib/python3.11", "/lib/python3.11/site-packages", "/usr/lib/dist-packages"]


def test_search_path_of_an_isolated_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "flags", SimpleNamespace(isolated=1))
    monkeypatch.setattr(sys, "path", PATHS.copy())
    monkeypatch.setattr(site, "getusersitepackages", lambda: str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", "/a::/b")
    environment.restore_search_path()
    assert sys.path == [PATHS[0], "/a", "/b", str(tmp_path), *PATHS[1:]]
    monkeypatch.setattr(sys, "path", PATHS.copy())
    monkeypatch.setattr(sys, "flags", SimpleNamespace(isolated=0))
    environment.restore_search_path()
    assert sys.path == PATHS


def test_export_lines_for_a_shell() -> None:
    text = environment.export_lines({"A": "it's\n$x", "B": ""}) + 'printf "%s|" "$A" "$B"'
    assert (
        subprocess.run(["sh", "-c", text], capture_output=True, text=True, check=True).stdout == "it's\n$x||"
    )


def test_visible_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.delenv("ROCR_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(os.path, "exists", lambda _: False)
    assert environment.visible_gpus(2, 2) == {"CUDA_VISIBLE_DEVICES": "2,3"}
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,6,7,9")
    assert environment.visible_gpus(1, 2) == {"CUDA_VISIBLE_DEVICES": "6,7"}
    monkeypatch.setattr(os.path, "exists", lambda path: path == "/dev/kfd")
    assert environment.visible_gpus(0, 1) == {"HIP_VISIBLE_DEVICES": "0"}
