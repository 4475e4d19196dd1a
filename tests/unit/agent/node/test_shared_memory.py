"""Shared memory that a job leaves in /dev/shm: real segments of real processes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from slurmray.agent.node import runtimes, shared_memory
from tests.unit.agent.users import needs_root

from ..fake_node import FakeNode

SHM = Path("/dev/shm")
# As a worker of Ray that is killed with its resource tracker; the segment stays mapped until then.
MAKE = """
import os, signal, sys, time
from multiprocessing import resource_tracker, shared_memory
resource_tracker.register = lambda *_: None
made = shared_memory.SharedMemory(create=True, size=1 << 20)
print(made.name, flush=True)
sys.stdin.readline()
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def segment() -> Iterator[subprocess.Popen[str]]:
    """A process that makes a segment, prints its name, and after a line of input is killed."""
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", MAKE], stdin=pipe, stdout=pipe, text=True) as process:
        yield process
        process.kill()


@pytest.fixture
def node(tmp_path: Path) -> FakeNode:
    node = FakeNode(tmp_path, {"runtimes": ["none"]}).make_folder()
    (Path(node.folder) / "task").touch()
    return node


def test_what_a_killed_worker_leaves(node: FakeNode, segment: subprocess.Popen[str]) -> None:
    """Only once nobody uses it any more: another job of this user may."""
    assert segment.stdout
    path = SHM / segment.stdout.readline().strip()
    try:
        assert path.name.startswith("psm_")
        assert runtimes.make("none", node).remove()
        assert path.exists(), "it is in use"
        segment.communicate("end\n")
        assert path.exists(), "the kernel keeps it"
        with path.open():
            runtimes.make("none", node).remove()
            assert path.exists(), "somebody has it open"
        assert runtimes.make("none", node).remove()
        assert not path.exists()
    finally:
        path.unlink(missing_ok=True)


def test_what_is_not_the_job_s(node: FakeNode, tmp_path: Path) -> None:
    """Older ones, those that others may use, files of the user, links, and names that only look similar."""
    names = {
        kind: f"{kind}-{os.getpid()}" for kind in ("psm_old", "psm_open", "data", "psm_link", "my-psm_x")
    }
    paths = {kind: SHM / name for kind, name in names.items()}
    try:
        for kind, path in paths.items():
            if kind == "psm_link":
                path.symlink_to(tmp_path)
                continue
            path.touch(mode=0o600)
        paths["psm_open"].chmod(0o644)
        os.utime(paths["psm_old"], (1, 1))
        shared_memory.remove(node.folder)
        assert [kind for kind, path in paths.items() if not path.is_symlink() and not path.exists()] == []
    finally:
        for path in paths.values():
            path.unlink(missing_ok=True)


@needs_root
@pytest.mark.attack("a file of another user in /dev/shm under a name of the job's", inputs=2)
def test_segments_of_others(node: FakeNode) -> None:
    path, link = SHM / f"psm_{os.getpid():08x}", SHM / f"psm_{os.getpid():08x}l"
    path.touch(mode=0o600)
    try:
        os.chown(path, 1001, 1001)
        link.symlink_to(path)
        shared_memory.remove(node.folder)
        assert path.exists()
        assert link.is_symlink()
    finally:
        link.unlink(missing_ok=True)
        path.unlink()
