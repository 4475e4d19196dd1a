"""What the programs for Ray decide; that Ray takes it is seen on the real Slurm."""

import importlib
import importlib.util
import ipaddress
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from slurmray.rendering import template_root

# They have no package: in the container they lie side by side in one folder.
sys.path.insert(0, str(template_root() / "node"))
ray_start: Any = importlib.import_module("ray_start")
network: Any = importlib.import_module("network")
surroundings: Any = importlib.import_module("surroundings")
probe: Any = importlib.import_module("probe")
preflight: Any = importlib.import_module("preflight")
ray_command: Any = importlib.import_module("ray_command")
ray_environment: Any = importlib.import_module("ray_environment")
ray_process: Any = importlib.import_module("ray_process")
ray_watch: Any = importlib.import_module("ray_watch")
waiting_ray: Any = importlib.import_module("waiting_ray")
Records: Any = importlib.import_module("records").Records
GiveUp: Any = importlib.import_module("give_up").GiveUp
sys.path.pop(0)

# -- ray_start -------------------------------------------------------------------------------------

PORTS = list(range(20001, 20016))
OLD, NEW = (2, 44), (2, 60)


def command(cluster: str | None, version: tuple[int, int] = NEW, extra: tuple[str, ...] = ()) -> list[str]:
    words = ray_start.command(
        "gpu-1", "10.0.0.5", PORTS, cluster, version, "/tmp/r", "4", "8", 10**9, list(extra)
    )
    assert isinstance(words, list)
    return words


def test_the_head_has_what_workers_must_not_have() -> None:
    head, worker = command(None), command("10.0.0.4:20001")
    assert "--head" in head
    assert f"--port={PORTS[ray_start.GCS]}" in head
    assert "--head" not in worker
    assert "--address=10.0.0.4:20001" in worker
    only_head = ("--port", "--dashboard-port", "--ray-client-server-port")
    assert not [word for word in worker if word.startswith(only_head)]
    for words in (head, worker):
        assert {
            "--block",
            "--node-name=gpu-1",
            "--node-ip-address=10.0.0.5",
            "--num-cpus=4",
            "--num-gpus=8",
            "--object-store-memory=1000000000",
        } <= set(words)


def test_no_port_is_given_twice() -> None:
    given = [word.rpartition("=")[2] for word in command(None) if "-port=" in word]
    fixed = [port for port in given if port != "0"]
    assert len(fixed) == len(set(fixed)) >= 7
    assert str(PORTS[ray_start.MASTER]) not in fixed


def test_a_worker_gets_a_temp_folder_where_ray_allows_it() -> None:
    assert "--temp-dir=/tmp/r" in command(None, OLD)
    assert "--temp-dir=/tmp/r" in command("h:1", NEW)
    assert "--temp-dir=/tmp/r" not in command("h:1", OLD)


def test_the_users_options_come_last() -> None:
    assert command(None, extra=("--num-cpus=1", "--x"))[-2:] == ["--num-cpus=1", "--x"]


def test_ray_before_2_49_has_no_ipv6() -> None:
    with pytest.raises(network.NetworkError, match=r"fd00::5: Ray 2\.48 has no IPv6; use .* 2\.49"):
        ray_start.command("n", "fd00::5", PORTS, None, (2, 48), "/tmp/r", "4", "8", 10**9, [])
    assert ray_start.command("n", "fd00::5", PORTS, None, (2, 49), "/tmp/r", "4", "8", 10**9, [])


@pytest.mark.parametrize(
    ("address", "version", "port"),
    [("fd00::5", (2, 55), []), ("fd00::5", (2, 56), [PORTS[1]]), ("10.0.0.5", OLD, [PORTS[1]])],
)
def test_no_ray_client_where_it_would_end_the_head(
    address: str, version: tuple[int, int], port: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name == "grpc")
    words = ray_start.command("n", address, PORTS, None, version, "/tmp/r", "4", "8", 10**9, [])
    given = [word for word in words if word.startswith("--ray-client-server-port")]
    assert given == [f"--ray-client-server-port={number}" for number in port]


