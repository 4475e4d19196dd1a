"""Files that one node makes for all."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from slurmray.agent import job_errors
from slurmray.agent.node import shared_file

from ..fake_node import FakeNode

HANG = 30  # seconds
MARK = "abcdef0123"  # of FakeNode


class Shared:
    """A file that a node wants. made: how often the node has made it."""

    def __init__(self, folder: Path) -> None:
        self.node = FakeNode(folder)
        self.file = folder / "run/file"
        self.claim = folder / "run/file.maker"
        self.made = 0

    def obtain(self, is_made: bool = True) -> bool:
        def make(part: str) -> bool:
            self.made += 1
            Path(part).write_text("made")
            return is_made

        return shared_file.obtain(self.node, str(self.file), "podman pull x", make)

    def while_waiting(self, monkeypatch: pytest.MonkeyPatch, does: Callable[[int], None]) -> None:
        """does: is called in each second in which the node waits, with the number of seconds before it."""

        def wait(seconds: float) -> None:
            assert len(self.node.waited) < 1000
            does(len(self.node.waited))
            self.node.waited.append(seconds)

        monkeypatch.setattr(self.node, "wait", wait)


@pytest.fixture
def shared(tmp_path: Path) -> Shared:
    return Shared(tmp_path)


def test_a_file_is_made_once(shared: Shared) -> None:
    assert [shared.obtain(), shared.obtain()] == [True, True]
    assert (shared.made, shared.file.read_text()) == (1, "made")
    assert [path.name for path in shared.file.parent.iterdir() if path.is_file()] == ["file"]


def test_the_others_wait(shared: Shared, monkeypatch: pytest.MonkeyPatch) -> None:
    """As long as the claim is renewed, however long that takes."""
    shared.claim.write_text(f"{MARK} node2")

    def make(second: int) -> None:
        os.utime(shared.claim, (0, second))
        assert shared.node.doing == "build"
        if second == 300:
            shared.file.touch()

    shared.while_waiting(monkeypatch, make)
    assert shared.obtain()
    assert (shared.made, len(shared.node.waited), shared.node.doing) == (0, 301, "")
    assert shared.node.phases[0] == "image waiting for node2: podman pull x"


@pytest.mark.parametrize("mark", [MARK, "0000000000"])
def test_a_node_that_is_gone(shared: Shared, monkeypatch: pytest.MonkeyPatch, mark: str) -> None:
    """Of this job, or of another one."""
    shared.claim.write_text(f"{mark} node2")
    shared.while_waiting(monkeypatch, lambda _: None)
    assert shared.obtain()
    assert (shared.made, len(shared.node.waited)) == (1, shared_file.STALE + 2)
    assert not shared.claim.exists()


def test_a_node_that_fails(shared: Shared, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other nodes of the job then try at once; a later job begins again."""
    monkeypatch.setattr(shared.node, "wait", lambda _: pytest.fail("waits"))
    assert not shared.obtain(is_made=False)
    shared.node.name = "node2"
    assert not shared.obtain(is_made=False)
    assert (shared.made, shared.claim.read_text()) == (2, f"{MARK} node1 failed")
    shared.node.job["mark"] = "0000000000"
    assert shared.obtain()
    assert (shared.made, shared.claim.exists()) == (3, False)


def test_a_node_that_is_stopped(shared: Shared) -> None:
    def make(_: str) -> bool:
        raise job_errors.Stopped

    with pytest.raises(job_errors.Stopped):
        shared_file.obtain(shared.node, str(shared.file), "x", make)
    assert not shared.claim.exists()


def test_a_claim_is_renewed(shared: Shared, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_file, "RENEWAL", 0.01)
    is_renewed = threading.Event()

    def make(part: str) -> bool:
        os.utime(shared.claim, (0, 0))
        Path(part).touch()
        pause = threading.Event()
        for _ in range(HANG * 100):
            if shared.claim.stat().st_mtime:
                is_renewed.set()
                break
            pause.wait(0.01)
        return True

    assert shared_file.obtain(shared.node, str(shared.file), "x", make)
    assert is_renewed.is_set()


def test_a_claim_that_another_node_has_taken_over(shared: Shared) -> None:
    """It stays when the first node ends."""

    def make(part: str) -> bool:
        shared.claim.write_text(f"{MARK} node2")
        Path(part).touch()
        return True

    assert shared_file.obtain(shared.node, str(shared.file), "x", make)
    assert shared.claim.read_text() == f"{MARK} node2"


@pytest.mark.attack("a claim of the image that all nodes wait for")
@pytest.mark.parametrize("claim", ["link", "fifo"])
def test_a_claim_that_is_no_file(shared: Shared, monkeypatch: pytest.MonkeyPatch, claim: str) -> None:
    other = shared.file.with_name("other")
    other.write_text("other")
    if claim == "link":
        shared.claim.symlink_to(other)
    else:
        os.mkfifo(shared.claim)
    shared.while_waiting(monkeypatch, lambda _: None)
    assert shared.obtain()
    assert (shared.made, other.read_text()) == (1, "other")
