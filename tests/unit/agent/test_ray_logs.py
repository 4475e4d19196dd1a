"""Ray's logs of a node in the run directory."""

import os
import stat
import tarfile
from pathlib import Path
from typing import Any

import pytest

from slurmray.agent import ray_logs


def session(folder: Path) -> Path:
    """Make the logs of a session of Ray, and return their folder."""
    logs = folder / "session_2026-11-25_01-02-03_000000_1/logs"
    (logs / "events").mkdir(parents=True)
    (folder / "session_latest").symlink_to(logs.parent.name)
    (logs / "raylet.out").write_text("raylet")
    (logs / "events/event_GCS.log").write_text("{}")
    (logs / "empty.err").touch()
    (folder / "private").write_text("secret")
    (folder / "private").chmod(0o600)
    (logs / "link.log").symlink_to(folder / "private")
    return logs


def content(archive: Path) -> dict[str, bytes]:
    with tarfile.open(archive) as tar:
        return {entry.name: tar.extractfile(entry).read() for entry in tar}  # type: ignore[union-attr]


@pytest.mark.parametrize("is_set_aside", [True, False])
def test_logs_of_a_session(tmp_path: Path, is_set_aside: bool) -> None:
    logs = session(tmp_path)
    (logs / "events").chmod(0o700)
    if is_set_aside:
        ray_logs.set_aside(str(tmp_path))
        assert not logs.exists()
        modes = {path.lstat().st_mode & 0o777 for path in (tmp_path / "ray-logs").rglob("*") if path.is_dir()}
        assert modes == {0o777}
    archive = tmp_path / "node1-ray.tar.gz"
    assert ray_logs.archive(str(tmp_path), str(archive))
    assert content(archive) == {"raylet.out": b"raylet", "events/event_GCS.log": b"{}"}
    assert archive.stat().st_mode & 0o777 == 0o600  # Ray logs values of env_vars
    assert not list(tmp_path.glob("*.part"))
    assert (tmp_path / "private").stat().st_mode & 0o777 == 0o600


@pytest.mark.attack("files of the run directory", inputs=1)
def test_a_link_in_place_of_the_archive(tmp_path: Path) -> None:
    session(tmp_path)
    (tmp_path / "x.tar.gz.part").symlink_to(tmp_path / "other")
    with pytest.raises(OSError, match="Too many levels of symbolic links"):
        ray_logs.archive(str(tmp_path), str(tmp_path / "x.tar.gz"))
    assert not (tmp_path / "other").exists()


def test_without_a_session(tmp_path: Path) -> None:
    ray_logs.set_aside(str(tmp_path))
    assert not ray_logs.archive(str(tmp_path), str(tmp_path / "x.tar.gz"))
    assert list(tmp_path.iterdir()) == []


def test_the_size_limits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_logs, "MAX_FILE", 10)
    monkeypatch.setattr(ray_logs, "MAX_ALL", 15)
    logs = session(tmp_path)
    for number, name in enumerate(("oldest", "older", "newest")):
        (logs / name).write_text("-" * 20 + name.rjust(10, "."))
        os.utime(logs / name, (2**31 + number, 2**31 + number))
    ray_logs.archive(str(tmp_path), str(tmp_path / "x.tar.gz"))
    assert content(tmp_path / "x.tar.gz") == {"newest": b"....newest", "older": b"older"}


def test_a_run_directory_that_cannot_be_written(tmp_path: Path) -> None:
    session(tmp_path)
    with pytest.raises(FileNotFoundError):
        ray_logs.archive(str(tmp_path), str(tmp_path / "no/x.tar.gz"))


@pytest.mark.parametrize(
    ("keep_logs", "after_success", "after_failure"),
    [("on_failure", False, True), ("always", True, True), ("never", False, False)],
)
def test_when_they_are_kept(keep_logs: str, after_success: bool, after_failure: bool) -> None:
    settings: Any = {"ray": {"keep_logs": keep_logs}}
    assert ray_logs.are_kept(settings, True) == after_success
    assert ray_logs.are_kept(settings, False) == after_failure


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give files away")
def test_files_of_another_user_s_container(tmp_path: Path) -> None:
    """Root in a container of Docker's leaves files that the submitter must be able to remove."""
    logs = session(tmp_path)
    for place, _, names in os.walk(logs):
        os.chown(place, 1234, 1234)
        for name in names:
            os.chown(Path(place, name), 1234, 1234, follow_symlinks=False)
    ray_logs.set_aside(str(tmp_path))
    for path in (tmp_path / "ray-logs").rglob("*"):
        mode = path.lstat().st_mode
        assert path.is_symlink() or mode & (0o007 if stat.S_ISDIR(mode) else 0o004)
