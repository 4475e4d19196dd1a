"""Preflight checks in the container: image, limits, debugger, working directory."""

from __future__ import annotations

import importlib
import os
import resource
import site
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from slurmray.agent.container import container_setup, node_context, preflight
from slurmray.agent.container.ray import command
from slurmray.agent.job_errors import JobError, Unfit
from slurmray.agent.wire import codec

NEW = (2, 60)


@pytest.mark.parametrize(
    ("debugpy", "ray", "rows"),
    [
        ("1.8.0", (2, 39), []),
        ("1.10.2", NEW, []),
        ("2.0rc1", NEW, []),
        ("1.7.9", NEW, [("debugpy", "1.7.9", "1.8.0 or later")]),
        (None, NEW, [("debugpy", "none", "1.8.0 or later")]),
        ("1.8.0", (2, 38), [("debugger", "Ray 2.38", "Ray 2.39 or later")]),
    ],
)
def test_requirements_of_the_distributed_debugger(
    debugpy: str | None,
    ray: tuple[int, int],
    rows: list[tuple[str, str, str]],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    if debugpy:
        (tmp_path / f"debugpy-{debugpy}.dist-info").mkdir()
        metadata = f"Name: debugpy\nVersion: {debugpy}\n"
        (tmp_path / f"debugpy-{debugpy}.dist-info" / "METADATA").write_text(metadata)
        importlib.invalidate_caches()
    assert [row[:3] for row in preflight.missing_for_debugger(ray)] == rows


def new_context(**settings: Any) -> Any:
    context = node_context.NodeContext("/nowhere", "gpu-1", lambda *_: None)
    context.ray_version = NEW
    given: Any = {"ray": {"debug": "none"}, "container": {"shm_size": ""}, "preflight": "fail", **settings}
    context.settings = given
    return context


@pytest.mark.parametrize(
    ("level", "kind", "expected"),
    [
        ("fail", "config", "config"),
        ("fail", "warn", "warn"),
        ("warn", "config", "warn"),
        ("none", "config", None),
    ],
)
def test_preflight_setting_decides_the_kind_of_a_finding(
    level: str, kind: str, expected: str | None, capfd: pytest.CaptureFixture[str]
) -> None:
    new_context(preflight=level).finding(kind, "GPUs", "4|8\nof it", "8 or more", "fix the driver")
    sent = codec.decode(capfd.readouterr().out.rstrip("\n").encode())
    fields = {
        "node": "gpu-1",
        "check": "GPUs",
        "found": "4|8\nof it",
        "wanted": "8 or more",
        "fix": "fix the driver",
    }
    assert sent == ({"type": "finding", "kind": expected, **fields} if expected else None)


def test_findings_about_limits_and_debugger(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preflight, "low_limits", lambda _: [("open files", "at most 9", "65535", "raise it")])
    monkeypatch.setattr(preflight, "little_shared_memory", lambda _: [])
    monkeypatch.setattr(command, "package_version", lambda _: "1.0")
    findings: list[tuple[str, str]] = []
    monkeypatch.setattr(
        node_context.NodeContext, "finding", lambda _, kind, check, *__: findings.append((kind, check))
    )
    preflight.check_node(new_context())
    assert findings == [("warn", "open files")]
    post_mortem = {"debug": "post-mortem"}
    with pytest.raises(Unfit):
        preflight.check_node(new_context(ray=post_mortem))
    assert findings[1:] == [("warn", "open files"), ("preflight", "debugpy")]
    preflight.check_node(new_context(ray=post_mortem, preflight="warn"))


@pytest.mark.parametrize(
    ("runtime", "users", "may_raise"),
    [
        ("docker", "         0          0 4294967295\n", True),
        ("docker", "0 1000 1\n1 100000 65536\n", False),
        ("podman", "0 1000 1\n1 100000 65536\n", False),
        ("podman", "0 0 4294967295\n", False),  # without CAP_SYS_RESOURCE it may not, and it is rarely root's
        ("none", "0 0 4294967295\n", False),
    ],
)
def test_limits_are_raised_where_the_runtime_may(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, runtime: str, users: str, may_raise: bool
) -> None:
    """With Podman 4.3 to 5.8 a container with a higher hard limit than the job's fails, with 126."""
    (tmp_path / "users").write_text(users)
    monkeypatch.setattr(resource, "getrlimit", lambda _: (1024, 4096))
    monkeypatch.setattr(os.path, "isdir", {"/dev/infiniband": True}.__getitem__)
    rows = {row[0]: row[1:] for row in preflight.low_limits(runtime, str(tmp_path / "users"))}
    files, memory = (
        f"raise it there, or container.ulimits: [{limit}]" if may_raise else "raise it there"
        for limit in ("nofile=65535:65535", "memlock=-1:-1")
    )
    assert rows == {
        "open files": ("at most 4096", "65535", files),
        "locked memory": ("4096 bytes", "no limit, for InfiniBand", memory),
    }


@pytest.mark.parametrize("limit", [8192, resource.RLIM_INFINITY])
def test_limits_that_are_high_enough(monkeypatch: pytest.MonkeyPatch, limit: int) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (1024, limit))
    assert list(preflight.low_limits("podman")) == []


