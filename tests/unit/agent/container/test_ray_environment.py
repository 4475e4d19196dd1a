"""Command line and environment of Ray and the trainer; tests/cluster shows that Ray takes them."""

from __future__ import annotations

import importlib
import importlib.util
import ipaddress
import os
import site
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from slurmray.agent.container import environment
from slurmray.agent.container.ray import command as ray_command
from slurmray.agent.container.ray import environment as ray_environment
from slurmray.agent.container.ray import network
from slurmray.agent.container.ray import ports as port_places

PORTS = list(range(20001, 20016))
OLD, NEW = (2, 44), (2, 60)


def command(cluster: str | None, version: tuple[int, int] = NEW, extra: tuple[str, ...] = ()) -> list[str]:
    return ray_command.start_command(
        "gpu-1", "10.0.0.5", PORTS, cluster, version, "/tmp/r", 4, 8, 10**9, list(extra)
    )


def test_the_head_has_what_workers_must_not_have() -> None:
    head, worker = command(None), command("10.0.0.4:20001")
    assert "--head" in head
    assert f"--port={PORTS[port_places.GCS]}" in head
    assert "--head" not in worker
    assert "--address=10.0.0.4:20001" in worker
    only_head = ("--port", "--dashboard-port", "--ray-client-server-port")
    assert not [word for word in worker if word.startswith(only_head)]
    for argv in (head, worker):
        assert {
            "--block",
            "--node-name=gpu-1",
            "--node-ip-address=10.0.0.5",
            "--num-cpus=4",
            "--num-gpus=8",
            "--object-store-memory=1000000000",
        } <= set(argv)


def test_no_port_is_given_twice() -> None:
    given = [word.rpartition("=")[2] for word in command(None) if "-port=" in word]
    fixed = [port for port in given if port != "0"]
    assert len(fixed) == len(set(fixed)) >= 7
    assert str(PORTS[port_places.MASTER]) not in fixed


def test_a_worker_gets_a_temp_folder_where_ray_allows_it() -> None:
    assert "--temp-dir=/tmp/r" in command(None, OLD)
    assert "--temp-dir=/tmp/r" in command("h:1", NEW)
    assert "--temp-dir=/tmp/r" not in command("h:1", OLD)


def test_the_users_options_come_last() -> None:
    assert command(None, extra=("--num-cpus=1", "--x"))[-2:] == ["--num-cpus=1", "--x"]


def test_ray_before_2_49_has_no_ipv6() -> None:
    with pytest.raises(network.NetworkError, match=r"fd00::5: Ray 2\.48 has no IPv6\. Use .* 2\.49"):
        ray_command.start_command("n", "fd00::5", PORTS, None, (2, 48), "/tmp/r", 4, 8, 10**9, [])
    assert ray_command.start_command("n", "fd00::5", PORTS, None, (2, 49), "/tmp/r", 4, 8, 10**9, [])


@pytest.mark.parametrize(
    ("address", "version", "port"),
    [("fd00::5", (2, 55), []), ("fd00::5", (2, 56), [PORTS[1]]), ("10.0.0.5", OLD, [PORTS[1]])],
)
def test_no_ray_client_where_it_would_end_the_head(
    address: str, version: tuple[int, int], port: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name == "grpc")
    argv = ray_command.start_command("n", address, PORTS, None, version, "/tmp/r", 4, 8, 10**9, [])
    given = [word for word in argv if word.startswith("--ray-client-server-port")]
    assert given == [f"--ray-client-server-port={number}" for number in port]


def test_when_a_token_is_asked_for() -> None:
    assert ray_environment.uses_token("auto", NEW)
    assert not ray_environment.uses_token("auto", OLD)
    assert not ray_environment.uses_token("none", NEW)


