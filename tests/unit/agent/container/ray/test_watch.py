"""Detection of Ray's processes that end, while it starts and afterwards."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from slurmray.agent.container import ports, process_tree
from slurmray.agent.container.ray import fast_start, preload, watch
from slurmray.agent.job_errors import JobError

from .fake_context import ray_process


@pytest.fixture
def look(monkeypatch: pytest.MonkeyPatch) -> Callable[[watch.RayWatch], None]:
    """Runs one check at once."""
    monkeypatch.setattr(ports, "listeners", lambda _: (set(), set()))

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
    for session, lines in (("session_2026-1", "of an earlier start"), ("session_2026-2", "1\n2\n3\n4\n5\n6")):
        logs = tmp_path / session / "logs"
        logs.mkdir(parents=True)
        (logs / "raylet.err").write_text(f"{lines}\n*** StackTrace Information ***\nsome frames\n")
    (tmp_path / "session_latest").symlink_to("session_2026-2")
    ended: dict[int, str] = {}
    monkeypatch.setattr(process_tree, "descendant_names", lambda **_: dict(ended))
    watched = ray_process(tmp_path).watch
    (tmp_path / fast_start.STARTED).touch()  # of an earlier try
    watched.start([])
    ended |= {5: "python3", 6: "raylet"}
    look(watched)
    del ended[6]  # its parent has waited for it
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
    watched.context.is_ready = True
    with pytest.raises(JobError, match=r"^raylet exited\. The node's log"):
        look(watched)
    watched.context.trainer_started = time.monotonic()
    with pytest.raises(JobError, match=r"^raylet exited while the trainer ran\. Does it run ray stop"):
        look(watched)
    watched.context.trainer_started -= 100
    with pytest.raises(JobError, match=r"^raylet exited\. The node's log"):
        look(watched)
    (tmp_path / fast_start.STARTED).touch()
    look(watched)
    assert not watched.is_busy


def test_with_the_standard_start_ray_is_watched_until_the_cluster_is_ready(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, look: Callable[[watch.RayWatch], None]
) -> None:
    monkeypatch.setattr(process_tree, "descendant_names", lambda **_: {})
    ray = ray_process(tmp_path)
    ray.watch.start([])
    (tmp_path / preload.NOT_FAST).write_text("this Ray has no x")
    for _ in range(2):
        look(ray.watch)
    assert ray.context.sent == [("ray", "using Ray's own start: this Ray has no x")]
    ray.watch.release_ports()
    look(ray.watch)
    assert ray.watch.is_busy
    assert ray.watch.is_dashboard_started(), "Ray itself starts the raylet last"
    ray.context.is_ready = True
    look(ray.watch)
    assert not ray.watch.is_busy


def test_only_the_head_node_has_a_gcs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(process_tree, "descendant_names", lambda: {7: "raylet"})
    ray = ray_process(tmp_path)
    assert not ray.watch.is_healthy()
    ray.context.is_head = False
    assert ray.watch.is_healthy()


@pytest.mark.attack("another user listens on a port of the job", inputs=3)
def test_ports_are_guarded_until_a_process_of_the_job_listens(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Also when the cluster is ready, which then goes on. One that no option of `ray start` names is not."""
    seen: list[set[int]] = []
    answers: list[tuple[set[int], set[int]]] = [({1}, set()), (set(), {2}), (set(), {3}), (set(), set())]

    def listeners(ports: set[int]) -> tuple[set[int], set[int]]:
        seen.append(set(ports))
        return answers.pop(0)

    monkeypatch.setattr(ports, "listeners", listeners)
    ray = ray_process(tmp_path)
    ray.context.ports = [1, 2, 3, 4, 5]
    ray.watch.start(["--port=1", "--dashboard-port=2", "--node-port=3", "--x-port=4"])
    assert not ray.watch.is_port_taken()
    ray.watch.has_gcs_answered = True
    assert not ray.watch.is_port_taken()
    assert not ray.watch.has_dashboard
    ray.context.is_ready = True
    ray.watch.release_ports()
    for _ in range(2):
        assert not ray.watch.is_port_taken()
    assert seen == [{1, 2, 3, 4, 5}, {2, 3, 4, 5}, {3, 4}, {4}]
    messages = [(message["check"], message["wanted"]) for message in ray.context.messages]
    assert messages == [("port 2", "Ray's dashboard"), ("port 3", "a process of Ray")]
