"""The folder of a job on a node."""

import fcntl
import os
import re
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from slurmray.agent.job_errors import JobError
from slurmray.agent.node import job_folder
from slurmray.agent.parts import PARTS
from slurmray.rendering.script import agent_text
from tests.unit.agent.users import BOB, needs_root, umask_is

from ..fake_node import FakeNode

AGENT = agent_text(PARTS)
ENDED = str(2**22 + 1)  # larger than any process id


@pytest.mark.parametrize("umask", [0o077, 0])
def test_content_and_permissions(node: FakeNode, umask: int) -> None:
    with umask_is(umask):
        folder = Path(job_folder.make(node, AGENT))
        assert stat.S_IMODE(Path(job_folder.make_scratch(node)).stat().st_mode) == 0o700
    assert str(folder) == node.folder
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert (folder / "task").read_text().split()[0] == str(os.getpid())
    assert stat.S_IMODE((folder / "inside").stat().st_mode) == 0o777
    for name in ("out", "err"):
        status = (folder / "inside" / name).stat()
        assert stat.S_ISFIFO(status.st_mode)
        assert stat.S_IMODE(status.st_mode) == 0o666
    for name in ("agent", "agent.txt"):
        assert stat.S_IMODE((folder / "inside" / name).stat().st_mode) == 0o644
    assert job_folder.remove(node, [])
    assert not folder.exists()


def stale(node: FakeNode, task: str | None) -> Path:
    """A folder of an earlier job with the same id."""
    folder = Path(node.folder).with_name("ray-9-0-012345")
    (folder / "inside").mkdir(parents=True)
    (folder / "old").touch()
    if task is not None:
        (folder / "task").write_text(task)
    return folder


@pytest.mark.parametrize(
    ("task", "is_removed"),
    [
        (f"{ENDED} 5\n", True),
        (f"{ENDED}\n", True),
        (f"{os.getpid()} 5\n", True),  # another process has the id now
        (f"{os.getpid()}\n", False),
        (None, False),
        ("\n", False),
    ],
    ids=["ended", "ended, of an old agent", "another process", "runs", "no file", "empty"],
)
def test_a_folder_of_an_earlier_job_with_the_same_id(
    node: FakeNode, task: str | None, is_removed: bool
) -> None:
    folder = stale(node, task)
    job_folder.make(node, AGENT)
    assert Path(node.folder, "task").read_text().startswith(f"{os.getpid()} ")
    assert folder.exists() != is_removed


def test_another_user_cannot_take_the_folder(node: FakeNode, tmp_path: Path) -> None:
    """Its name ends in digits of this attempt's mark."""
    foreign = tmp_path / "temp/ray-9-0"
    foreign.mkdir()
    assert job_folder.make(node, AGENT) == f"{foreign}-abcdef"
    node.job["mark"] = "123456789a"
    assert job_folder.make(node, AGENT) == f"{foreign}-123456"


@pytest.mark.attack("a job's folder that another user has made on the node", inputs=1)
@pytest.mark.parametrize("kind", ["folder", "file", "link", "link to nothing"])
def test_another_user_has_made_the_folder(node: FakeNode, tmp_path: Path, kind: str) -> None:
    """After a look at its name on another node: it has another one here, and nothing of theirs is used."""
    theirs, folder = tmp_path / "theirs", Path(node.folder)
    if kind != "link to nothing":
        theirs.mkdir()
    if kind.startswith("link"):
        folder.symlink_to(theirs)
    else:
        (folder.mkdir if kind == "folder" else folder.touch)(0o777)
    if os.geteuid() == 0:
        os.lchown(folder, BOB, BOB)
    names = set()
    for _ in range(2):
        made = Path(job_folder.make(node, AGENT))
        names.add(made.name)
        assert made.parent == folder.parent
        assert re.fullmatch(r"ray-9-0-[0-9a-f]{6}", made.name), "leftovers.py knows it by that"
        status = made.lstat()
        assert (stat.S_IMODE(status.st_mode), status.st_uid) == (0o700, os.geteuid())
        assert (made / "task").exists()
    assert len(names | {folder.name}) == 3, "nobody can guess it"
    assert not theirs.exists() or not list(theirs.iterdir())
    assert not folder.is_dir() or not list(folder.iterdir())