def test_the_users_environment_wins_but_not_over_the_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OF_THE_IMAGE", "image")
    user = {
        "RAY_TMPDIR": "/mine",
        "OF_THE_IMAGE": "mine",
        "RAY_AUTH_MODE": "disabled",
        "RAY_AUTH_TOKEN_PATH": "/x",
    }
    env = ray_environment.ray_environment("/tmp/r", user, "/tmp/r/token", NEW, False)
    assert (env["RAY_TMPDIR"], env["OF_THE_IMAGE"]) == ("/mine", "mine")
    assert (env["RAY_AUTH_MODE"], env["RAY_AUTH_TOKEN_PATH"]) == ("token", "/tmp/r/token")
    assert ray_environment.ray_environment("/tmp/r", {}, None, OLD, False)["RAY_AUTH_MODE"] == "disabled"
    assert "RAY_AUTH_MODE" not in os.environ


def test_ray_gives_up_later_than_the_probe() -> None:
    found = ray_environment.start_timeouts(600)
    assert found == {
        "RAY_raylet_start_wait_time_s": "660",
        "RAY_agent_register_timeout_ms": "660000",
        "RAY_gcs_rpc_server_connect_timeout_s": "660",
    }


def test_metrics_are_exported_only_where_asked_for() -> None:
    off = ray_environment.ray_environment("/tmp/r", {}, None, NEW, False)
    assert off["RAY_enable_metrics_collection"] == "0"
    on = ray_environment.ray_environment("/tmp/r", {}, None, NEW, True)
    names = {"RAY_enable_metrics_collection", "DASHBOARD_METRIC_PORT", "AUTOSCALER_METRIC_PORT"}
    assert not names & on.keys()
    late = ray_environment.metrics_environment({"DASHBOARD_METRIC_PORT": "9000"}, PORTS)
    assert late["DASHBOARD_METRIC_PORT"] == "9000"
    given = {word.rpartition("=")[2] for word in command(None) if "-port=" in word}
    assert int(late["AUTOSCALER_METRIC_PORT"]) in PORTS
    assert late["AUTOSCALER_METRIC_PORT"] not in given


def test_amd_s_old_mask_goes_where_ray_refuses_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROCR_VISIBLE_DEVICES", "0,1")
    new = ray_environment.ray_environment("/tmp/r", {}, None, NEW, False)
    assert "ROCR_VISIBLE_DEVICES" not in new
    assert new["HIP_VISIBLE_DEVICES"] == "0,1", "or there would be no mask at all"
    assert ray_environment.ray_environment("/tmp/r", {}, None, OLD, False)["ROCR_VISIBLE_DEVICES"] == "0,1"
    user = {"ROCR_VISIBLE_DEVICES": "1"}
    assert ray_environment.ray_environment("/tmp/r", user, None, NEW, False)["ROCR_VISIBLE_DEVICES"] == "1"


def test_what_a_trainer_gets() -> None:
    facts = {"NNODES": "2", "NODE_RANK": "0"}
    env = ray_environment.trainer_environment({"A": "1"}, facts, "fd00::5", PORTS)
    assert env == {
        "A": "1",
        "RAY_ADDRESS": f"[fd00::5]:{PORTS[port_places.GCS]}",
        "NNODES": "2",
        "NODE_RANK": "0",
        "MASTER_ADDR": "fd00::5",
        "MASTER_PORT": str(PORTS[port_places.MASTER]),
    }


def test_a_python_without_ray(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    assert ray_command.ray_version() is None
    (tmp_path / "ray-2.60.0.dist-info").mkdir()
    (tmp_path / "ray-2.60.0.dist-info" / "METADATA").write_text("Name: ray\nVersion: 2.60.0\n")
    importlib.invalidate_caches()
    assert ray_command.ray_version() == ("2.60.0", (2, 60))


# -- environment -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cpus", "gpus", "expected"), [(32, 8, 4), (4, 8, 1), (128, 4, 16), (8, 0, 8), (96, 0, 16)]
)
def test_threads(cpus: int, gpus: int, expected: int) -> None:
    assert environment.threads_per_gpu(cpus, gpus) == expected


