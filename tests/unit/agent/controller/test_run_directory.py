"""The run directory of an attempt, where other users and other jobs have been before."""

from __future__ import annotations

import ctypes
import fcntl
import json
import os
import re
import shutil
import stat
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from slurmray.agent import job_log
from slurmray.agent.controller import metrics, run_directory
from slurmray.agent.job_errors import JobError
from slurmray.agent.node import head_loss
from tests.attacks import tried
from tests.unit.agent.containers import job, settings
from tests.unit.agent.users import BOB, acting_as, mounted, needs_root, umask_is
from tests.unit.agent.waiting import wait_until

ALICE = BOB + 1
PR_SET_DUMPABLE, CLONE_NEWUSER = 4, 0x10000000  # prctl(2), unshare(2)


def restart(number: int, **fields: object) -> str:
    """A line of events.jsonl."""
    return job_log.event_line("restart", {"restart": number, **fields})


def make(submit: Path, attempt: int = 0, cluster: str = "one", runs: str = "slurmray-runs") -> list[str]:
    record: Any = job(attempt=attempt, mark="secret", run_dir=f"{submit / runs}/7-{attempt}")
    return run_directory.make(record, str(submit), cluster)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize("umask", [0o002, 0o000, 0o077])
def test_nobody_else_can_write_to_it(tmp_path: Path, umask: int) -> None:
    with umask_is(umask):
        assert make(tmp_path) == []
    runs = tmp_path / "slurmray-runs"
    for path in (runs, runs / "7-0", runs / "7-0/logs", runs / "7-0/cancel-now"):
        assert not mode(path) & 0o022
    assert mode(runs / "7-0/mark") == 0o600
    assert (runs / "7-0/mark").read_text() == "secret\none\n"


def test_another_job_makes_the_folder_at_the_same_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.mkdir

    def late(name: str, *arguments: Any, **options: Any) -> None:
        if name in ("runs", "slurmray-runs"):
            real(name, *arguments, **options)
        real(name, *arguments, **options)

    monkeypatch.setattr(os, "mkdir", late)
    assert make(tmp_path, runs="runs/slurmray-runs") == []
    assert (tmp_path / "runs/slurmray-runs/7-0/mark").exists()


@pytest.fixture
def public() -> Iterator[Path]:
    """A folder that other users can enter."""
    path = Path(tempfile.mkdtemp())
    path.chmod(0o755)
    yield path
    shutil.rmtree(path)


@contextmanager
def alice() -> Iterator[None]:
    """As alice instead of root."""
    groups = os.getgroups()
    os.setgroups([])
    os.setegid(ALICE)
    try:
        with acting_as(ALICE):
            yield
    finally:
        os.setegid(0)
        os.setgroups(groups)


def folder(path: Path, mode: int, owner: int = 0) -> Path:
    path.mkdir()
    path.chmod(mode)
    os.chown(path, owner, owner)
    return path


@pytest.mark.parametrize(("before", "after"), [(0o2775, 0o3775), (0o757, 0o1757), (0o755, 0o755)])
def test_an_older_folder_that_others_can_write_to(tmp_path: Path, before: int, after: int) -> None:
    outer = tmp_path / "outer"
    for path in (outer, outer / "runs"):
        path.mkdir()
        path.chmod(before)
    make(tmp_path, runs="outer/runs")
    assert mode(outer / "runs") == after
    assert mode(outer) == before  # has nothing of the job's


@needs_root
@pytest.mark.parametrize("modes", [0o1777, 0o1733])
def test_a_sticky_folder_of_root(public: Path, modes: int) -> None:
    """Also one that cannot be listed, and a folder of one's own that cannot be written to."""
    home, scratch = folder(public / "home", 0o755, ALICE), folder(public / "scratch", modes)
    with alice():
        make(home, runs=f"{scratch}")
        make(home, runs=f"{scratch}/runs")
        (home / "full").mkdir()
        (home / "full/runs").mkdir()
        (home / "full").chmod(0o555)
        make(home, runs="full/runs")
    assert (scratch / "7-0").stat().st_uid == (scratch / "runs").stat().st_uid == ALICE
    assert sorted(path.name for path in scratch.iterdir()) == ["7-0", "runs"]


