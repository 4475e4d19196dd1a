"""The job's log and events on file systems that refuse writes, and beside the output of other programs."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from slurmray.agent import job_log
from slurmray.agent.job_log import JobLog
from slurmray.agent.node.agent_interface import NodeApi

from .fake_node import FakeNode
from .waiting import wait_for_text, wait_until

HANG = 30  # seconds
# Writes a line and an event for each line of its input, and says when that is queued.
PROGRAM = """
import sys
from slurmray.agent import job_log
job_log.KEPT = int(sys.argv[2])
log = job_log.JobLog(0.0)
log.open(sys.argv[1])
for line in sys.stdin:
    log.event("phase", phase="ray", text=line.strip())
    print("queued", flush=True)
log.finish()
"""


class Controller:
    """A process with a JobLog. Its files cannot grow until `lift`: writes are refused with EFBIG."""

    def __init__(self, folder: Path, kept: int, log: Path) -> None:
        self.log, self.events = log, folder / "events.jsonl"
        for path in (self.log, self.events):
            path.touch()
        self.process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, str(folder), str(kept)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.log.open("ab"),
        )
        self.limit(0)

    def limit(self, size: int) -> None:
        """Set the size of the largest file."""
        resource.prlimit(self.process.pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))

    def write(self, text: str) -> None:
        assert self.process.stdin
        assert self.process.stdout
        self.process.stdin.write(text.encode() + b"\n")
        self.process.stdin.flush()
        assert self.process.stdout.readline() == b"queued\n"

    def lift(self) -> None:
        self.limit(resource.RLIM_INFINITY)

    def wait_for(self, text: str) -> None:
        wait_for_text(self.log, text)

    def end(self) -> None:
        assert self.process.stdin
        self.process.stdin.close()
        assert self.process.wait(HANG) == 0


@contextmanager
def controller(folder: Path, kept: int = job_log.KEPT, log: str = "log") -> Iterator[Controller]:
    made = Controller(folder, kept, folder / log)
    try:
        yield made
    finally:
        made.process.kill()


def test_lines_and_events_that_are_refused_for_a_while(tmp_path: Path) -> None:
    with controller(tmp_path) as made:
        for text in ("one", "two"):
            made.write(text)
        assert made.log.read_text() == made.events.read_text() == ""
        made.lift()
        made.wait_for("ray: two\n")
        made.write("three")
        made.end()
        texts = [line.split("ray: ")[1] for line in made.log.read_text().splitlines()]
        assert texts == ["one", "two", "three"]
        assert [json.loads(line)["text"] for line in made.events.read_text().splitlines()] == texts


def test_a_line_of_which_a_part_could_be_written(tmp_path: Path) -> None:
    with controller(tmp_path) as made:
        made.limit(10)
        made.write("one")
        made.wait_for("[slurmray ")
        wait_until(lambda: made.events.stat().st_size >= 10)
        made.lift()
        made.end()
        assert made.log.read_text().count("\n") == 1
        assert made.log.read_text().endswith("ray: one\n")
        torn, whole = made.events.read_text().splitlines()
        assert json.loads(whole)["text"] == "one", "the torn line spoils no other one"
        assert len(torn) == 10


def test_a_log_that_is_refused_for_ever(tmp_path: Path) -> None:
    """Events of a run directory elsewhere are not kept back, and the job ends."""
    with controller(tmp_path, log="/dev/full") as made:
        made.lift()
        made.write("one")
        made.end()
        assert [json.loads(line)["text"] for line in made.events.read_text().splitlines()] == ["one"]


def test_more_than_is_kept(tmp_path: Path) -> None:
    with controller(tmp_path, kept=200) as made:
        for number in range(20):
            made.write(f"{number:080}")
        made.lift()
        made.wait_for("bytes of messages are lost: the log could not be written\n")
        made.end()
        first, *kept, last = made.log.read_text().splitlines()
        assert first.endswith(f"{0:080}")
        assert len(kept) < 5
        assert int(last.split("] ")[1].split()[0]) > 1000


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b"", b""),
        (b"whole\n", b"whole\n"),
        (b"no newline", b"no newline\n"),
        (b" 45%|####\r 46%|####", b" 45%|####\r 46%|####\n"),
        (b"job\xe9", b"job\xe9\n"),
    ],
)
def test_a_line_begins_after_the_one_of_another_program(before: bytes, after: bytes, tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(before)
    job_log.append(str(path), "line\n")
    assert path.read_bytes() == after + b"line\n"


def test_lines_beside_the_output_of_other_programs(capfd: pytest.CaptureFixture[str]) -> None:
    """The trainer's, and pieces of what srun prints."""
    log = JobLog(time.time())
    os.write(2, b"step 1")
    log.write_table([["node", "check", "found"], ["node1", "shm", "64 MB"]])
    log.copy(b"srun: err", True)
    log.copy(b"or: x\n", False)
    log.copy(b"", True)
    log.copy(b"srun: warning", True)
    log.write("done")
    log.finish()
    first, header, row, error, warning, last, end = capfd.readouterr().err.split("\n")
    assert (first, header.split()[0], row.split()[0], error, warning, end) == (
        "step 1",
        "node",
        "node1",
        "srun: error: x",
        "srun: warning",
        "",
    )
    assert last.endswith("] done")


def test_a_node_s_log(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    os.write(2, b"setup without a newline")
    NodeApi.log(FakeNode(tmp_path), "slurmray: memory ran out")
    assert capfd.readouterr().err == "setup without a newline\nslurmray: memory ran out\n"
