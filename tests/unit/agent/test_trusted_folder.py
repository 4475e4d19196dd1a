"""Folders in which no other user can replace what this user makes: real folders of several users."""

from __future__ import annotations

import errno
import os
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from slurmray.agent.trusted_folder import UntrustedError, open_folder
from tests.unit.agent.users import BOB, acting_as, needs_root, umask_is


@pytest.fixture
def top() -> Iterator[Path]:
    """A folder below folders that not everybody can write to, but /tmp."""
    path = Path(tempfile.mkdtemp())
    path.chmod(0o755)
    yield path
    shutil.rmtree(path)


def make(path: Path, mode: int = 0o755, owner: int = 0) -> Path:
    path.mkdir()
    path.chmod(mode)
    os.chown(path, owner, owner)
    return path


def opened(place: Path, submit: Path, *, is_made: bool = True) -> str:
    """The path of the folder that was opened."""
    folder = open_folder(str(place), str(submit), is_made)
    try:
        return str(Path(f"/proc/self/fd/{folder}").readlink())
    finally:
        os.close(folder)


@pytest.fixture
def is_trusted(top: Path) -> Callable[[str], bool]:
    """Whether a folder below `top`, which has a submit folder, can be opened."""
    submit = make(top / "submit")

    def check(place: str) -> bool:
        try:
            return opened(top / place, submit) == str(top / place)
        except UntrustedError:
            return False

    return check


@needs_root
@pytest.mark.attack("run directories of another user", inputs=6)
@pytest.mark.parametrize(
    ("outer", "owner", "trusted"),
    [
        (0o777, BOB, False),
        (0o1777, BOB, False),
        (0o1755, BOB, False),
        (0o775, BOB, True),  # an administrator or a group has decided who makes folders there
        (0o755, BOB, True),
        (0o777, 0, True),
    ],
)
def test_a_folder_on_the_way(
    top: Path, is_trusted: Callable[[str], bool], outer: int, owner: int, trusted: bool
) -> None:
    """Where everybody can make one, it is looked at, whether or not others can remove it."""
    make(top / "open", outer)
    make(top / "open/way", 0o755, owner)
    make(top / "open/way/runs")
    assert is_trusted("open/way/runs") == trusted


@needs_root
@pytest.mark.attack("run directories of another user", inputs=4)
@pytest.mark.parametrize(
    ("outer", "owner", "trusted"),
    [(0o777, BOB, False), (0o1777, BOB, False), (0o755, BOB, True), (0o1777, 0, True)],
)
def test_a_link_on_the_way(top: Path, outer: int, owner: int, trusted: bool) -> None:
    submit = make(top / "submit")
    make(top / "open", outer)
    make(make(top / "mine") / "runs")
    (top / "open/link").symlink_to(top / "mine")
    os.lchown(top / "open/link", owner, owner)
    if trusted:
        assert opened(top / "open/link/runs", submit) == str(top / "mine/runs")
        return
    with pytest.raises(UntrustedError) as raised:
        opened(top / "open/link/runs", submit)
    assert raised.value.errno == errno.EPERM
    assert raised.value.strerror == f"{top}/open/link belongs to {BOB}, who could change the job's files"


@needs_root
@pytest.mark.attack("run directories of another user", inputs=2)
@pytest.mark.parametrize("is_link", [True, False])
def test_the_last_folder_is_always_looked_at(top: Path, is_link: bool) -> None:
    submit = make(top / "submit")
    if is_link:
        (top / "runs").symlink_to(make(top / "mine"))
        os.lchown(top / "runs", BOB, BOB)
    else:
        make(top / "runs", 0o755, BOB)
    with pytest.raises(UntrustedError, match=f"runs belongs to {BOB}"):
        opened(top / "runs", submit)


@needs_root
@pytest.mark.attack("run directories of another user", inputs=2)
def test_every_folder_below_the_submit_folder_is_looked_at(top: Path) -> None:
    """And none of those around it: who can write there can change the trainer, too."""
    around = make(top / "around", 0o777, BOB)
    submit = make(around / "submit", 0o755, BOB)
    make(make(submit / "mine") / "runs")
    assert opened(submit / "mine/runs", submit) == f"{submit}/mine/runs"
    assert opened(submit, submit) == str(submit)
    make(make(submit / "bobs", 0o755, BOB) / "runs")
    with pytest.raises(UntrustedError, match="bobs belongs to"):
        opened(submit / "bobs/runs", submit)
    # A folder whose name begins with the submit folder's is not below it.
    beside = make(around / "submitted", 0o755, BOB)
    make(beside / "runs")
    with pytest.raises(UntrustedError, match="submitted belongs to"):
        opened(beside / "runs", submit)


def test_what_is_missing_is_made(tmp_path: Path) -> None:
    submit = tmp_path / "submit"
    submit.mkdir()
    with umask_is(0):
        assert opened(submit / "x/../a/b", submit) == f"{submit}/a/b"
    assert [stat.S_IMODE(path.stat().st_mode) for path in (submit / "a", submit / "a/b")] == [0o755] * 2
    assert not (submit / "x").exists()
    with pytest.raises(FileNotFoundError):
        opened(submit / "c", submit, is_made=False)
    assert not (submit / "c").exists()
    (submit / "file").touch()
    with pytest.raises(NotADirectoryError):
        opened(submit / "file/d", submit)


def test_it_leaves_nothing_open(tmp_path: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    opened(tmp_path / "a/b/c", tmp_path)
    assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208


@pytest.mark.parametrize(
    ("before", "after"),
    [(0o777, 0o1777), (0o775, 0o1775), (0o757, 0o1757), (0o1777, 0o1777), (0o755, 0o755), (0o700, 0o700)],
)
def test_a_folder_of_one_s_own_gets_the_sticky_bit(tmp_path: Path, before: int, after: int) -> None:
    runs = tmp_path / "runs"
    runs.mkdir()
    runs.chmod(before)
    opened(runs, tmp_path)
    assert stat.S_IMODE(runs.stat().st_mode) == after


@needs_root
@pytest.mark.parametrize(("mode", "trusted"), [(0o777, False), (0o775, False), (0o1777, True), (0o755, True)])
def test_a_folder_of_root(top: Path, mode: int, trusted: bool) -> None:
    """This user cannot give it the sticky bit."""
    submit = make(top / "submit", 0o755, BOB)
    make(top / "scratch", mode)
    with acting_as(BOB):
        if trusted:
            assert opened(top / "scratch", submit) == str(top / "scratch")
        else:
            text = f"scratch: others can rename what is in it \\(mode {mode:04o}\\)"
            with pytest.raises(UntrustedError, match=text):
                opened(top / "scratch", submit)


@needs_root
@pytest.mark.attack("run directories of another user", inputs=1)
def test_a_link_that_replaces_a_folder_after_the_look(top: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    submit, way = make(top / "submit"), make(top / "way")
    make(top / "theirs", 0o755, BOB)
    real = os.lstat

    def late(name: str, **options: int) -> os.stat_result:
        status = real(name, **options)
        if name == "way":
            way.rmdir()
            way.symlink_to("theirs")
        return status

    monkeypatch.setattr(os, "lstat", late)
    with pytest.raises(OSError, match=r"Not a directory|Too many levels"):
        opened(way / "runs", submit)
    assert list((top / "theirs").iterdir()) == []
