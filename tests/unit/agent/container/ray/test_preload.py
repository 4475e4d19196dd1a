"""Changes to Ray for a fast start, and when they are not made."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from slurmray.agent.container import ports
from slurmray.agent.container.ray import preload


def test_when_the_fast_start_is_used() -> None:
    assert preload.reason_for_plain("fast", "2.60.1", (2, 60)) == ""
    assert preload.reason_for_plain("plain", "2.60.1", (2, 60)) == "ray.start is plain"
    assert "this is 2.45.0" in preload.reason_for_plain("fast", "2.45.0", (2, 45))


def test_raylet_gets_the_port_of_the_dashboard_agent() -> None:
    started: list[tuple[list[str], str, dict[str, str]]] = []

    def start_ray_process(command: list[str], process_type: str, **more: str) -> None:
        started.append((command, process_type, more))

    for agent_port in (True, False):
        services = SimpleNamespace(start_ray_process=start_ray_process)
        find_url = preload.patch_start_process(services, agent_port)
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
        assert find_url() == "127.0.0.1:1"
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


def test_whether_the_raylet_has_an_option_for_the_agent_s_port(tmp_path: Path) -> None:
    assert not preload.takes_agent_port(str(tmp_path))
    raylet = tmp_path / "core/src/ray/raylet/raylet"
    raylet.parent.mkdir(parents=True)
    for option, takes in (("node_manager_port", False), ("dashboard_agent_listen_port", True)):
        raylet.write_text(f"#!/bin/sh\necho '-{option} (The port.)'\nexit 1\n")
        raylet.chmod(0o755)
        assert preload.takes_agent_port(str(tmp_path)) == takes


def test_the_internals_of_the_installed_ray() -> None:
    node, services = (importlib.import_module(f"ray._private.{name}") for name in ("node", "services"))
    assert (
        preload.missing_internal(services, node, importlib.import_module("ray.experimental.internal_kv"))
        == ""
    )
    spec = importlib.util.find_spec("ray")
    assert spec
    assert spec.submodule_search_locations
    assert preload.takes_agent_port(spec.submodule_search_locations[0])


def module(name: str, source: str) -> ModuleType:
    made = ModuleType(name)
    exec(source, made.__dict__)  # noqa: S102 - text of this file
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
        module(name, source.replace(old, new) if old else source)
        for name, source in (("services", SERVICES), ("node", NODE), ("kv", KV))
    ]
    missing = preload.missing_internal(*made)
    assert missing.startswith(lacking)
    assert bool(missing) == bool(lacking)


class Node:
    """The parts of Ray's class Node that start raylet and dashboard; did: its actions, in order."""

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


def node_with_early_raylet(
    raylet: Exception | None = None, url: str = "127.0.0.1:1"
) -> tuple[Node, list[tuple[str, ...]]]:
    """A node with the early start of the raylet; its dashboard has an address at the third request."""
    answers = iter([None, None, b"10.0.0.4:8265"])
    stored: list[tuple[str, ...]] = []
    kv = SimpleNamespace(
        _internal_kv_get=lambda *_, **__: next(answers),
        _internal_kv_put=lambda *key, namespace: stored.append((*key[:2], namespace)),
        _internal_kv_del=lambda key, namespace: stored.append(("del", key, namespace)),
    )
    kind = type("Node", (Node,), {})
    preload.start_raylet_early(kind, kv, lambda: url)
    node = kind(kv, raylet)
    assert isinstance(node, Node)
    return node, stored


def test_raylet_of_the_head_node_does_not_wait_for_the_dashboard() -> None:
    node, stored = node_with_early_raylet()
    node.start()
    assert node.did == ["dashboard True", "raylet 127.0.0.1:1", "waits", "waits"]
    assert stored == [("webui:url", "127.0.0.1:1", "ns")]


def test_a_dashboard_with_an_unknown_address() -> None:
    node, stored = node_with_early_raylet(url="")
    node.start()
    assert node.did == ["dashboard True", "raylet None", "waits", "waits"]
    assert stored == []


def test_a_raylet_that_cannot_be_started_early() -> None:
    node, stored = node_with_early_raylet(ValueError("no memory"))
    with pytest.raises(ValueError, match="no memory"):
        node.start()
    assert node.did == ["dashboard True", "raylet 127.0.0.1:1", "no dashboard"]
    assert stored[-1] == ("del", "webui:url", "ns")


def test_a_call_after_ray_s_start(tmp_path: Path) -> None:
    started = tmp_path / "started"

    class Made:
        def __init__(self, head: bool) -> None:
            assert head
            assert not started.exists()

    preload.call_after_start(Made, started.touch)
    Made(head=True)
    assert started.exists()


@pytest.mark.attack("another user listens on a port of the job", inputs=1)
def test_ray_start_ends_before_it_sends_the_token_to_another_process(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = [set(), {os.geteuid()}, {os.geteuid() + 1}]
    monkeypatch.setattr(ports, "listener_users", lambda _: answers.pop(0))
    started: list[str] = []
    services = SimpleNamespace(start_ray_process=lambda _, kind: started.append(kind))
    preload.wait_for_own_gcs(services, 20001)
    services.start_ray_process([], "gcs_server")
    services.start_ray_process([], "raylet")
    with pytest.raises(SystemExit, match="another user's process listens on port 20001"):
        services.start_ray_process([], "gcs_server")
    assert started == ["gcs_server", "raylet", "gcs_server"]