def test_when_a_token_is_asked_for() -> None:
    assert ray_environment.wants_token("auto", NEW)
    assert not ray_environment.wants_token("auto", OLD)
    assert not ray_environment.wants_token("none", NEW)


def test_the_users_environment_wins_but_not_over_the_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OF_THE_IMAGE", "image")
    user = {
        "RAY_TMPDIR": "/mine",
        "OF_THE_IMAGE": "mine",
        "RAY_AUTH_MODE": "disabled",
        "RAY_AUTH_TOKEN_PATH": "/x",
    }
    env = ray_environment.environment("/tmp/r", user, "/tmp/r/token", NEW, False)
    assert (env["RAY_TMPDIR"], env["OF_THE_IMAGE"]) == ("/mine", "mine")
    assert (env["RAY_AUTH_MODE"], env["RAY_AUTH_TOKEN_PATH"]) == ("token", "/tmp/r/token")
    assert ray_environment.environment("/tmp/r", {}, None, OLD, False)["RAY_AUTH_MODE"] == "disabled"
    assert "RAY_AUTH_MODE" not in os.environ


def test_ray_gives_up_later_than_the_probe() -> None:
    found = ray_environment.deadlines(600)
    assert found == {"RAY_raylet_start_wait_time_s": "660", "RAY_agent_register_timeout_ms": "660000"}


def test_metrics_are_exported_only_where_asked_for() -> None:
    off = ray_environment.environment("/tmp/r", {}, None, NEW, False)
    assert off["RAY_enable_metrics_collection"] == "0"
    on = ray_environment.environment("/tmp/r", {}, None, NEW, True)
    names = {"RAY_enable_metrics_collection", "DASHBOARD_METRIC_PORT", "AUTOSCALER_METRIC_PORT"}
    assert not names & on.keys()
    late = ray_environment.metrics_environment({"DASHBOARD_METRIC_PORT": "9000"}, PORTS)
    assert late["DASHBOARD_METRIC_PORT"] == "9000"
    given = {word.rpartition("=")[2] for word in command(None) if "-port=" in word}
    assert int(late["AUTOSCALER_METRIC_PORT"]) in PORTS
    assert late["AUTOSCALER_METRIC_PORT"] not in given


def test_amd_s_old_mask_goes_where_ray_refuses_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROCR_VISIBLE_DEVICES", "0,1")
    new = ray_environment.environment("/tmp/r", {}, None, NEW, False)
    assert "ROCR_VISIBLE_DEVICES" not in new
    assert new["HIP_VISIBLE_DEVICES"] == "0,1", "or there would be no mask at all"
    assert ray_environment.environment("/tmp/r", {}, None, OLD, False)["ROCR_VISIBLE_DEVICES"] == "0,1"
    user = {"ROCR_VISIBLE_DEVICES": "1"}
    assert ray_environment.environment("/tmp/r", user, None, NEW, False)["ROCR_VISIBLE_DEVICES"] == "1"


def test_what_a_trainer_is_told() -> None:
    env = ray_environment.trainer_environment({"A": "1"}, ("fd00::5", PORTS), 2, "8")
    assert env == {
        "A": "1",
        "RAY_ADDRESS": f"[fd00::5]:{PORTS[ray_start.GCS]}",
        "NNODES": "2",
        "NODE_RANK": "0",
        "GPUS_PER_NODE": "8",
        "MASTER_ADDR": "fd00::5",
        "MASTER_PORT": str(PORTS[ray_start.MASTER]),
    }


def test_a_python_without_ray(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    assert ray_start.ray_version() is None
    (tmp_path / "ray-2.60.0.dist-info").mkdir()
    (tmp_path / "ray-2.60.0.dist-info" / "METADATA").write_text("Name: ray\nVersion: 2.60.0\n")
    importlib.invalidate_caches()
    assert ray_start.ray_version() == ("2.60.0", (2, 60))


# -- surroundings ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cpus", "gpus", "expected"), [(32, 8, 4), (4, 8, 1), (128, 4, 16), (8, 0, 8), (96, 0, 16)]
)
def test_threads(cpus: int, gpus: int, expected: int) -> None:
    assert surroundings.threads(cpus, gpus) == expected


