"""Services outside Ray's container."""

import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from slurmray.agent.container.services import SERVICE_SCRIPT
from slurmray.agent.node import host_services, job_folder, runtimes
from tests.processes import is_running

from ..fake_node import FakeNode
from ..waiting import wait_for_text, wait_until


def make(folder: Path, *names: str, **other: Any) -> tuple[FakeNode, host_services.HostServices]:
    items = [{"name": name, "host": True, **other} for name in names] + [{"name": "in-ray"}]
    node = FakeNode(folder, services=items).make_folder()
    node.env["OUT"] = f"{folder}/out"
    (folder / "out").touch()
    return node, host_services.HostServices(node, runtimes.make("podman", node))


def begin(node: FakeNode, name: str, script: str) -> None:
    path = Path(node.inside, f"begin-{name}")
    (path.parent / f"new-{name}").write_text(script)
    (path.parent / f"new-{name}").rename(path)


def poll(services: host_services.HostServices, seconds: float = 5) -> list[tuple[str, int]]:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        ended = services.poll()
        if ended:
            return ended
        time.sleep(0.02)
    return []


def test_a_service_on_the_node(tmp_path: Path) -> None:
    node, services = make(tmp_path, "web")
    assert services.poll() == []
    begin(node, "web", 'echo "$1 $SLURMRAY_TEMP" >>$OUT; echo text; exit 7')
    assert poll(services) == [("web", 7)]
    assert (tmp_path / "out").read_text() == f"{tmp_path}/submit {node.folder}\n"
    assert Path(node.service_log_path("web")).read_text() == "text\n"
    assert poll(services, 0.1) == []
    begin(node, "web", "kill -KILL $$")  # a restart
    assert poll(services) == [("web", 137)]


@pytest.mark.attack("files of the run directory", inputs=1)
def test_a_log_that_is_a_link(tmp_path: Path) -> None:
    node, services = make(tmp_path, "web")
    Path(node.service_log_path("web")).symlink_to(tmp_path / "other")
    begin(node, "web", "echo text")
    assert poll(services) == [("web", 127)]
    assert not (tmp_path / "other").exists()


def test_a_service_of_ray_s_container_is_not_started_here(tmp_path: Path) -> None:
    node, services = make(tmp_path, "web")
    begin(node, "in-ray", "echo x >>$OUT")
    begin(node, "other", "echo x >>$OUT")
    assert poll(services, 0.2) == []
    assert (tmp_path / "out").read_text() == ""


def test_a_service_in_a_container(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    node, services = make(tmp_path, "web", host=False, image="nginx")
    monkeypatch.setattr(node, "story_command", lambda *argv: ["sh", "-c", 'echo "$@" >>$OUT', *argv])
    begin(node, "web", "")
    assert poll(services) == [("web", 0)]
    argv = (tmp_path / "out").read_text().split()
    assert argv[:3] == ["podman", "slurmray-9-0-node1-web", "nginx"]
    assert argv[-2:] == [f"{node.folder}/service-web", f"{tmp_path}/submit"]


def test_a_service_that_cannot_be_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    node, services = make(tmp_path, "web", host=False, image="nginx")
    monkeypatch.setattr(node, "story_command", lambda *_: ["/no/such"])
    begin(node, "web", "")
    assert poll(services) == [("web", 127)]
    assert "/no/such: No such file or directory" in Path(node.service_log_path("web")).read_text()
    assert services.poll() == []


def test_processes_of_an_ended_service_are_killed(tmp_path: Path) -> None:
    node, services = make(tmp_path, "web")
    begin(node, "web", "sleep 60 & echo $! >>$OUT; exit 0")
    assert poll(services) == [("web", 0)]
    ends(int((tmp_path / "out").read_text()))


def ends(pid: int) -> None:
    wait_until(lambda: not is_running(pid), seconds=5)


def test_services_end_in_reverse_order(tmp_path: Path) -> None:
    node, services = make(tmp_path, "a", "b", "c")
    for name in ("a", "b", "c"):
        begin(
            node,
            name,
            SERVICE_SCRIPT
            % ("", f"sh -c \"trap 'echo {name} >>$OUT; exit' TERM; echo up >>$OUT; sleep 60 & wait\""),
        )
    services.poll()
    wait_for_text(tmp_path / "out", "up\nup\nup\n")
    start = time.monotonic()
    services.stop()
    assert time.monotonic() - start < 3.5
    assert [line for line in wait_for_text(tmp_path / "out", "a").splitlines() if line in "abc"] == [
        "c",
        "b",
        "a",
    ]
    assert services.poll() == []


def test_a_service_that_ignores_sigterm_delays_the_others_by_a_second(tmp_path: Path) -> None:
    node, services = make(tmp_path, "a", "b")
    begin(node, "a", "echo up >>$OUT; cat; echo end-a >>$OUT")
    begin(node, "b", "trap '' TERM; echo $$ >>$OUT; sleep 60")
    services.poll()
    wait_for_text(tmp_path / "out", "up")
    wait_until(lambda: len((tmp_path / "out").read_text().split()) == 2)
    pid = next(int(word) for word in (tmp_path / "out").read_text().split() if word.isdigit())
    start = time.monotonic()
    services.stop()
    assert 0.9 < time.monotonic() - start < 3.5
    wait_for_text(tmp_path / "out", "end-a")
    ends(pid)


def test_a_service_does_not_inherit_other_tethers(tmp_path: Path) -> None:
    node, services = make(tmp_path, "a", "b")
    begin(node, "a", "echo up-a >>$OUT; cat; echo end-a >>$OUT")
    begin(node, "b", "echo up-b >>$OUT; exec sleep 60")
    services.poll()
    wait_for_text(tmp_path / "out", "up-a")
    wait_for_text(tmp_path / "out", "up-b")
    services._running["a"].close_input()
    wait_for_text(tmp_path / "out", "end-a")
    services.stop()


def test_a_killed_service_is_a_zombie_until_poll(tmp_path: Path) -> None:
    """A zombie has no environment, so it does not count as a process that is left."""
    node, services = make(tmp_path, "web")
    begin(node, "web", "exec sleep 60")
    services.poll()
    wait_until(lambda: job_folder.find_processes(node.folder, "9"))
    for pid in job_folder.find_processes(node.folder, "9"):
        os.kill(pid, signal.SIGKILL)
    assert job_folder.end_processes(node.folder)
    assert poll(services) == [("web", 137)]
