"""How Ray is started: changes to Ray for a fast start, what is watched meanwhile, and a second try."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from slurmray.agent.container import process_tree
from slurmray.agent.container.ray import network, ports, preload, start, watch
from slurmray.agent.errors import JobError

# -- preload ---------------------------------------------------------------------------------------


def test_when_the_fast_start_is_used() -> None:
    assert preload.reason_for_plain("fast", "2.60.1", (2, 60)) == ""
    assert preload.reason_for_plain("plain", "2.60.1", (2, 60)) == "ray.start is plain"
    assert "this is 2.45.0" in preload.reason_for_plain("fast", "2.45.0", (2, 45))


def test_the_agents_port_for_the_raylet_and_the_dashboards_address() -> None:
    started: list[tuple[list[str], str, dict[str, str]]] = []

    def start_ray_process(command: list[str], process_type: str, **more: str) -> None:
        started.append((command, process_type, more))

    for agent_port in (True, False):
        services = SimpleNamespace(start_ray_process=start_ray_process)
        fast = preload.FastStart(services, None, None)
        fast.patch_start_process(agent_port)
        agent = "--dashboard_agent_command=python agent.py --listen-port=20007 --node-manager-port=1"
        services.start_ray_process(["raylet", agent], "raylet", kind="x")
        services.start_ray_process(["gcs_server"], "gcs_server")
        services.start_ray_process(
            command=["d", "--host=127.0.0.1", "--port=1", "--port-retries=0"], process_type="dashboard"
        )
        more = ["--dashboard_agent_listen_port=20007"] if agent_port else []
        assert started[:2] == [
            (["raylet", agent, *more], "raylet", {"kind": "x"}),
            (["gcs_server"], "gcs_server", {}),
        ]
        assert fast.url == "127.0.0.1:1"
        started.clear()


@pytest.mark.parametrize(
    ("options", "url"),
    [
        (
            ["--host=127.0.0.1", "--port=8265", "--port-retries=0", "--node-ip-address=10.0.0.5"],
            "127.0.0.1:8265",
        ),
        (
            ["--host=0.0.0.0", "--port=8265", "--port-retries=0", "--node-ip-address=10.0.0.5"],
            "10.0.0.5:8265",
        ),
        (["--host=::", "--port=8265", "--port-retries=0", "--node-ip-address=fd00::5"], "[fd00::5]:8265"),
        (["--host=localhost", "--port=8265", "--port-retries=0", "--node-ip-address=10.0.0.5"], ""),
        (["--host=127.0.0.1", "--port=8265", "--port-retries=50"], ""),
        (["--host=127.0.0.1", "--port=8265", "--port-retries=0", "--minimal"], ""),
        (["--host=127.0.0.1", "--port=8265", "--port-retries=0", "--disable-frontend"], ""),
    ],
)
def test_the_address_of_a_dashboard(options: list[str], url: str) -> None:
    assert preload.dashboard_url(["python", "dashboard.py", *options]) == url


def test_which_raylet_takes_the_port_of_its_agent(tmp_path: Path) -> None:
    assert not preload.takes_agent_port(str(tmp_path))
    raylet = tmp_path / "core/src/ray/raylet/raylet"
    raylet.parent.mkdir(parents=True)
    for option, takes in (("node_manager_port", False), ("dashboard_agent_listen_port", True)):
        raylet.write_text(f"#!/bin/sh\necho '-{option} (The port.)'\nexit 1\n")
        raylet.chmod(0o755)
        assert preload.takes_agent_port(str(tmp_path)) == takes


def test_the_internals_of_the_installed_ray() -> None:
    if importlib.util.find_spec("ray") is None:
        pytest.skip("no Ray here")
    node, services = (importlib.import_module(f"ray._private.{name}") for name in ("node", "services"))
    assert (
        preload.missing_internal(services, node, importlib.import_module("ray.experimental.internal_kv"))
        == ""
    )
    spec = importlib.util.find_spec("ray")
    assert spec
    assert spec.submodule_search_locations
    assert preload.takes_agent_port(spec.submodule_search_locations[0])


def module(name: str, text: str) -> ModuleType:
    made = ModuleType(name)
    exec(text, made.__dict__)  # noqa: S102 - text of this file
    return made


SERVICES = "def start_ray_process(command, process_type, fate_share): pass"
KV = """
def _internal_kv_get(key, *, namespace=None): pass
def _internal_kv_put(key, value, overwrite=True, *, namespace=None): pass
def _internal_kv_del(key, *, del_by_prefix=False, namespace=None): pass
"""
NODE = """
class Node:
    def __init__(self, ray_params, head=False): pass
    def start_api_server(self, *, include_dashboard, raise_on_failure): pass
    def start_ray_processes(self): pass
