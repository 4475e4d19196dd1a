"""Options of `ray start`, and the version of Ray. tests/cluster shows that Ray accepts them."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from slurmray.agent.container import ports as port_places
from slurmray.agent.container.ray import command as ray_command
from slurmray.agent.job_errors import JobError

PORTS = list(range(20001, 20016))
OLD, NEW = (2, 44), (2, 60)


def start_argv(
    cluster: str | None,
    version: tuple[int, int] = NEW,
    extra: tuple[str, ...] = (),
    address: str = "10.0.0.5",
    folder: str = "/tmp/r",
    labels: dict[str, str] | None = None,
) -> list[str]:
    node: Any = SimpleNamespace(name="gpu-1", address=address, ports=PORTS, ray_version=version, cpus=4)
    node.folder, node.memory, node.rank, node.group = folder, 0, int(bool(cluster)), {"name": ""}
    node.labels = labels or {}
    options = {"args": [], "head_args": list(extra), "worker_args": list(extra), "gpus": 8}
    options["head"] = {"gpus": 8, "cpus": None, "memory": None}
    node.settings = {"ray": options, "groups": [{"nodes": 2, "gpus_per_node": 8}]}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ray_command, "object_store_size", lambda _: 10**9)
        patch.setattr(ray_command, "memory_for_tasks", lambda *_: 5 * 10**9)
        return ray_command.start_command(node, cluster)


def test_options_that_only_the_head_node_gets() -> None:
    head, worker = start_argv(None), start_argv("10.0.0.4:20001")
    assert "--head" in head
    assert f"--port={PORTS[port_places.GCS]}" in head
    assert "--head" not in worker
    assert "--address=10.0.0.4:20001" in worker
    only_head = ("--port", "--dashboard-port")
    assert not [option for option in worker if option.startswith(only_head)]
    for argv in (head, worker):
        assert {
            "--block",
            "--node-name=gpu-1",
            "--node-ip-address=10.0.0.5",
            "--num-cpus=4",
            "--num-gpus=8",
            "--object-store-memory=1000000000",
            "--memory=5000000000",
        } <= set(argv)


def test_each_port_is_used_once() -> None:
    given = [option.rpartition("=")[2] for option in start_argv(None) if "-port=" in option]
    fixed = [port for port in given if port != "0"]
    assert len(fixed) == len(set(fixed)) >= 7
    assert str(PORTS[port_places.MASTER]) not in fixed


def test_a_worker_gets_a_temp_folder_where_ray_allows_it() -> None:
    assert "--temp-dir=/tmp/r" in start_argv(None, OLD)
    assert "--temp-dir=/tmp/r" in start_argv("h:1", NEW)
    assert "--temp-dir=/tmp/r" not in start_argv("h:1", OLD)


def test_the_users_options_come_last() -> None:
    assert start_argv(None, extra=("--num-cpus=1", "--x"))[-2:] == ["--num-cpus=1", "--x"]


def test_ray_before_2_49_has_no_ipv6() -> None:
    with pytest.raises(JobError, match=r"fd00::5: Ray 2\.48 has no IPv6\. Use .* 2\.49"):
        start_argv(None, (2, 48), address="fd00::5")
    assert start_argv(None, (2, 49), address="fd00::5")


def test_labels_of_the_node(tmp_path: Path) -> None:
    """In a file, so that `--labels` of the user adds to them."""

    def labels_file(version: tuple[int, int], labels: dict[str, str]) -> list[str]:
        argv = start_argv(None, version, ("--labels=zone=a",), folder=str(tmp_path), labels=labels)
        return [option.partition("=")[2] for option in argv if option.startswith("--labels-file=")]

    labels = {"slurm-topology/switch": "leaf1"}
    assert labels_file((2, 48), labels) == labels_file((2, 49), {}) == []
    (path,) = labels_file((2, 49), labels)
    assert yaml.safe_load(Path(path).read_text()) == labels


@pytest.mark.parametrize(
    ("extra", "has_ports"),
    [
        ([], False),
        (["--labels=a=--min-worker-port"], False),
        (["--min-worker-port=20000", "--max-worker-port=20999"], True),
        (["--min-worker-port", "20000"], True),
        (["--worker-port-list=20000,20001"], True),
    ],
)
def test_ports_of_worker_processes(extra: list[str], has_ports: bool) -> None:
    assert ray_command.has_worker_ports(extra) == has_ports


def test_a_python_without_ray(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    assert ray_command.ray_version() is None
    (tmp_path / "ray-2.60.0.dist-info").mkdir()
    (tmp_path / "ray-2.60.0.dist-info" / "METADATA").write_text("Name: ray\nVersion: 2.60.0\n")
    importlib.invalidate_caches()
    assert ray_command.ray_version() == ("2.60.0", (2, 60))


GIB = 2**30


@pytest.mark.parametrize(
    ("memory", "free", "expected"),
    [
        (10 * 1024, 64 * GIB, 3 * GIB),
        (10 * 1024, 2 * GIB, 2 * GIB * 9 // 10),
        (4 * 1024 * 1024, 2048 * GIB, 200 * 10**9),
        (1024, GIB // 16, 75 * 2**20),  # Ray then uses a folder on disk, with a warning
        (0, 64 * GIB, 6 * GIB),  # the machine's 20 GiB
    ],
)
def test_object_store(memory: int, free: int, expected: int, monkeypatch: pytest.MonkeyPatch) -> None:
    class Disk:
        f_bavail, f_frsize = free // 4096, 4096

    sizes = {"SC_PHYS_PAGES": 20 * GIB // 4096, "SC_PAGE_SIZE": 4096}
    monkeypatch.setattr(os, "statvfs", lambda path: {"/dev/shm": Disk}[path])
    monkeypatch.setattr(os, "sysconf", sizes.__getitem__)
    assert ray_command.object_store_size(memory) == expected


def test_memory_for_tasks_is_the_job_s_where_ray_would_offer_the_host_s(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(os, "sysconf", {"SC_PHYS_PAGES": 20 * GIB // 4096, "SC_PAGE_SIZE": 4096}.__getitem__)
    limit = tmp_path / "memory.max"

    def memory_of_tasks(memory: int) -> int | None:
        return ray_command.memory_for_tasks(memory, 3 * GIB, (str(tmp_path / "none"), str(limit)))

    assert memory_of_tasks(10 * 1024) == 7 * GIB  # no cgroup: the root of cgroup v2 has no such file
    assert memory_of_tasks(1024) == 0
    assert memory_of_tasks(0) is None
    for unlimited in ("max\n", "9223372036854771712\n"):
        limit.write_text(unlimited)
        assert memory_of_tasks(10 * 1024) == 7 * GIB
    limit.write_text(f"{10 * GIB}\n")
    assert memory_of_tasks(10 * 1024) is None