@pytest.mark.attack("a job's folder that another user has made on the node", inputs=1)
def test_a_tmpdir_that_others_cannot_guess(node: FakeNode, tmp_path: Path) -> None:
    first = Path(job_folder.make_scratch(node))
    first.rmdir()
    first.symlink_to(tmp_path)
    second = Path(job_folder.make_scratch(node))
    assert second != first
    with umask_is(0):
        assert stat.S_IMODE(Path(job_folder.make_scratch(node)).stat().st_mode) == 0o700


@needs_root
@pytest.mark.attack("a job's folder that another user has made on the node")
@pytest.mark.parametrize("place", ["alice", "alice/ray"])
def test_a_parent_that_another_user_has_made(tmp_path: Path, place: str) -> None:
    """In a folder where everybody can; also if setup has `mkdir -p` of it."""
    folder = tmp_path / "everybody" / place
    folder.mkdir(parents=True)
    (tmp_path / "everybody").chmod(0o1777)
    os.chown(tmp_path / "everybody/alice", BOB, BOB)
    node = FakeNode(tmp_path, temp_dir=str(folder))
    node.env["TMPDIR"] = str(folder)
    error = "alice belongs to 65530, who could change the job's files. Set"
    with pytest.raises(JobError, match=f"{error} ray.temp_dir"):
        job_folder.make(node, AGENT)
    with pytest.raises(JobError, match=f"TMPDIR.*{error} TMPDIR"):
        job_folder.make_scratch(node)
    assert not list(folder.iterdir())


def test_a_zombie_has_ended(node: FakeNode) -> None:
    """It stays if process 1 does not reap."""
    with subprocess.Popen(["true"]) as process:
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        folder = stale(node, f"{process.pid}")
        job_folder.make(node, AGENT)
        assert not folder.exists()


def test_a_container_that_still_runs(node: FakeNode) -> None:
    folder = stale(node, ENDED)
    handle = os.open(folder / "inside", os.O_RDONLY)
    fcntl.flock(handle, fcntl.LOCK_SH)
    job_folder.make(node, AGENT)
    assert folder.exists()
    job_folder.remove(node, [])
    os.close(handle)
    job_folder.make(node, AGENT)
    assert not folder.exists()


@needs_root
@pytest.mark.attack("a job's folder that another user has made on the node", inputs=1)
def test_a_folder_of_another_user_is_not_looked_into(node: FakeNode) -> None:
    """It could have a FIFO in place of a file. Only root could remove it."""
    folder = stale(node, ENDED)
    os.chown(folder, BOB, BOB)
    job_folder.make(node, AGENT)
    assert folder.exists()


def test_a_link_is_not_followed(node: FakeNode, tmp_path: Path) -> None:
    folder = stale(node, ENDED)
    folder.rename(tmp_path / "other")
    folder.symlink_to(tmp_path / "other")
    job_folder.make(node, AGENT)
    assert (tmp_path / "other/old").exists()


def test_processes_of_the_earlier_job_are_killed(node: FakeNode) -> None:
    folder = stale(node, ENDED)
    with subprocess.Popen(
        [sys.executable, "-c", "import time; print(flush=True); time.sleep(60)"],
        env={"SLURMRAY_TEMP": str(folder), "SLURM_JOB_ID": "9"},
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout
        process.stdout.readline()
        job_folder.make(node, AGENT)
        assert process.wait(5) == -9


def test_a_temp_folder_that_is_not_there(tmp_path: Path) -> None:
    node = FakeNode(tmp_path, temp_dir="/no/such")
    with pytest.raises(
        JobError, match=r"cannot make /no/such/ray-9-0-abcdef: No such file.*\. Set ray\.temp_dir"
    ):
        job_folder.make(node, AGENT)


def test_files_of_other_uids_are_removed_with_podman_unshare(
    node: FakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    from slurmray.agent.node.runtimes import make

    job_folder.make(node, AGENT)
    monkeypatch.setattr(job_folder, "remove_tree", lambda _: None)
    node.program("podman", '[ "$1" = unshare ] && shift && exec "$@"')
    assert not job_folder.remove(node, make("docker", node).rm)
    assert job_folder.remove(node, make("podman", node).rm)