@needs_root
@pytest.mark.attack("run directories of another user")
def test_folders_where_others_can_put_another_run_directory(public: Path) -> None:
    home = folder(public / "home", 0o755, ALICE)
    folder(public / "open", 0o777)
    sticky = folder(public / "sticky", 0o1777)
    folder(sticky / "bobs", 0o755, BOB)
    folder(public / "of-bob", 0o777, BOB)  # its place is root's
    wrong = (
        ("open", r"open: others can rename what is in it \(mode 0777\)\. Set run_dir"),
        ("sticky/bobs", r"bobs belongs to 65530, .*\. Set run_dir"),
        ("of-bob", r"of-bob belongs to 65530, .*\. Set run_dir"),
    )
    for runs, error in tried(wrong):
        with alice(), pytest.raises(JobError, match=error) as raised:
            make(home, runs=f"{public}/{runs}")
        assert raised.value.kind == "config"
        assert not (public / runs / "7-0").exists()


@needs_root
def test_in_a_container_root_is_an_unknown_user(public: Path) -> None:
    """pyxis has only the job's user in its containers. What was root's must not end the job there."""
    home, scratch = folder(public / "home", 0o755, ALICE), folder(public / "scratch", 0o1777)
    if not (child := os.fork()):
        code = 1
        with suppress(BaseException):
            libc = ctypes.CDLL(None)
            os.setgroups([])
            os.setgid(ALICE)
            os.setuid(ALICE)
            libc.prctl(PR_SET_DUMPABLE, 1)  # to write the map
            assert not libc.unshare(CLONE_NEWUSER)
            Path("/proc/self/uid_map").write_text(f"{ALICE} {ALICE} 1")
            assert scratch.stat().st_uid not in (0, ALICE)
            make(home, runs=f"{scratch}/runs")
            code = 0
        os._exit(code)
    assert os.waitpid(child, 0)[1] == 0
    assert (scratch / "runs/7-0/mark").exists()


@needs_root
@pytest.mark.attack("run directories of another user", inputs=1)
def test_a_folder_of_another_user_in_the_submit_folder(tmp_path: Path) -> None:
    """Without the sticky bit, e.g. of a group."""
    submit = folder(tmp_path / "submit", 0o775)
    (folder(submit / "bobs", 0o755, BOB) / "runs").mkdir()
    with pytest.raises(JobError, match="bobs belongs to 65530"):
        make(submit, runs="bobs/runs")


@needs_root
def test_folders_that_the_submitter_or_an_administrator_has_chosen(tmp_path: Path) -> None:
    """Those around the submit folder, and on the way to run_dir where not everybody can make one."""
    tmp_path.chmod(0o1777)
    submit = folder(tmp_path / "bobs", 0o755, BOB) / "mine"
    submit.mkdir()
    make(submit)
    assert (submit / "slurmray-runs/7-0/mark").exists()
    site = folder(tmp_path / "site", 0o755)
    folder(site / "project", 0o755, BOB)
    folder(site / "project/mine", 0o755)
    (site / "link").symlink_to("project")
    os.lchown(site / "link", BOB, BOB)
    make(submit, runs=f"{site}/link/mine")
    assert (site / "project/mine/7-0/mark").exists()
    folder(site / "project/other", 0o755)
    make(site / "project/mine", runs="../other")
    assert (site / "project/other/7-0/mark").exists()


