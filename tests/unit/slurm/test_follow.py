"""Following a job; Slurm's answers are made up."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from slurmray import files
from slurmray.errors import SlurmError
from slurmray.slurm import follow
from slurmray.slurm.host import Host
from slurmray.slurm.job_status import Status, make_status
from slurmray.slurm.states import End, Event
from slurmray.slurm.submitted_job import Job

OVER: list[Event] = [{"event": "end", "time": 2.0, "exit_code": 3, "source": "trainer", "text": "done"}]


class FakeJob(Job):
    """A job that changes each time Slurm is asked. states: state, Slurm's reason, new text in the log."""

    def __init__(self, folder: Path, states: list[tuple[str, str, bytes]]) -> None:
        super().__init__(7, folder=folder)
        self.states = states
        self.reason = ""
        self.is_over = False

    def polls(self) -> Iterator[tuple[End, float]]:
        for state, reason, text in self.states:
            self.reason = reason
            with (self._folder / "slurm-7.out").open("ab") as file:
                file.write(text)
            yield End(state, 3 if state == "FAILED" else 0, 0), 0.0

    def status(self) -> Status:
        return make_status(7, "PENDING", {"Reason": self.reason}, [], 0.0)

    def events(self, attempt: int | None = None) -> list[Event]:
        assert attempt is None
        return OVER if self.is_over else []


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Host, "read_pause", 0.0)


def test_the_log_is_written_once_and_reasons_when_they_change(tmp_path: Path) -> None:
    job = FakeJob(
        tmp_path,
        [
            ("PENDING", "Priority", b""),
            ("PENDING", "Priority", b""),
            ("PENDING", "Resources", b""),
            ("RUNNING", "None", b"\xff one\n"),
            ("RUNNING", "None", b""),
            ("COMPLETING", "None", b"two"),
            ("FAILED", "None", b"\nthree\n"),
        ],
    )
    written: list[bytes] = []
    notices: list[str] = []
    end = follow.follow(job, written.append, notices.append)
    assert end == End("FAILED", 3, 0)
    assert end.shell_code == 3
    assert written == [b"\xff one\n", b"two", b"\nthree\n"]
    assert notices == [
        "queued: waits behind jobs with a higher priority (Priority)",
        "queued: waits for free nodes (Resources)",
        "Slurm is completing the job: it waits for the site's epilog, or for a node that does not answer",
    ]


def test_only_the_last_lines_of_the_log_so_far(tmp_path: Path) -> None:
    lines = b"one\ntwo\n 1 %\r 2 %\n"
    job = FakeJob(
        tmp_path, [("RUNNING", "None", lines), ("RUNNING", "None", b"x\ny\n"), ("FAILED", "None", b"")]
    )
    written: list[bytes] = []
    follow.follow(job, written.append, lambda _: None, last=2)
    assert written == [b"two\n 1 %\r 2 %\n", b"x\ny\n"]


def test_a_log_that_is_too_large_to_be_read_as_a_whole(tmp_path: Path) -> None:
    """Its end, and what follows. It has no blocks on the disk."""
    log = tmp_path / "slurm-7.out"
    with log.open("wb") as file:
        file.truncate(files.MAX_LOG + (1 << 20))
        file.seek(0, os.SEEK_END)
        file.write(b"\none\ntwo\n")
    job = FakeJob(tmp_path, [("RUNNING", "None", b""), ("RUNNING", "None", b"x\n"), ("FAILED", "None", b"")])
    written: list[bytes] = []
    follow.follow(job, written.append, lambda _: None, last=1)
    assert written == [b"two\n", b"x\n"]


def test_slurmctld_that_does_not_answer_while_a_job_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Job.polls decides for how long that is no error."""

    def fail(_: Job) -> Status:
        raise SlurmError("scontrol: Unable to contact slurm controller (connect failure)")

    monkeypatch.setattr(FakeJob, "status", fail)
    job = FakeJob(tmp_path, [("PENDING", "Priority", b""), ("FAILED", "None", b"")])
    assert follow.follow(job, print, print) == End("FAILED", 3, 0)


def test_slurm_is_asked_at_once_when_the_job_has_recorded_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without that, the pause before the next request would be hours here."""

    class Long(FakeJob):
        def polls(self) -> Iterator[tuple[End, float]]:
            yield End("RUNNING", 0, 0), 1e6
            yield End("COMPLETED", 0, 0), 0.0

    monkeypatch.setattr(follow, "_LONGEST_PAUSE", 1e6)
    job = Long(tmp_path, [])
    job.is_over = True
    assert follow.follow(job, lambda _: None, lambda _: None) == End("COMPLETED", 0, 0)


def test_a_requeued_job_is_not_followed_as_one_that_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without that, the pauses would be hours here."""

    class Requeued(FakeJob):
        def polls(self) -> Iterator[tuple[End, float]]:
            self.is_over = True
            yield End("RUNNING", 0, 0), 1e6
            yield End("PENDING", 0, 0), 0.1
            self.is_over = False
            yield End("PENDING", 0, 0), 0.1
            yield End("RUNNING", 0, 0), 0.1
            yield End("COMPLETED", 0, 0), 0.0

    monkeypatch.setattr(follow, "_LONGEST_PAUSE", 1e6)
    monkeypatch.setattr(follow, "_END_PAUSE", 1e6)
    assert follow.follow(Requeued(tmp_path, []), print, print) == End("COMPLETED", 0, 0)


@pytest.mark.parametrize("source", ["trainer", "slurm"])
def test_it_ends_with_the_job_while_slurm_completes_it(tmp_path: Path, source: str) -> None:
    """Only Slurm knows whether a job was cancelled or reached its time limit."""

    class Completing(FakeJob):
        def polls(self) -> Iterator[tuple[End, float]]:
            yield End("RUNNING", 0, 0), 0.1
            for _ in range(3):
                yield End("COMPLETING", 0, 0), 0.0
            if source == "trainer":
                raise AssertionError("Slurm was asked again")
            yield End("TIMEOUT", 0, 0), 0.0

        def events(self, attempt: int | None = None) -> list[Event]:
            assert attempt is None
            return [{**OVER[0], "source": source}]

    notices: list[str] = []
    end = follow.follow(Completing(tmp_path, []), lambda _: None, notices.append)
    assert end == (End("FAILED", 3, 0) if source == "trainer" else End("TIMEOUT", 0, 0))
    assert len(notices) == (source == "slurm")


def test_it_ends_early_once_that_is_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follow, "_LONGEST_PAUSE", 1e6)

    class Running(FakeJob):
        def polls(self) -> Iterator[tuple[End, float]]:
            yield End("RUNNING", 0, 0), 1e6
            raise AssertionError("Slurm was asked again")

    job = Running(tmp_path, [])
    job.is_over = True
    assert follow.follow(job, lambda _: None, lambda _: None, lambda events: events == OVER) is None


@pytest.mark.parametrize(
    ("end", "code"),
    [
        (End("COMPLETED", 0, 0), 0),
        (End("FAILED", 71, 0), 71),
        (End("CANCELLED", 0, 15), 143),
        (End("NODE_FAIL", 0, 0), 1),
    ],
)
def test_exit_codes_for_a_shell(end: End, code: int) -> None:
    assert end.shell_code == code