def test_defaults(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    ours = {"USER": "alice", "LOGNAME": "alice", "OMP_NUM_THREADS": "4"}
    assert surroundings.defaults("alice", 32, 8, "/tmp/r") == ours
    monkeypatch.setenv("OMP_NUM_THREADS", "2")  # the image's
    assert surroundings.defaults("alice", 32, 8, "/tmp/r")["OMP_NUM_THREADS"] == "2"
    monkeypatch.setenv("HOME", "/no/such/home")
    assert surroundings.defaults("alice", 32, 8, "/tmp/r")["HOME"] == "/tmp/r"


GIB = 2**30


@pytest.mark.parametrize(
    ("memory", "room", "expected"),
    [
        (10 * 1024, 64 * GIB, 3 * GIB),
        (10 * 1024, 2 * GIB, 2 * GIB * 9 // 10),
        (4 * 1024 * 1024, 2048 * GIB, 200 * 10**9),
        (1024, GIB // 16, 75 * 2**20),  # Ray then puts it on disk, and says so
        (0, 64 * GIB, 6 * GIB),  # the machine's 20 GiB
    ],
)
def test_object_store(memory: int, room: int, expected: int, monkeypatch: pytest.MonkeyPatch) -> None:
    class Disk:
        f_bavail, f_frsize = room // 4096, 4096

    sizes = {"SC_PHYS_PAGES": 20 * GIB // 4096, "SC_PAGE_SIZE": 4096}
    monkeypatch.setattr(os, "statvfs", lambda path: {"/dev/shm": Disk}[path])
    monkeypatch.setattr(os, "sysconf", sizes.__getitem__)
    assert surroundings.object_store(memory) == expected


LOCAL = [("lo", ipaddress.ip_address("127.0.0.1")), ("ib0", ipaddress.ip_address("10.1.0.5"))]


def told(env: dict[str, str], address: str = "10.1.0.5") -> dict[str, str]:
    found = surroundings.network_environment(env, address, ["10.1.0.4", "gpu-1", "gpu-2"], LOCAL)
    assert isinstance(found, dict)
    return found


def test_libraries_use_the_interface_of_the_address() -> None:
    found = {"VLLM_HOST_IP": "10.1.0.5", "NCCL_SOCKET_IFNAME": "ib0", "GLOO_SOCKET_IFNAME": "ib0"}
    assert told({}) == found
    assert told({"NCCL_SOCKET_IFNAME": "^lo"}) == {**found, "NCCL_SOCKET_IFNAME": "^lo"}
    assert told({}, "10.9.9.9") == {"VLLM_HOST_IP": "10.9.9.9"}


@pytest.mark.parametrize("proxy", ["http_proxy", "HTTPS_PROXY", "all_proxy"])
def test_nodes_are_reached_without_a_proxy(proxy: str) -> None:
    found = told({proxy: "http://proxy:3128", "NO_PROXY": "example.org,localhost"})
    assert found["no_proxy"] == found["NO_PROXY"]
    assert found["no_proxy"] == "example.org,localhost,127.0.0.1,::1,10.1.0.5,10.1.0.4,gpu-1,gpu-2"
    assert told({proxy: "http://proxy:3128", "no_proxy": "*"})["no_proxy"] == "*"
    assert "no_proxy" not in told({proxy: ""})


def test_more_nodes_than_a_variable_holds() -> None:
    peers = [f"2001:db8::{number:x}" for number in range(10_000)]
    found = surroundings.network_environment({"http_proxy": "x"}, "10.1.0.5", peers, LOCAL)["no_proxy"]
    assert 99_000 < len(found) < 2**17
    assert set(found.split(",")) <= {*peers, "10.1.0.5", *surroundings.LOCAL}


# -- preflight -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("debugpy", "ray", "found"),
    [
        ("1.8.0", (2, 39), []),
        ("1.10.2", NEW, []),
        ("2.0rc1", NEW, []),
        ("1.7.9", NEW, [("debugpy", "1.7.9", "1.8.0 or later")]),
        (None, NEW, [("debugpy", "none", "1.8.0 or later")]),
        ("1.8.0", (2, 38), [("debugger", "Ray 2.38", "Ray 2.39 or later")]),
    ],
)
def test_what_the_distributed_debugger_lacks(
    debugpy: str | None,
    ray: tuple[int, int],
    found: list[tuple[str, str, str]],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    if debugpy:
        (tmp_path / f"debugpy-{debugpy}.dist-info").mkdir()
        metadata = f"Name: debugpy\nVersion: {debugpy}\n"
        (tmp_path / f"debugpy-{debugpy}.dist-info" / "METADATA").write_text(metadata)
        importlib.invalidate_caches()
    assert [row[:3] for row in preflight.debugger(ray)] == found


# -- ray_command -----------------------------------------------------------------------------------


def test_ray_is_at_hand_for_who_comes_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OF_THE_IMAGE", "image")
    monkeypatch.setattr(os, "getpid", lambda: 1)  # in a container
    package = tmp_path / "lib/ray/scripts"
    package.mkdir(parents=True)
    for folder in (package.parent, package):
        (folder / "__init__.py").touch()
    show = (
        "import os, sys\ndef main(): print([sys.argv, os.environ['TOKEN'], os.environ['LINES'], os.getcwd()])"
    )
    (package / "scripts.py").write_text(show)
    (tmp_path / "ray.py").touch()  # what is in the current folder is not imported
    env = {"TOKEN": "/t p", "LINES": "it's\n$x", "OF_THE_IMAGE": "image", "PYTHONPATH": str(tmp_path / "lib")}
    ray_command.write(tmp_path / "command", env)
    assert (tmp_path / "command").stat().st_mode & 0o777 == 0o700
    assert "OF_THE_IMAGE" not in (tmp_path / "command").read_text()
    words = [str(tmp_path / "command"), "job", "it's", ""]
    said = subprocess.run(words, env={}, cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    assert said == repr([["ray", "job", "it's", ""], "/t p", "it's\n$x", str(tmp_path)]) + "\n"


def test_the_way_in() -> None:
    assert ray_command.call("7-2", "gpu-1", "podman exec c", "/tmp/ray-7-2/ray") == (
        "srun --overlap --jobid=7 -N1 -n1 -w gpu-1 podman exec c /tmp/ray-7-2/ray"
    )


# -- probe -----------------------------------------------------------------------------------------


def row(name: str, gpus: int = 8, alive: bool = True) -> dict[str, Any]:
    """What `ray.nodes()` says of a node, as far as it is read; a node without GPUs has no such key."""
    resources = {"CPU": 4.0, **({"GPU": float(gpus)} if gpus else {})}
    return {"Alive": alive, "NodeName": name, "Resources": resources}


NAMES = ["gpu-1", "gpu-2"]


@pytest.mark.parametrize(
    ("table", "gpus", "expected"),
    [
        ([], 8, (0, 0, {"gpu-1": "has not joined", "gpu-2": "has not joined"})),
        ([row("gpu-1"), row("gpu-2")], 8, (2, 16, {})),
        ([row("gpu-1"), row("gpu-2", 7)], 8, (2, 15, {"gpu-2": "has 7 of 8 GPUs"})),
        ([row("gpu-1"), row("gpu-2", alive=False)], 8, (1, 8, {"gpu-2": "has not joined"})),
        ([row("gpu-1", alive=False), row("gpu-1"), row("gpu-2")], 8, (2, 16, {})),  # it came back
        ([row("gpu-1", 16), row("stranger")], 8, (1, 16, {"gpu-2": "has not joined"})),
        ([row("gpu-1", 0), row("gpu-2", 0)], 0, (2, 0, {})),
    ],
)
def test_verdict(table: list[Any], gpus: int, expected: tuple[int, int, dict[str, str]]) -> None:
    assert probe.verdict(table, NAMES, gpus) == expected


def test_progress() -> None:
    assert probe.progress(3, 24, {"gpu-2": "has not joined"}, ["a", "b", "c", "gpu-2"], 8) == (
        "3/4 nodes, 24/32 GPUs, waiting for gpu-2"
    )
    assert probe.progress(2, 16, {}, NAMES, 8) == "2/2 nodes, 16/16 GPUs"
    many = {f"n{number}": "" for number in range(9)}
    assert probe.progress(0, 0, many, list(many), 0).endswith("waiting for n0, n1, n2, n3 and 5 more")


def waited(tables: list[list[Any]], timeout: float) -> tuple[dict[str, str], list[str]]:
    """Result and messages of a probe that reads one table a second; the last one stays."""
    now, said = [0.0], []

    def pause(_: float) -> None:
        now[0] += 1

    wrong = probe.wait(
        lambda: tables[min(int(now[0]), len(tables) - 1)],
        NAMES,
        8,
        timeout,
        lambda *words: said.append(" ".join(words)),
        lambda: now[0],
        pause,
    )
    return wrong, said


def test_the_probe_says_each_step_once_and_ends_when_all_are_there() -> None:
    one, two = [row("gpu-1")], [row("gpu-1"), row("gpu-2")]
    assert waited([[], one, one, two], 600) == (
        {},
        [
            "phase probe 0/2 nodes, 0/16 GPUs, waiting for gpu-1, gpu-2",
            "phase probe 1/2 nodes, 8/16 GPUs, waiting for gpu-2",
            "phase probe 2/2 nodes, 16/16 GPUs",
        ],
    )


def test_the_probe_ends_at_its_deadline() -> None:
    wrong, said = waited([[row("gpu-1")]], 3)
    assert wrong == {"gpu-2": "has not joined"}
    assert len(said) == 1


# -- ray_process -----------------------------------------------------------------------------------


def test_ports_that_are_taken_again_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_watch.ports, "taken", lambda _: [20001])
    member = SimpleNamespace(
        head=SimpleNamespace(waiting="gcs"), children=SimpleNamespace(kill=lambda _: None)
    )
    ray = ray_process.RayProcess(member)
    ray.watch.begin()
    for name in ("make_environment", "prepare", "start"):
        monkeypatch.setattr(ray, name, lambda *_: None)
    ray.ended(1)
    ray.ended(1)
    with pytest.raises(GiveUp) as caught:
        ray.ended(1)
    assert caught.value.args == (
        "bring_up",
        "its ports were taken after they had been chosen, 3 times",
    )


# -- ray_watch -------------------------------------------------------------------------------------


def test_a_process_that_ends_while_ray_starts(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    for session, said in (("session_2026-1", "of an earlier start"), ("session_2026-2", "1\n2\n3\n4\n5\n6")):
        logs = tmp_path / session / "logs"
        logs.mkdir(parents=True)
        (logs / "raylet.err").write_text(f"{said}\n*** StackTrace Information ***\nsome frames\n")
    (tmp_path / "session_latest").symlink_to("session_2026-2")
    ended: dict[int, str] = {}
    monkeypatch.setattr(ray_watch.ports, "taken", lambda _: [])
    monkeypatch.setattr(ray_watch.below, "names", lambda **_: dict(ended))
    member = SimpleNamespace(temp_dir=tmp_path)
    watch = ray_watch.RayWatch(SimpleNamespace(cluster=None, ports=[], member=member))

    def look() -> None:
        watch.look_at = 0
        watch.mind()

    watch.begin()
    ended |= {5: "python3", 6: "raylet"}
    look()
    del ended[6]  # whoever started that one has waited for it
    ended[7] = "raylet"
    look()
    with pytest.raises(GiveUp) as caught:
        look()
    assert caught.value.args == ("ray", "raylet ended while Ray was starting")
    assert capfd.readouterr().err == "".join(f"raylet: {line}\n" for line in "23456")
    watch.release_ports()
    with pytest.raises(GiveUp):
        look()
    (tmp_path / "started").touch()
    monkeypatch.setattr(ray_watch.waiting_ray, "STARTED", str(tmp_path / "started"))
    look()


def test_only_the_head_has_a_gcs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_watch.below, "names", lambda: {7: "raylet"})
    assert ray_watch.RayWatch(SimpleNamespace(cluster="10.0.0.4:20001")).is_well()
    assert not ray_watch.RayWatch(SimpleNamespace(cluster=None)).is_well()


# -- waiting_ray -----------------------------------------------------------------------------------


def test_a_raylet_is_told_the_port_of_its_agent() -> None:
    started: list[tuple[list[str], dict[str, str]]] = []
    services = SimpleNamespace(start_ray_process=lambda words, **more: started.append((words, more)))
    waiting_ray.tell_the_raylet(services)
    agent = "--dashboard_agent_command=python agent.py --listen-port=20007 --node-manager-port=1"
    services.start_ray_process(["raylet", agent], kind="raylet")
    services.start_ray_process(["gcs_server"], kind="gcs_server")
    assert started == [
        (["raylet", agent, "--dashboard_agent_listen_port=20007"], {"kind": "raylet"}),
        (["gcs_server"], {"kind": "gcs_server"}),
    ]


def test_the_raylet_of_this_ray_wants_to_be_told(tmp_path: Path) -> None:
    ray = importlib.util.find_spec("ray")
    assert ray and ray.submodule_search_locations
    assert waiting_ray.wants_agent_port(ray.submodule_search_locations[0])
    assert not waiting_ray.wants_agent_port(str(tmp_path))
    raylet = tmp_path / "core/src/ray/raylet/raylet"
    raylet.parent.mkdir(parents=True)
    raylet.write_text("#!/bin/sh\necho '-node_manager_port (The port of node manager.)'\nexit 1\n")
    raylet.chmod(0o755)
    assert not waiting_ray.wants_agent_port(str(tmp_path))


class Node:
    """Ray's class of that name, as far as its raylet and its dashboard go."""

    def __init__(self, kv: SimpleNamespace, raylet: Exception | None = None) -> None:
        self.kv, self.raylet, self.did = kv, raylet, list[str]()

    def start_api_server(self, *, include_dashboard: bool) -> None:
        self.did.append(f"dashboard {include_dashboard}")
        try:
            while not self.kv._internal_kv_get("dashboard", namespace="ns"):
                self.did.append("waits")
        except ValueError:
            self.did.append("no dashboard")

    def start_ray_processes(self) -> None:
        self.did.append("raylet")
        if self.raylet:
            raise self.raylet

    def start(self) -> None:
        self.start_api_server(include_dashboard=True)
        self.start_ray_processes()


def early(raylet: Exception | None = None) -> Node:
    """A node whose raylet is to start early; its dashboard answers when it is asked for the third time."""
    answers = iter([None, None, b"10.0.0.4:8265"])
    kv = SimpleNamespace(_internal_kv_get=lambda *_, **__: next(answers))
    kind = type("Node", (Node,), {})
    waiting_ray.start_the_raylet_early(kind, kv)
    node = kind(kv, raylet)
    assert isinstance(node, Node)
    return node


def test_the_raylet_of_a_head_does_not_wait_for_the_dashboard() -> None:
    node = early()
    node.start()
    assert node.did == ["dashboard True", "raylet", "waits", "waits"]


def test_a_raylet_that_cannot_be_started_early() -> None:
    node = early(ValueError("no memory"))
    with pytest.raises(ValueError, match="no memory"):
        node.start()
    assert node.did == ["dashboard True", "raylet", "no dashboard"]


def test_ray_says_when_it_is_started(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    started = tmp_path / "started"
    monkeypatch.setattr(waiting_ray, "STARTED", str(started))

    class Made:
        def __init__(self, head: bool) -> None:
            assert head and not started.exists()

    waiting_ray.tell_when_started(Made)
    Made(head=True)
    assert started.exists()


# -- records ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("conf", "said"),
    [
        ({}, "slurmray gpu-1 finding config|GPUs|4/8 of it|8 or more|mend it\n"),
        ({"preflight": ["fail"]}, "slurmray gpu-1 finding config|GPUs|4/8 of it|8 or more|mend it\n"),
        ({"preflight": ["warn"]}, "slurmray gpu-1 finding warn|GPUs|4/8 of it|8 or more|mend it\n"),
        ({"preflight": ["none"]}, ""),
    ],
)
def test_a_finding(conf: dict[str, list[str]], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    records = Records("gpu-1")
    records.conf = conf
    records.find("config", "GPUs", "4|8\nof it", "8 or more", "mend it")
    assert capsys.readouterr().out == said
