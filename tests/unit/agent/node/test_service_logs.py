"""The logs of services in Ray's container; a process of the tests prints into their FIFOs."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from slurmray.agent.job_errors import JobError
from slurmray.agent.node import service_logs
from slurmray.agent.node.service_logs import ServiceLogs
from tests.unit.agent.users import umask_is

from ..fake_node import FakeNode

HANG = 30  # seconds


def make(folder: Path, *names: str, where: str = "all") -> FakeNode:
    return FakeNode(folder, services=[{"name": name, "where": where} for name in names]).make_folder()


def prints(node: FakeNode, service: str, commands: str) -> None:
    """Run commands of a service in bash, to their end."""
    with Path(node.inside, f"log-{service}").open("wb") as fifo:
        subprocess.run(["bash", "-c", commands], stdout=fifo, check=True, timeout=HANG)


def log(node: FakeNode, service: str) -> bytes:
    return (node.root / f"run/logs/service-{service}@node1.log").read_bytes()


def test_all_that_services_print(tmp_path: Path) -> None:
    node = make(tmp_path, "one", "two")
    logs = ServiceLogs(node)
    prints(node, "one", "yes | head -c 1000000")  # more than a FIFO holds
    prints(node, "two", r"printf 'a\377\r\0'")
    prints(node, "one", "echo -n the second run")
    logs.finish(HANG)
    assert log(node, "one") == b"y\n" * 500000 + b"the second run"
    assert log(node, "two") == b"a\xff\r\0"


def test_what_is_left_at_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service_logs, "READ_SIZE", 1)
    node = make(tmp_path, "one")
    logs = ServiceLogs(node)
    prints(node, "one", "yes | head -c 60000")
    logs.finish(HANG)
    assert log(node, "one") == b"y\n" * 30000


def test_a_log_that_is_there_is_kept(tmp_path: Path) -> None:
    """A service outside Ray's container writes into it, too."""
    node = make(tmp_path, "one")
    Path(node.service_log_path("one")).write_text("before\n")
    logs = ServiceLogs(node)
    prints(node, "one", "echo after")
    logs.finish(HANG)
    assert log(node, "one") == b"before\nafter\n"


def test_a_full_disk_does_not_stop_a_service(tmp_path: Path, thread_errors: list[str]) -> None:
    node = make(tmp_path, "one", "two")
    logs = ServiceLogs(node)
    full = os.open("/dev/full", os.O_WRONLY)
    os.dup2(full, next(iter(logs._logs.values())))
    os.close(full)
    prints(node, "one", "yes | head -c 1000000")
    prints(node, "two", "echo fine")
    logs.finish(HANG)
    assert log(node, "two") == b"fine\n"
    assert thread_errors == ["error in the thread for logs of services: OSError: No space left on device"]


@pytest.mark.attack("files of the run directory", inputs=2)
def test_a_log_that_others_could_write_to_or_that_is_a_link(tmp_path: Path) -> None:
    node = make(tmp_path, "one")
    with umask_is(0):
        ServiceLogs(node).finish(HANG)
    path = Path(node.service_log_path("one"))
    assert path.stat().st_mode & 0o777 == 0o644
    path.unlink()
    path.symlink_to(tmp_path / "other")
    Path(node.inside, "log-one").unlink()
    with pytest.raises(JobError, match="Too many levels of symbolic links"):
        ServiceLogs(node)
    assert not (tmp_path / "other").exists()


def test_a_run_directory_that_cannot_be_written(tmp_path: Path) -> None:
    node = make(tmp_path, "one")
    node.log_path = "/proc/node1.log"
    with pytest.raises(JobError, match=r"cannot make /proc/service-one@node1\.log: .* set run_dir") as caught:
        ServiceLogs(node)
    assert caught.value.kind == "preflight"


def test_a_service_of_other_nodes_has_no_log_here(tmp_path: Path) -> None:
    node = make(tmp_path, "one", where="workers")
    ServiceLogs(node).finish(HANG)
    assert [*Path(node.inside).iterdir(), *(tmp_path / "run/logs").iterdir()] == []


@pytest.mark.parametrize(
    ("where", "logs"),
    [("workers", ["service-one@node1.log"]), ("all", ["service-one@node1.log"]), ("head", [])],
)
def test_a_spare_node_may_take_the_place_of_a_worker(tmp_path: Path, where: str, logs: list[str]) -> None:
    node = make(tmp_path, "one", where=where)
    node.job["nodes"], node.job["spares"] = ["node2", "node3"], ["node1"]
    ServiceLogs(node).finish(HANG)
    assert [path.name for path in (tmp_path / "run/logs").iterdir()] == logs
