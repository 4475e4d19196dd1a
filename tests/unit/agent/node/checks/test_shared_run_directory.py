"""The run directory: shared with the head node, and writable."""

import os
import stat
from pathlib import Path

import pytest

from slurmray.agent import job_errors
from slurmray.agent.node.checks import shared_run_directory
from tests.unit.agent.users import BOB, needs_root, umask_is

from ...fake_node import FakeNode


@pytest.fixture
def standard_error() -> object:
    """Restores standard error after the test."""
    saved = os.dup(2)
    yield
    os.dup2(saved, 2)
    os.close(saved)


@pytest.mark.usefixtures("standard_error")
def test_the_run_directory_is_opened(node: FakeNode, tmp_path: Path) -> None:
    (tmp_path / "run/mark").write_text("abcdef0123\n")
    with umask_is(0):
        shared_run_directory.open_run_directory(node)
    assert stat.S_IMODE(Path(node.log_path).stat().st_mode) == 0o644
    os.write(2, b"an error\n")
    assert Path(node.log_path).read_text() == "node1\nan error\n"
    assert node.waited == []


@pytest.mark.parametrize("mark", [None, "other\n", ""])
def test_a_run_directory_that_is_not_shared(node: FakeNode, tmp_path: Path, mark: str | None) -> None:
    if mark is not None:
        (tmp_path / "run/mark").write_text(mark)
    with pytest.raises(job_errors.Unfit):
        shared_run_directory.open_run_directory(node)
    found = f"{tmp_path}/run is not the folder of the head node"
    row = ("preflight", "run directory", found, "a folder that all nodes share", "set run_dir")
    assert node.findings == [row]
    assert len(node.waited) == shared_run_directory.TRIES - 1


@pytest.mark.usefixtures("standard_error")
def test_a_mark_that_appears_late(node: FakeNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node, "wait", lambda _: (tmp_path / "run/mark").write_text("abcdef0123\n"))
    shared_run_directory.open_run_directory(node)
    assert node.findings == []


def test_a_log_that_cannot_be_written(node: FakeNode, tmp_path: Path) -> None:
    (tmp_path / "run/mark").write_text("abcdef0123\n")
    (tmp_path / "run/logs").rmdir()
    with pytest.raises(job_errors.Unfit):
        shared_run_directory.open_run_directory(node)
    assert node.findings[0][2] == f"cannot write to {tmp_path}/run/logs: No such file or directory"


@needs_root
@pytest.mark.attack("run directories of another user", inputs=1)
@pytest.mark.usefixtures("standard_error")
@pytest.mark.parametrize("kind", ["FIFO", "link", "folder", "mark", "link to the folder", "all", "log"])
def test_a_run_directory_that_a_stranger_has_made_on_this_node(
    node: FakeNode, tmp_path: Path, kind: str
) -> None:
    """The stranger knows the mark."""
    run, mark, log = tmp_path / "run", tmp_path / "run/mark", Path(node.log_path)
    other = tmp_path / "other"
    other.write_text("abcdef0123\n")
    found = f"{run} is not the folder of the head node"
    if kind == "FIFO":
        os.mkfifo(mark)
        os.write(os.open(mark, os.O_RDWR), b"abcdef0123\n")
    elif kind == "link":
        mark.symlink_to(other)
    else:
        mark.write_text("abcdef0123\n")
    if kind in ("folder", "all"):
        os.chown(run, BOB, BOB)
    if kind in ("mark", "all"):
        os.chown(mark, BOB, BOB)
    if kind == "link to the folder":
        run.rename(tmp_path / "real")
        run.symlink_to("real")
        os.lchown(run, BOB, BOB)
    if kind == "log":
        log.symlink_to(other)
        found = f"cannot write to {log.parent}: Too many levels of symbolic links"
    with pytest.raises(job_errors.Unfit):
        shared_run_directory.open_run_directory(node)
    assert [finding[2] for finding in node.findings] == [found]
    assert other.read_text() == "abcdef0123\n"
    assert not log.exists() or log.read_text() in ("", other.read_text())


@pytest.mark.attack("FIFOs in place of files", inputs=1)
def test_a_fifo_in_place_of_the_mark_does_not_stop_the_job(node: FakeNode, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "run/mark")
    with pytest.raises(job_errors.Unfit):
        shared_run_directory.open_run_directory(node)