@needs_root
@pytest.mark.skipif(not os.path.exists("/dev/fuse"), reason="mounts a file system")  # noqa: PTH110
def test_a_file_system_on_which_files_of_root_are_nobody_s(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    home = folder(tmp_path / "home", 0o755, 65534)
    program = Path(__file__).parents[3] / "cluster/root_squash_fs.py"
    with subprocess.Popen([sys.executable, str(program), str(home)]) as server:
        try:
            wait_until(home.is_mount)
            make(home)
            assert make(home, 1) == [f"{home}/slurmray-runs/7-0"]
            assert {path.name for path in (home / "slurmray-runs").iterdir()} == {"7-0", "7-1"}
            assert (home / "slurmray-runs/7-1/mark").stat().st_uid == 65534
        finally:
            subprocess.run(["umount", "--lazy", home], check=True)
            server.terminate()


APPEND_ONLY, SET_FLAGS = 0x20, 0x40086602  # FS_APPEND_FL and FS_IOC_SETFLAGS of linux/fs.h


def set_attributes(folder: Path, flags: int) -> None:
    """As chattr(1), which a minimal Debian 13 lacks."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.ioctl(descriptor, SET_FLAGS, struct.pack("l", flags))
    finally:
        os.close(descriptor)


@needs_root
def test_a_folder_whose_mode_cannot_be_changed(tmp_path: Path) -> None:
    """As on a mount with fixed modes; here it is append-only."""
    runs = folder(tmp_path / "slurmray-runs", 0o777)
    try:
        set_attributes(runs, APPEND_ONLY)
    except OSError:
        pytest.skip("the file system has no attributes")
    try:
        make(tmp_path)
    finally:
        set_attributes(runs, 0)
    assert (mode(runs), (runs / "7-0/mark").exists()) == (0o777, True)


@needs_root
def test_a_disk_that_is_full_after_the_first_folders(tmp_path: Path) -> None:
    match = r"cannot write to .*7-0: No space left on device"
    with mounted(tmp_path, "nr_inodes=3"), pytest.raises(JobError, match=match) as error:
        make(tmp_path)
    assert error.value.kind == "preflight"


def test_a_link_of_one_s_own(tmp_path: Path) -> None:
    (tmp_path / "scratch").mkdir()
    (tmp_path / "slurmray-runs").symlink_to("scratch")
    make(tmp_path)
    assert (tmp_path / "scratch/7-0/mark").exists()


@needs_root
@pytest.mark.attack("run directories of another user", inputs=1)
@pytest.mark.parametrize("kind", ["folder", "link", "link to a folder of one's own", "outer folder", "file"])
def test_a_stranger_has_made_the_folder_before(tmp_path: Path, kind: str) -> None:
    tmp_path.chmod(0o1777)
    mine, runs = tmp_path / "mine", tmp_path / "slurmray-runs"
    mine.mkdir()
    path = "slurmray-runs/inner" if kind == "outer folder" else "slurmray-runs"
    if kind.startswith("link"):
        theirs = tmp_path / "theirs"
        theirs.mkdir()
        runs.symlink_to(theirs if kind == "link" else mine)
        os.chown(theirs, BOB, BOB)
    elif kind == "file":
        runs.touch()
    else:
        runs.mkdir(mode=0o777)
        runs.chmod(0o777)
    os.lchown(runs, BOB, BOB)
    for relative, is_sticky in ((True, True), (False, True), (False, kind == "outer folder")):
        tmp_path.chmod(0o1777 if is_sticky else 0o777)
        with pytest.raises(JobError, match=r"(belongs to 65530|Not a directory).*\. Set run_dir") as error:
            make(tmp_path if relative else tmp_path / "mine", runs=path if relative else f"{tmp_path}/{path}")
        assert error.value.kind == "config"
    assert list(mine.iterdir()) == []


@needs_root
@pytest.mark.attack("run directories of another user", inputs=1)
@pytest.mark.parametrize("place", ["theirs", "mine"])
def test_a_stranger_has_made_the_attempt_before(tmp_path: Path, place: str) -> None:
    """In a folder of one's own it is set aside; in that of others it stays, and its owner is named."""
    runs = tmp_path / "slurmray-runs"
    (runs / "7-0/logs").mkdir(parents=True)
    os.mkfifo(runs / "7-0/mark")
    os.chown(runs / "7-0", BOB, BOB)
    make(tmp_path)  # root may rename everything
    assert mode(runs / "7-0/mark") == 0o600
    assert (runs / "7-0").stat().st_uid == 0
    if place == "mine":
        return
    (tmp_path / "slurmray-runs/8-0").mkdir()
    os.chown(tmp_path / "slurmray-runs/8-0", BOB, BOB)
    record: Any = job(name_for_commands="9", run_dir=f"{runs}/8-0")
    with pytest.raises(JobError, match=r"8-0 exists already, and belongs to 65530\. Set run_dir"):
        run_directory.make(record, str(tmp_path), "")


@needs_root
@pytest.mark.attack("run directories of another user", inputs=1)
@pytest.mark.parametrize("is_listed", [True, False])
@pytest.mark.parametrize("attempt", [0, 1])
def test_a_folder_for_all_users(attempt: int, is_listed: bool) -> None:
    """A run directory of a stranger with this job's id stays; it is in the way only with its attempt."""
    with tempfile.TemporaryDirectory(dir="/tmp") as shared:  # others can enter it
        runs = Path(shared, "slurmray-runs")
        theirs = runs / f"7-{attempt}"
        theirs.mkdir(parents=True)
        os.chown(theirs, BOB, BOB)
        runs.chmod(0o1777 if is_listed else 0o1733)
        Path(shared).chmod(0o755)
        with acting_as(ALICE):
            if attempt == 0:
                with pytest.raises(JobError, match=r"7-0 exists already, and belongs to 65530\. Set run_dir"):
                    make(Path(shared))
            else:
                assert make(Path(shared)) == []
        assert (theirs.stat().st_uid, list(theirs.iterdir())) == (BOB, [])


@needs_root
@pytest.mark.attack("results of another job in place of an earlier attempt's")
def test_only_own_earlier_attempts_count(tmp_path: Path) -> None:
    make(tmp_path)
    runs = tmp_path / "slurmray-runs"
    for number, kind in enumerate(tried(["fifo", "folder", "link", "mark"]), start=1):
        path = runs / f"7-{number}"
        if kind == "link":
            path.symlink_to("7-0")
            continue
        path.mkdir()
        if kind == "fifo":
            os.mkfifo(path / "mark")
            os.write(os.open(path / "mark", os.O_RDWR), b"x\none\n")
        else:
            (path / "mark").write_text("x\none\n")
            os.chown(path / "mark", BOB, BOB)
        if kind == "folder":
            os.chown(path, BOB, BOB)
    assert make(tmp_path, 5) == [f"{runs}/7-0"]


@needs_root
@pytest.mark.attack("run directories of another user", inputs=1)
def test_another_user_s_earlier_attempt_in_a_sticky_folder(public: Path) -> None:
    """It cannot be renamed, and is not in the way."""
    home, scratch = folder(public / "home", 0o755, ALICE), folder(public / "scratch", 0o1777)
    (folder(scratch / "7-0", 0o755, BOB) / "mark").write_text("x\none\n")
    with alice():
        assert make(home, 1, runs=f"{scratch}") == []
    assert (scratch / "7-0/mark").exists()


@pytest.mark.parametrize("mark", [b"", b"\xff\n\xff\n"])
def test_a_mark_that_is_incomplete(tmp_path: Path, mark: bytes) -> None:
    """As the disk was full."""
    make(tmp_path, cluster="")
    runs = tmp_path / "slurmray-runs"
    (runs / "7-0/mark").write_bytes(mark)
    (runs / "7-0/events.jsonl").write_text('{"event": "end"}\n')
    assert make(tmp_path, 1) == []
    assert not (runs / "7-0").exists()


def test_a_cluster_without_a_name(tmp_path: Path) -> None:
    """A run directory of another job is set aside."""
    make(tmp_path, cluster="other")
    assert make(tmp_path, 1, cluster="") == []
    assert not (tmp_path / "slurmray-runs/7-0").exists()


def test_the_same_job_id_again(tmp_path: Path) -> None:
    runs = tmp_path / "slurmray-runs"
    for attempt in range(3):
        assert sorted(make(tmp_path, attempt)) == [f"{runs}/7-{number}" for number in range(attempt)]
    (runs / "7-0/prepared-data").touch()
    assert make(tmp_path) == []
    assert [path.name for path in runs.iterdir() if path.name[2:].isdecimal()] == ["7-0"]
    assert not (runs / "7-0/prepared-data").exists()
    assert len(list(runs.glob("7-0.*/prepared-data"))) == 1
    assert make(tmp_path, 1) == [f"{runs}/7-0"]


def test_restarts_of_an_earlier_attempt(tmp_path: Path) -> None:
    """The first one was before the trainer had started."""
    make(tmp_path)
    run = tmp_path / "slurmray-runs/7-0"
    assert run_directory.count_restarts(str(run), 3) == 0
    text = '"event": "restart", "restart": 3, "'
    lines = [restart(0, text=text), restart(1, nodes=["node1"]), job_log.event_line("end", {"text": text})]
    (run / "events.jsonl").write_text("".join(lines))
    assert run_directory.count_restarts(str(run), 3) == 1
    assert run_directory.count_restarts(f"{run}-none", 3) == 0


@pytest.mark.attack("a FIFO, a device, a link or another user's file in place of a file of the job", inputs=1)
@pytest.mark.parametrize(
    "kind",
    [
        *("number", "text", "link", "folder", "fifo", "size", "linked run"),
        pytest.param("of another user", marks=needs_root),
    ],
)
def test_restarts_that_are_not_those_of_an_earlier_attempt(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(tmp_path)
    run = tmp_path / "slurmray-runs/7-0"
    path, theirs = run / "events.jsonl", tmp_path / "theirs"
    theirs.write_text(restart(2))
    if kind == "number":
        path.write_text(restart(4) + restart(-1) + restart(10**30))
    elif kind == "text":
        path.write_bytes(b'\xff"event": "restart", "restart": "2",\0')
    elif kind == "link":
        path.symlink_to(theirs)
    elif kind == "folder":
        path.mkdir()
    elif kind == "fifo":
        os.mkfifo(path)
    elif kind == "size":
        monkeypatch.setattr(run_directory, "MAX_EVENTS", 1000)
        path.write_text("x" * 1000 + restart(2))
    elif kind == "of another user":
        path.write_text(restart(2))
        os.chown(path, BOB, BOB)
    else:
        path.write_text(restart(2))
        run.rename(tmp_path / "run")
        run.symlink_to(tmp_path / "run")
    assert run_directory.count_restarts(str(run), 3) == 0


@pytest.mark.parametrize("attempt", [0, 1])
def test_two_clusters_on_one_file_system(tmp_path: Path, attempt: int) -> None:
    make(tmp_path, cluster="other")
    events = tmp_path / "slurmray-runs/7-0/events.jsonl"
    with pytest.raises(JobError, match="has not recorded its end"):
        make(tmp_path, attempt)
    events.write_text(json.dumps({"v": 1, "event": "start"}) + "\n")
    with pytest.raises(
        JobError, match=r"7-0 is of a job of the cluster other, which has not recorded its end"
    ):
        make(tmp_path, attempt)
    with events.open("a") as file:
        file.write(json.dumps({"v": 1, "event": "end"}) + "\n")
    assert make(tmp_path, attempt) == []


def test_variables_of_the_progress_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Unexpanded, it would never change, and a trainer that gets on would count as stalled."""
    monkeypatch.setenv("SLURM_SUBMIT_DIR", str(tmp_path))
    monkeypatch.setenv("SCRATCH", "/scratch")
    given: Any = settings(watch={"progress": "$SCRATCH/steps"}, only_checks=False, groups=[])
    run_directory.begin(new_job(tmp_path, 0), given, job_log.JobLog(time.time()))
    assert given["watch"]["progress"] == "/scratch/steps"
    given["watch"]["progress"] = "$GONE/steps"
    with pytest.raises(JobError, match=r"^watch.progress: \$GONE is not set in the batch script"):
        run_directory.begin(new_job(tmp_path, 1), given, job_log.JobLog(time.time()))


def new_job(submit: Path, attempt: int) -> Any:
    return job(run_dir=f"{submit}/slurmray-runs/7-{attempt}", attempt=attempt)


def seen_alive(folder: Path, monkeypatch: pytest.MonkeyPatch, write: Callable[[], object]) -> bool:
    """Whether a worker sees that the controller runs. write: what that does between two looks."""
    monkeypatch.setattr(head_loss, "time", SimpleNamespace(sleep=lambda _: write()))
    record: Any = job(run_dir=str(folder))
    first, second = head_loss._read_heartbeats(record)
    return first != second


@needs_root
@pytest.mark.parametrize("is_new", [False, True])
def test_a_heartbeat_on_a_full_disk(disk: Path, is_new: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """is_new: the disk was full before the first one."""
    (disk / "heartbeat").touch()
    if not is_new:
        run_directory.write_heartbeat(str(disk))
    with suppress(OSError), (disk / "other").open("wb", 0) as file:
        while True:
            file.write(b"x" * 4096)

    def write() -> None:
        with suppress(OSError):
            run_directory.write_heartbeat(str(disk))

    assert seen_alive(disk, monkeypatch, write)
    assert not seen_alive(disk, monkeypatch, lambda: None), "the controller has ended"


def test_a_heartbeat_that_a_quota_refuses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also of what was written before, as where a file system copies on write: here by a limit."""
    run_directory.write_heartbeat(str(tmp_path))
    program = f"""
import resource
from slurmray.agent.controller import run_directory
resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
run_directory.write_heartbeat({str(tmp_path)!r})
"""
    codes: list[int] = []

    def write() -> None:
        argv = [sys.executable, "-c", program]
        codes.append(subprocess.run(argv, check=False, stderr=subprocess.DEVNULL).returncode)

    assert seen_alive(tmp_path, monkeypatch, write)
    assert codes == [1], "the limit refuses it, or the test proves nothing"


def test_two_heartbeats_have_the_same_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader never sees a part of one, or an empty file."""
    sizes = set()
    for now in (0.0, 9.96, 123456.7, 1e12):
        monkeypatch.setattr(run_directory, "time", SimpleNamespace(monotonic=lambda now=now: now))
        run_directory.write_heartbeat(str(tmp_path))
        sizes.add((tmp_path / "heartbeat").stat().st_size)
    assert len(sizes) == 1


@pytest.mark.attack("a job's name that is not UTF-8")
@pytest.mark.parametrize("name", ["job\udce9", "\udcff\udcfe", "\ud83d"])
def test_metrics_of_a_job_whose_name_is_not_utf_8(name: str, tmp_path: Path) -> None:
    """sbatch -J $'job\\xe9'. Prometheus takes UTF-8 only."""
    record: Any = job(id="7", name=name)
    text = metrics.as_text({"node1": {"gpu": 97}}, record)
    run_directory.write_metrics(str(tmp_path), text)
    written = (tmp_path / "metrics/slurmray.prom").read_bytes().decode()
    assert re.search(r'name="(job)?\?+",node="node1"} 97\n', written), written