"""


@pytest.mark.parametrize(
    ("old", "new", "lacking"),
    [
        ("", "", ""),
        ("start_ray_process(", "start_process(", "this Ray has no services.start_ray_process"),
        (
            "(command, process_type,",
            "(options,",
            "services.start_ray_process takes other arguments in this Ray",
        ),
        ("class Node", "class TheNode", "this Ray has no node.Node.__init__"),
        ("ray_params,", "params,", "node.Node.__init__ takes other arguments in this Ray"),
        ("start_api_server", "start_dashboard", "this Ray has no node.Node.start_api_server"),
        (
            "start_ray_processes(self)",
            "start_ray_processes(self, how)",
            "node.Node.start_ray_processes takes other",
        ),
        ("_internal_kv_get", "_kv_get", "this Ray has no kv._internal_kv_get"),
        ("value, overwrite=True, *, namespace=None", "value", "kv._internal_kv_put takes other arguments"),
    ],
)
def test_missing_internals(old: str, new: str, lacking: str) -> None:
    made = [
        module(name, text.replace(old, new) if old else text)
        for name, text in (("services", SERVICES), ("node", NODE), ("kv", KV))
    ]
    found = preload.missing_internal(*made)
    assert found.startswith(lacking)
    assert bool(found) == bool(lacking)


class Node:
    """Ray's class of that name, as far as its raylet and its dashboard go."""

    def __init__(self, kv: SimpleNamespace, raylet: Exception | None = None) -> None:
        self.kv, self.raylet, self.did = kv, raylet, list[str]()
        self._webui_url: str | None = None

    def start_api_server(self, *, include_dashboard: bool) -> None:
        self.did.append(f"dashboard {include_dashboard}")
        try:
            while not self.kv._internal_kv_get("dashboard", namespace="ns"):
                self.did.append("waits")
            self._webui_url = "127.0.0.1:1"
        except ValueError:
            self.did.append("no dashboard")
            self._webui_url = None

    def start_ray_processes(self) -> None:
        self.did.append(f"raylet {self._webui_url}")
        if self.raylet:
            raise self.raylet

    def start(self) -> None:
        self.start_api_server(include_dashboard=True)
        self.start_ray_processes()


def early(raylet: Exception | None = None, url: str = "127.0.0.1:1") -> tuple[Node, list[tuple[str, ...]]]:
    """A node whose raylet is to start early; its dashboard answers when it is asked for the third time."""
    answers = iter([None, None, b"10.0.0.4:8265"])
    stored: list[tuple[str, ...]] = []
    kv = SimpleNamespace(
        _internal_kv_get=lambda *_, **__: next(answers),
        _internal_kv_put=lambda *key, namespace: stored.append((*key[:2], namespace)),
        _internal_kv_del=lambda key, namespace: stored.append(("del", key, namespace)),
    )
    kind = type("Node", (Node,), {})
    fast = preload.FastStart(None, kind, kv)
    fast.url = url
    fast.start_raylet_early()
    node = kind(kv, raylet)
    assert isinstance(node, Node)
    return node, stored


def test_the_raylet_of_a_head_does_not_wait_for_the_dashboard() -> None:
    node, stored = early()
    node.start()
    assert node.did == ["dashboard True", "raylet 127.0.0.1:1", "waits", "waits"]
    assert stored == [("webui:url", "127.0.0.1:1", "ns")]


def test_a_dashboard_whose_address_is_not_known() -> None:
    node, stored = early(url="")
    node.start()
    assert node.did == ["dashboard True", "raylet None", "waits", "waits"]
    assert stored == []


def test_a_raylet_that_cannot_be_started_early() -> None:
    node, stored = early(ValueError("no memory"))
    with pytest.raises(ValueError, match="no memory"):
        node.start()
    assert node.did == ["dashboard True", "raylet 127.0.0.1:1", "no dashboard"]
    assert stored[-1] == ("del", "webui:url", "ns")


def test_ray_tells_when_it_is_started(tmp_path: Path) -> None:
    started = tmp_path / "started"

    class Made:
        def __init__(self, head: bool) -> None:
            assert head
            assert not started.exists()

    preload.FastStart(None, Made, None).write_file_after_start(str(started))
    Made(head=True)
    assert started.exists()


# -- start -----------------------------------------------------------------------------------------


