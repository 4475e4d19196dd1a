"""Each image or package is built once, completely or not at all."""

import multiprocessing
import multiprocessing.synchronize
import time
from pathlib import Path

import pytest

from slurmray.errors import RehearsalError
from slurmray.rehearsal.images import cache


def build_completely(folder: Path) -> str:
    built = cache.build_once(folder, "thing", lambda path: path.write_text("complete"), print)
    return built.read_text()


def test_failed_build_leaves_nothing_and_the_next_one_succeeds(tmp_path: Path) -> None:
    def fail(path: Path) -> None:
        path.mkdir()
        (path / "partial").touch()
        raise RehearsalError("the mirror is down")

    with pytest.raises(RehearsalError, match="the mirror is down"):
        cache.build_once(tmp_path, "thing", fail, print)
    assert [path.name for path in tmp_path.iterdir()] == [".thing.lock"]
    assert build_completely(tmp_path) == "complete"


def test_files_of_a_killed_build_are_removed(tmp_path: Path) -> None:
    (tmp_path / ".thing.new" / "thing").mkdir(parents=True)
    assert build_completely(tmp_path) == "complete"
    assert not (tmp_path / ".thing.new").exists()


def test_long_build_logs_its_progress(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "_PROGRESS_EVERY", 0.01)
    logged: list[str] = []

    def build(path: Path) -> None:
        (path.parent / "download").write_bytes(bytes(3_500_000))
        path.touch()
        deadline = time.monotonic() + 60
        while "  3 MB so far" not in logged and time.monotonic() < deadline:
            time.sleep(0.01)

    cache.build_once(tmp_path, "thing", build, logged.append)
    assert "  3 MB so far" in logged


def _build_once(folder: Path, barrier: multiprocessing.synchronize.Barrier) -> None:
    def build(path: Path) -> None:
        with (folder / "builds").open("a") as log:
            log.write("built\n")
        path.touch()

    barrier.wait(30)
    cache.build_once(folder, "thing", build, print)


def test_concurrent_callers_build_once(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    barrier = context.Barrier(4)
    workers = [context.Process(target=_build_once, args=(tmp_path, barrier)) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
    assert [worker.exitcode for worker in workers] == [0] * 4
    assert (tmp_path / "builds").read_text() == "built\n"