def test_defaults(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    ours = {"USER": "alice", "LOGNAME": "alice", "OMP_NUM_THREADS": "4"}
    assert environment.default_environment("alice", 32, 8, "/tmp/r") == ours
    monkeypatch.setenv("OMP_NUM_THREADS", "2")  # the image's
    assert environment.default_environment("alice", 32, 8, "/tmp/r")["OMP_NUM_THREADS"] == "2"
    monkeypatch.setenv("HOME", "/no/such/home")
    assert environment.default_environment("alice", 32, 8, "/tmp/r")["HOME"] == "/tmp/r"


GIB = 2**30


@pytest.mark.parametrize(
    ("memory", "room", "expected"),
    [
        (10 * 1024, 64 * GIB, 3 * GIB),
        (10 * 1024, 2 * GIB, 2 * GIB * 9 // 10),
        (4 * 1024 * 1024, 2048 * GIB, 200 * 10**9),
        (1024, GIB // 16, 75 * 2**20),  # Ray then puts it on disk, with a warning
        (0, 64 * GIB, 6 * GIB),  # the machine's 20 GiB
    ],
)
def test_object_store(memory: int, room: int, expected: int, monkeypatch: pytest.MonkeyPatch) -> None:
    class Disk:
        f_bavail, f_frsize = room // 4096, 4096

    sizes = {"SC_PHYS_PAGES": 20 * GIB // 4096, "SC_PAGE_SIZE": 4096}
    monkeypatch.setattr(os, "statvfs", lambda path: {"/dev/shm": Disk}[path])
    monkeypatch.setattr(os, "sysconf", sizes.__getitem__)
    assert ray_command.object_store_size(memory) == expected


LOCAL = [("lo", ipaddress.ip_address("127.0.0.1")), ("ib0", ipaddress.ip_address("10.1.0.5"))]


def found_environment(env: dict[str, str], address: str = "10.1.0.5") -> dict[str, str]:
    return environment.network_environment(env, address, ["10.1.0.4", "gpu-1", "gpu-2"], LOCAL)


def test_libraries_use_the_interface_of_the_address() -> None:
    found = {"VLLM_HOST_IP": "10.1.0.5", "NCCL_SOCKET_IFNAME": "ib0", "GLOO_SOCKET_IFNAME": "ib0"}
    assert found_environment({}) == found
    assert found_environment({"NCCL_SOCKET_IFNAME": "^lo"}) == {**found, "NCCL_SOCKET_IFNAME": "^lo"}
    assert found_environment({}, "10.9.9.9") == {"VLLM_HOST_IP": "10.9.9.9"}


@pytest.mark.parametrize("proxy", ["http_proxy", "HTTPS_PROXY", "all_proxy"])
def test_nodes_are_reached_without_a_proxy(proxy: str) -> None:
    found = found_environment({proxy: "http://proxy:3128", "NO_PROXY": "example.org,localhost"})
    assert found["no_proxy"] == found["NO_PROXY"]
    assert found["no_proxy"] == "example.org,localhost,127.0.0.1,::1,10.1.0.5,10.1.0.4,gpu-1,gpu-2"
    assert found_environment({proxy: "http://proxy:3128", "no_proxy": "*"})["no_proxy"] == "*"
    assert "no_proxy" not in found_environment({proxy: ""})


def test_more_nodes_than_a_variable_holds() -> None:
    peers = [f"2001:db8::{number:x}" for number in range(10_000)]
    found = environment.network_environment({"http_proxy": "x"}, "10.1.0.5", peers, LOCAL)["no_proxy"]
    assert 99_000 < len(found) < 2**17
    assert set(found.split(",")) <= {*peers, "10.1.0.5", *environment.LOCAL_NAMES}


PATHS = ["/lib/python3.11", "/lib/python3.11/site-packages", "/usr/lib/dist-packages"]


def test_an_isolated_process_finds_what_others_find(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_lines_for_a_shell() -> None:
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