@pytest.mark.parametrize(
    ("size", "free", "shm_size", "row"),
    [
        (64, 64, "", ("64 of 64 MB free", "1000 MB", "enlarge it, or set container.shm_size")),
        (3072, 153, "", ("153 of 3072 MB free", "1000 MB", "remove what ended jobs have left in it: ls ")),
        (512000, 25600, "", ("25600 of 512000 MB free", "51200 MB", "remove what ended jobs have left")),
        (512000, 60000, "", None),
        (1024, 1020, "", None),
        (64, 64, "64m", None),  # the user's own choice
    ],
)
def test_shared_memory_that_is_small_or_nearly_full(
    monkeypatch: pytest.MonkeyPatch, size: int, free: int, shm_size: str, row: tuple[str, str, str] | None
) -> None:
    """More is free for root than for the user (f_bfree)."""
    disk = SimpleNamespace(f_frsize=4096, f_blocks=size * 256, f_bfree=size * 256, f_bavail=free * 256)
    monkeypatch.setattr(os, "statvfs", {"/dev/shm": disk}.__getitem__)
    rows = list(preflight.little_shared_memory(new_context(container={"shm_size": shm_size})))
    if row is None:
        assert rows == []
        return
    ((check, found, wanted, fix),) = rows
    assert (check, found, wanted) == ("/dev/shm", row[0], row[1] + ", for Ray's object store")
    assert fix.startswith(row[2])


def test_a_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir("/")
    preflight.enter_workdir(str(tmp_path))
    assert Path.cwd() == tmp_path
    (tmp_path / "file").touch()
    with pytest.raises(JobError, match=r"file: Not a directory\. It is the trainer.s working directory"):
        preflight.enter_workdir(str(tmp_path / "file"))


def test_versions() -> None:
    assert preflight.versions("2.60.0").startswith("Ray 2.60.0, Python 3.")


PATHS = ["/lib/python3.11", "/lib/python3.11/site-packages", "/usr/lib/dist-packages"]


def test_search_path_of_an_isolated_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "flags", SimpleNamespace(isolated=1))
    monkeypatch.setattr(sys, "path", PATHS.copy())
    monkeypatch.setattr(site, "getusersitepackages", lambda: str(tmp_path))
    monkeypatch.setattr(site, "PREFIXES", [sys.base_prefix])
    monkeypatch.setenv("PYTHONPATH", "/a::/b")
    preflight.restore_search_path()
    assert sys.path == [PATHS[0], "/a", "/b", str(tmp_path), *PATHS[1:]]
    # In a virtual environment Python has no packages of the user: an old Ray there does not run.
    monkeypatch.setattr(sys, "path", PATHS.copy())
    monkeypatch.setattr(site, "PREFIXES", [str(tmp_path / "venv")])
    preflight.restore_search_path()
    assert sys.path == [PATHS[0], "/a", "/b", *PATHS[1:]]
    monkeypatch.setattr(sys, "path", PATHS.copy())
    monkeypatch.setattr(sys, "flags", SimpleNamespace(isolated=0))
    preflight.restore_search_path()
    assert sys.path == PATHS


def test_a_host_without_user_namespaces_or_shared_memory(tmp_path: Path) -> None:
    missing = str(tmp_path / "none")
    assert all("container.ulimits" not in row[3] for row in preflight.low_limits("podman", missing))
    ((_, found, _, fix),) = preflight.little_shared_memory(new_context(), missing)
    assert (found, fix) == ("No such file or directory", "mount one")


@pytest.mark.parametrize(
    ("commands", "code"),
    [
        ("set +e\nfalse\n", 1),
        ("set +e\nno-such-program", 127),
        ("set +e\nfalse\ntrue", 0),
        ("trap : EXIT", 0),
    ],
)
def test_the_last_command_of_a_setup_counts_without_errexit(tmp_path: Path, commands: str, code: int) -> None:
    files = [str(tmp_path / name) for name in ("commands", "output", "environment")]
    Path(files[0]).write_text(commands)
    done = subprocess.run(["bash", "-c", container_setup.SCRIPT, *files], check=False, timeout=60)
    assert done.returncode == code
    assert code or Path(files[2]).exists()
