"""Changes to Ray for a fast start, and when they are not made."""

from __future__ import annotations

import importlib.util
import os
import select
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from slurmray.agent.container.ray import fast_start


def test_versions_of_ray_with_the_fast_start() -> None:
    assert fast_start.reason_against((2, 60), "2.60.1") == ""
    assert "this is 2.45.0" in fast_start.reason_against((2, 45), "2.45.0")


AGENT = "python agent.py --listen-port=20007 --node-manager-port=1"
RAYLET = [
    "raylet",
    "--num_prestart_python_workers=128",
    f"--dashboard_agent_command={AGENT}",
    "--runtime_env_agent_command=python env.py",
]


def test_the_command_of_a_raylet(tmp_path: Path) -> None:
    commands = fast_start.Commands(str(tmp_path), agent_port=True, may_wait=False)
    workers, *agents = RAYLET[1:]
    assert commands.change(RAYLET, "raylet") == [
        "raylet",
        workers.replace("128", "1"),
        *agents,
        "--dashboard_agent_listen_port=20007",
    ]
    assert commands.change(["gcs_server"], "gcs_server") == ["gcs_server"]
    without = fast_start.Commands(str(tmp_path), agent_port=False, may_wait=False)
    assert without.change(RAYLET, "raylet")[2:] == RAYLET[2:]


DASHBOARD = ["--host=127.0.0.1", "--port=1", "--port-retries=0"]


@pytest.mark.parametrize(
    ("kind", "options", "begins"),
    [
        ("dashboard", DASHBOARD, "later"),
        ("dashboard", [], "at once"),
        ("monitor", [], "later"),
        ("log_monitor", [], "ready"),
    ],
)
def test_processes_that_start_later(
    tmp_path: Path, kind: str, options: list[str], begins: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are their program's process from the start, and begin when the cluster is ready."""
    monkeypatch.setattr(fast_start, "LATER", ("0.5", "10"))
    folder = tmp_path / "a folder"
    folder.mkdir()
    commands = fast_start.Commands(str(folder), agent_port=True, may_wait=True)
    show = "import os, sys; print(os.getpid(), os.nice(0), sys.argv[1:], flush=True)"
    argv = commands.change([sys.executable, "-c", show, *options], kind)
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        if begins != "at once":
            assert not select.select([process.stdout], [], [], 0.5)[0]
        (folder / fast_start.READY).touch()
        nice = min(19, os.nice(0) + (10 if begins == "later" else 0))
        assert process.stdout.read() == f"{process.pid} {nice} {options}\n"


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
    assert fast_start.dashboard_url(["python", "dashboard.py", *options]) == url


def test_whether_the_raylet_has_an_option_for_the_agent_s_port(tmp_path: Path) -> None:
    assert not fast_start.takes_agent_port(str(tmp_path))
    raylet = tmp_path / "core/src/ray/raylet/raylet"
    raylet.parent.mkdir(parents=True)
    for option, takes in (("node_manager_port", False), ("dashboard_agent_listen_port", True)):
        raylet.write_text(f"#!/bin/sh\necho '-{option} (The port.)'\nexit 1\n")
        raylet.chmod(0o755)
        assert fast_start.takes_agent_port(str(tmp_path)) == takes


def test_the_internals_of_the_installed_ray() -> None:
    names = ("services", "node", "utils")
    services, node, utils = (importlib.import_module(f"ray._private.{name}") for name in names)
    kv = importlib.import_module("ray.experimental.internal_kv")
    assert fast_start.missing_internal(services, node, kv, utils) == ""
    spec = importlib.util.find_spec("ray")
    assert spec
    assert spec.submodule_search_locations
    assert fast_start.takes_agent_port(spec.submodule_search_locations[0])


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


UTILS = "def get_dashboard_dependency_error(): pass"


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
        ("_error()", "_error(is_head)", "utils.get_dashboard_dependency_error takes other arguments"),
    ],
)
def test_missing_internals(old: str, new: str, lacking: str) -> None:
    made = [
        module(name, source.replace(old, new) if old else source)
        for name, source in (("services", SERVICES), ("node", NODE), ("kv", KV), ("utils", UTILS))
    ]
    missing = fast_start.missing_internal(*made)
    assert missing.startswith(lacking)
    assert bool(missing) == bool(lacking)


@pytest.mark.parametrize(
    "package", ["ray_has_no_such_package", "no_such_parent.package", "json.no_such_module", ""]
)
def test_a_package_of_the_dashboard_that_is_missing(package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray's own check says which."""
    monkeypatch.setattr(fast_start, "OPTIONAL", ("json", "json.decoder", *([package] if package else [])))
    error = ImportError("which")
    utils = SimpleNamespace(get_dashboard_dependency_error=lambda: error)
    fast_start.find_optional_packages(utils)
    assert utils.get_dashboard_dependency_error() is (error if package else None)


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
    fast_start.start_raylet_early(kind, kv, lambda: url)
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

    fast_start.call_after_start(Made, started.touch)
    Made(head=True)
    assert started.exists()
