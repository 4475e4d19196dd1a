"""What is checked inside the container, and whether nodes reach each other."""

from __future__ import annotations

import importlib
import os
import queue
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from slurmray.agent import protocol
from slurmray.agent.container import node_context, preflight, reachability
from slurmray.agent.container.ray import attach, command
from slurmray.agent.errors import JobError, Unfit

NEW = (2, 60)


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
    assert [row[:3] for row in preflight.missing_for_debugger(ray)] == found


def made_context(**settings: Any) -> Any:
    made = node_context.NodeContext("/nowhere", "gpu-1", lambda *_: None)
    made.settings = {"ray": {"debug": "none"}, "preflight": "fail", **settings}  # type: ignore[typeddict-item]
    return made


@pytest.mark.parametrize(
    ("level", "kind", "expected"),
    [
        ("fail", "config", "config"),
        ("fail", "warn", "warn"),
        ("warn", "config", "warn"),
        ("none", "config", None),
    ],
)
def test_a_finding(level: str, kind: str, expected: str | None, capfd: pytest.CaptureFixture[str]) -> None:
    made_context(preflight=level).finding(kind, "GPUs", "4|8\nof it", "8 or more", "fix the driver")
    sent = protocol.decode(capfd.readouterr().out.rstrip("\n").encode())
    fields = {
        "node": "gpu-1",
        "check": "GPUs",
        "found": "4|8\nof it",
        "wanted": "8 or more",
        "fix": "fix the driver",
    }
    assert sent == ({"type": "finding", "kind": expected, **fields} if expected else None)


def test_a_node_without_what_the_debugger_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preflight, "low_limits", lambda: [("open files", "at most 9", "65535", "raise it")])
    monkeypatch.setattr(preflight, "raise_file_limit", lambda: None)
    monkeypatch.setattr(command, "package_version", lambda _: "1.0")
    found: list[tuple[str, str]] = []
    monkeypatch.setattr(
        node_context.NodeContext, "finding", lambda _, kind, check, *__: found.append((kind, check))
    )
    preflight.check_node(made_context(), NEW)
    assert found == [("warn", "open files")]
    post_mortem = {"debug": "post-mortem"}
    with pytest.raises(Unfit):
        preflight.check_node(made_context(ray=post_mortem), NEW)
    assert found[1:] == [("warn", "open files"), ("preflight", "debugpy")]
    preflight.check_node(made_context(ray=post_mortem, preflight="warn"), NEW)


def test_a_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir("/")
    preflight.enter_workdir(str(tmp_path))
    assert Path.cwd() == tmp_path
    (tmp_path / "file").touch()
    with pytest.raises(JobError, match=r"file: Not a directory\. It is the trainer.s working directory"):
        preflight.enter_workdir(str(tmp_path / "file"))


# -- reachability ----------------------------------------------------------------------------------


def test_nodes_that_cannot_be_reached() -> None:
    findings: queue.Queue[tuple[str, ...]] = queue.Queue()
    with socket.create_server(("127.0.0.1", 0)) as one, socket.create_server(("127.0.0.1", 0)) as two:
        open_port, closed_port = one.getsockname()[1], two.getsockname()[1]
        two.close()
        targets = [("n1", "127.0.0.1", open_port), ("n2", "127.0.0.1", closed_port), ("n3", "fd00::9", 1)]
        assert reachability.unreachable(targets, 2) == targets[1:]
        reachability.check_reachable(targets[:2], lambda *row: findings.put(row))
        found = findings.get(timeout=20)
    assert found[:3] == ("preflight", "connection", f"cannot reach n2 at 127.0.0.1:{closed_port}")
    assert findings.empty()


def test_a_node_that_does_not_answer_in_time() -> None:
    """A full queue of connections: what comes then gets no answer."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen(0)
        port = server.getsockname()[1]
        full = [("n", "127.0.0.1", port)] * 4
        with socket.create_connection(("127.0.0.1", port), 5):
            assert reachability.unreachable(full, 0.3)


def test_a_connection_is_accepted_once() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    reachability.accept_once("127.0.0.1", port)
    target = [("n", "127.0.0.1", port)]
    assert reachability.unreachable(target) == []
    deadline = 50
    while not reachability.unreachable(target, 1) and deadline:
        deadline -= 1
    assert deadline


# -- ray.attach ------------------------------------------------------------------------------------


def test_ray_for_people_who_attach(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OF_THE_IMAGE", "image")
    monkeypatch.setattr(os, "getpid", lambda: 1)  # in a container
    package = tmp_path / "lib/ray/scripts"
    package.mkdir(parents=True)
    for folder in (package.parent, package):
        (folder / "__init__.py").touch()
    (package / "scripts.py").write_text(
        "import os, sys\ndef main(): print([sys.argv, os.environ['TOKEN'], os.environ['LINES'], os.getcwd()])"
    )
    (tmp_path / "ray.py").touch()  # what is in the current folder is not imported
    env = {"TOKEN": "/t p", "LINES": "it's\n$x", "OF_THE_IMAGE": "image", "PYTHONPATH": str(tmp_path / "lib")}
    env["BASH_FUNC_f%%"] = "() { :; }"
    attach.write_ray_command(str(tmp_path / "command"), env)
    assert (tmp_path / "command").stat().st_mode & 0o777 == 0o700
    assert "OF_THE_IMAGE" not in (tmp_path / "command").read_text()
    argv = [str(tmp_path / "command"), "job", "it's", ""]
    text = subprocess.run(argv, env={}, cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    assert text == repr([["ray", "job", "it's", ""], "/t p", "it's\n$x", str(tmp_path)]) + "\n"


@pytest.mark.parametrize(
    ("prefix", "expected"),
    [
        (["podman", "exec", "c"], "podman exec c /tmp/ray-7-2/ray"),
        ([], "/tmp/ray-7-2/ray"),
        (["--container-image=a b"], "'--container-image=a b' /tmp/ray-7-2/ray"),
    ],
)
def test_how_to_attach(prefix: list[str], expected: str) -> None:
    text = attach.attach_command("7_1", "gpu-1", prefix, "/tmp/ray-7-2/ray")
    assert text == "srun --overlap --jobid=7_1 -N1 -n1 -w gpu-1 " + expected


def test_versions() -> None:
    assert preflight.versions("2.60.0").startswith("Ray 2.60.0, Python 3.")
