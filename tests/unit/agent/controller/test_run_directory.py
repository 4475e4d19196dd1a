"""The run directory of an attempt, where other users and other jobs have been before."""

from __future__ import annotations

import json
import os
import stat
import tempfile
from pathlib import Path
from typing import Any

import pytest

from slurmray.agent.controller import run_directory
from slurmray.agent.errors import JobError

BOB = 65530  # a user without a name
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="makes files of another user")


def make(submit: Path, attempt: int = 0, cluster: str = "one", runs: str = "slurmray-runs") -> list[str]:
    job: Any = {"id": "7", "attempt": attempt, "mark": "secret"}
    job["run_dir"] = f"{submit / runs}/7-{attempt}"
    return run_directory.make(job, str(submit), cluster)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize("umask", [0o002, 0o000, 0o077])
def test_nobody_else_can_write_to_it(tmp_path: Path, umask: int) -> None:
    old = os.umask(umask)
    try:
        assert make(tmp_path) == []
    finally:
        os.umask(old)
    runs = tmp_path / "slurmray-runs"
    for path in (runs, runs / "7-0", runs / "7-0/logs", runs / "7-0/cancel-now"):
        assert not mode(path) & 0o022
    assert mode(runs / "7-0/mark") == 0o600
    assert (runs / "7-0/mark").read_text() == "secret\none\n"


def test_an_older_folder_that_a_group_can_write_to(tmp_path: Path) -> None:
    (tmp_path / "slurmray-runs").mkdir()
    (tmp_path / "slurmray-runs").chmod(0o2775)
    make(tmp_path)
    assert mode(tmp_path / "slurmray-runs") == 0o3775


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
    job: Any = {"id": "9", "attempt": 0, "mark": "x", "run_dir": f"{runs}/8-0"}
    with pytest.raises(JobError, match=r"8-0 exists already, and belongs to 65530\. Set run_dir"):
        run_directory.make(job, str(tmp_path), "")


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
        os.seteuid(BOB + 1)
        try:
            if attempt == 0:
                with pytest.raises(JobError, match=r"7-0 exists already, and belongs to 65530\. Set run_dir"):
                    make(Path(shared))
            else:
                assert make(Path(shared)) == []
        finally:
            os.seteuid(0)
        assert (theirs.stat().st_uid, list(theirs.iterdir())) == (BOB, [])


@needs_root
@pytest.mark.attack("results of another job in place of an earlier attempt's", inputs=4)
def test_only_own_earlier_attempts_count(tmp_path: Path) -> None:
    make(tmp_path)
    runs = tmp_path / "slurmray-runs"
    for number, kind in enumerate(["fifo", "folder", "link", "mark"], start=1):
        path = runs / f"7-{number}"
        if kind == "link":
            path.symlink_to("7-0")
            continue
        path.mkdir()
        if kind == "fifo":
            os.mkfifo(path / "mark")
        else:
            (path / "mark").write_text("x\none\n")
            os.chown(path / "mark", BOB, BOB)
        if kind == "folder":
            os.chown(path, BOB, BOB)
    assert make(tmp_path, 5) == [f"{runs}/7-0"]


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


@pytest.mark.parametrize("attempt", [0, 1])
def test_two_clusters_on_one_file_system(tmp_path: Path, attempt: int) -> None:
    make(tmp_path, cluster="other")
    events = tmp_path / "slurmray-runs/7-0/events.jsonl"
    events.write_text(json.dumps({"v": 1, "event": "start"}) + "\n")
    with pytest.raises(
        JobError, match=r"7-0 is of a job of the cluster other, which has not recorded its end"
    ):
        make(tmp_path, attempt)
    with events.open("a") as file:
        file.write(json.dumps({"v": 1, "event": "end"}) + "\n")
    assert make(tmp_path, attempt) == []
