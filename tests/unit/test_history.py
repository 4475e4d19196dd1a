"""The jobs that were submitted with slurmray."""

from __future__ import annotations

from pathlib import Path

import pytest

from slurmray import history
from slurmray.errors import UsageError


def run(number: int, name: str = "a") -> history.Run:
    return history.Run(number, name, None, "/work", "slurmray-runs", 1.0, 2, 16)


def test_jobs_are_remembered_the_newest_first() -> None:
    assert history.runs() == []
    for number in (1, 2, 3):
        history.remember(run(number, f"job {number % 2}\n"))
    assert [job.id for job in history.runs()] == [3, 2, 1]
    assert history.runs()[0] == run(3, "job 1\n")


def test_only_the_owner_can_read_them() -> None:
    history.remember(run(1))
    assert history.path().stat().st_mode & 0o777 == 0o600
    assert history.path().parent.stat().st_mode & 0o777 == 0o700


def test_lines_that_are_damaged_or_of_another_version_are_left_out() -> None:
    history.remember(run(1))
    with history.path().open("ab") as file:
        file.write(b'{"id": 2}\n{"id": 3, "new": 1}\n[]\n7\n\xff\n{"id":')
    assert [job.id for job in history.runs()] == [1]


def test_a_job_by_id_or_name() -> None:
    def ids(wanted: str | None) -> int | None:
        job = history.find(wanted)
        return job and job.id

    for number, name in ((1, "verl"), (2, "7"), (3, "verl"), (4, "eval")):
        history.remember(run(number, name))
    assert ids(None) == 4
    assert ids("verl") == 3
    assert ids("1") == 1
    assert ids("7") is None, "a number is an id"
    for unknown in ("other", "0", "-1", "²", "", "9" * 11, "9" * 5000):
        with pytest.raises(UsageError, match="known are eval, verl, 7") as caught:
            history.find(unknown)
        assert len(str(caught.value)) < 300


def test_without_jobs() -> None:
    with pytest.raises(UsageError, match="no job was submitted with slurmray submit yet; give the job's id"):
        history.find(None)


def test_a_folder_that_cannot_be_made(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    with pytest.raises(NotADirectoryError):
        history.remember(run(1))
    assert history.runs() == []


def test_another_place(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("XDG_STATE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    history.remember(run(1))
    assert (tmp_path / ".local/state/slurmray/runs.jsonl").exists()