class FakeContext:
    """What a RayProcess needs of its node."""

    def __init__(self, folder: Path) -> None:
        self.folder = str(folder)
        self.is_ready = False
        self.children = SimpleNamespace(kill=lambda _: None)
        self.sent: list[tuple[str, str]] = []

    def phase(self, phase: str, text: str) -> None:
        self.sent.append((phase, text))


def ray_process(folder: Path) -> Any:
    return start.RayProcess(FakeContext(folder))  # type: ignore[arg-type]


def test_ports_that_are_taken_again_and_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(ports, "taken_ports", lambda _: [20001])
    ray = ray_process(tmp_path)
    ray.watch.begin()
    for name in ("make_environment", "preload", "start"):
        monkeypatch.setattr(ray, name, lambda *_: None)
    ray.ended(1)
    ray.ended(1)
    with pytest.raises(JobError, match="other processes took the chosen ports 3 times") as caught:
        ray.ended(1)
    assert caught.value.kind == "bring_up"


def test_a_port_that_is_taken_once_others_know_of_this_ray(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(ports, "taken_ports", lambda _: [])
    monkeypatch.setattr(network, "is_open", lambda *_: True)
    ray = ray_process(tmp_path)
    ray.ports = [1]
    ray.watch.begin()
    assert ray.does_gcs_answer()
    monkeypatch.setattr(ports, "taken_ports", lambda _: [20001])
    with pytest.raises(
        JobError, match=r"process took port 20001 of this node .* Submit the job again"
    ) as caught:
        ray.watch.is_port_taken()
    assert caught.value.kind == "bring_up"


# -- watch -----------------------------------------------------------------------------------------


@pytest.fixture
def look(monkeypatch: pytest.MonkeyPatch) -> Callable[[watch.RayWatch], None]:
    """One check, now."""
    monkeypatch.setattr(ports, "taken_ports", lambda _: [])

    def check(watched: watch.RayWatch) -> None:
        watched._due = 0.0
        watched.tick()

    return check


def test_a_process_that_ends_while_ray_starts(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    look: Callable[[watch.RayWatch], None],
) -> None:
    for session, text in (("session_2026-1", "of an earlier start"), ("session_2026-2", "1\n2\n3\n4\n5\n6")):
        logs = tmp_path / session / "logs"
        logs.mkdir(parents=True)
        (logs / "raylet.err").write_text(f"{text}\n*** StackTrace Information ***\nsome frames\n")
    (tmp_path / "session_latest").symlink_to("session_2026-2")
    ended: dict[int, str] = {}
    monkeypatch.setattr(process_tree, "descendant_names", lambda **_: dict(ended))
    watched = ray_process(tmp_path).watch
    (tmp_path / preload.STARTED).touch()  # of an earlier try
    watched.begin()
    ended |= {5: "python3", 6: "raylet"}
    look(watched)
    del ended[6]  # whoever started that one has waited for it
    ended[7] = "raylet"
    look(watched)
    with pytest.raises(JobError) as caught:
        look(watched)
    assert (caught.value.kind, caught.value.message.partition(".")[0]) == (
        "ray",
        "raylet exited while Ray was starting",
    )
    assert capfd.readouterr().err == "".join(f"raylet: {line}\n" for line in "23456")
    watched.release_ports()
    with pytest.raises(JobError):
        look(watched)
    (tmp_path / preload.STARTED).touch()
    look(watched)
    assert not watched.is_active


def test_in_plain_ray_is_watched_until_the_cluster_is_ready(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, look: Callable[[watch.RayWatch], None]
) -> None:
    monkeypatch.setattr(process_tree, "descendant_names", lambda **_: {})
    ray = ray_process(tmp_path)
    ray.watch.begin()
    (tmp_path / preload.NOT_FAST).write_text("this Ray has no x")
    for _ in range(2):
        look(ray.watch)
    assert ray.context.sent == [("ray", "using Ray's own start: this Ray has no x")]
    ray.watch.release_ports()
    look(ray.watch)
    assert ray.watch.is_active
    assert ray.watch.is_dashboard_started(), "Ray itself starts the raylet last"
    ray.context.is_ready = True
    look(ray.watch)
    assert not ray.watch.is_active


def test_only_the_head_has_a_gcs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(process_tree, "descendant_names", lambda: {7: "raylet"})
    ray = ray_process(tmp_path)
    assert not ray.watch.is_healthy()
    ray.cluster = "10.0.0.4:20001"
    assert ray.watch.is_healthy()
