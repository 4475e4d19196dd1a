"""The reader of the trainer's output."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import time
from pathlib import Path

import pytest

from slurmray.agent.controller import copy_output
from tests.unit.agent.users import needs_root
from tests.unit.agent.waiting import wait_until

HANG = 30  # seconds


def start(folder: Path, target: int, kept: int = copy_output.KEPT) -> tuple[subprocess.Popen[bytes], Path]:
    """Start the reader; return it and the FIFO from which it reads."""
    fifo = folder / "fifo"
    os.mkfifo(fifo)
    program = Path(copy_output.__file__).read_text().replace("8 << 20", str(kept))
    argv = [sys.executable, "-I", "-S", "-c", program, str(fifo)]
    return subprocess.Popen(argv, stdout=target, stderr=subprocess.DEVNULL), fifo


@needs_root
@pytest.mark.parametrize(("kept", "is_lost"), [(copy_output.KEPT, False), (100000, True)])
def test_a_disk_that_is_full_for_a_while(tmp_path: Path, disk: Path, kept: int, is_lost: bool) -> None:
    (disk / "other").write_bytes(b"x" * (1 << 20))
    log = disk / "log"
    with log.open("ab") as file:
        reader, fifo = start(tmp_path, file.fileno(), kept)
    with fifo.open("wb", buffering=0) as trainer:
        trainer.write(b"y" * 500000)  # more than the pipe has room for; no EPIPE
        time.sleep(0.5)
        assert log.read_bytes() == b""
        (disk / "other").unlink()
        wait_until(lambda: len(log.read_bytes()) >= min(kept, 500000))
        trainer.write(b"\nthe end\n")
    assert reader.wait(HANG) == 0
    content = log.read_text()
    if is_lost:
        lost = "\nslurmray: 400000 bytes of output are lost: the log could not be written\n"
        assert content == "y" * 100000 + lost + "\nthe end\n"
    else:
        assert content == "y" * 500000 + "\nthe end\n"


def test_a_log_that_answers_with_another_error(tmp_path: Path) -> None:
    """EFBIG, by a limit; so it is with ESTALE of a network file system. The trainer gets no EPIPE."""
    log = tmp_path / "log"
    with log.open("ab") as file:
        reader, fifo = start(tmp_path, file.fileno())
    resource.prlimit(reader.pid, resource.RLIMIT_FSIZE, (6, resource.RLIM_INFINITY))
    with fifo.open("wb", buffering=0) as trainer:
        trainer.write(b"step 1\nstep 2\n")
        wait_until(lambda: log.read_bytes() == b"step 1")
        trainer.write(b"step 3\n" * 20000)  # more than the pipe has room for
        resource.prlimit(reader.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
    assert reader.wait(HANG) == 0
    assert log.read_bytes() == b"step 1\nstep 2\n" + b"step 3\n" * 20000


def test_a_log_that_nobody_reads_any_more(tmp_path: Path) -> None:
    """A pipe without a reader: what the trainer prints has no place any more, as without slurmray."""
    source, target = os.pipe()
    reader, fifo = start(tmp_path, target)
    for descriptor in (source, target):
        os.close(descriptor)
    with fifo.open("wb", buffering=0) as trainer:
        trainer.write(b"step 1\n")
        assert reader.wait(HANG) != 0
