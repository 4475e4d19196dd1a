"""The reader of the trainer's output."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from slurmray.agent.controller import copy_output

HANG = 30  # seconds
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="mounts a file system")


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system with 1 MiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", folder], check=True)
    yield folder
    subprocess.run(["umount", "--lazy", folder], check=True)


@needs_root
@pytest.mark.parametrize(("kept", "is_lost"), [(copy_output.KEPT, False), (100000, True)])
def test_a_disk_that_is_full_for_a_while(tmp_path: Path, disk: Path, kept: int, is_lost: bool) -> None:
    (disk / "other").write_bytes(b"x" * (1 << 20))
    fifo, log = tmp_path / "fifo", disk / "log"
    os.mkfifo(fifo)
    program = Path(copy_output.__file__).read_text().replace("8 << 20", str(kept))
    with log.open("ab") as file:
        reader = subprocess.Popen([sys.executable, "-I", "-S", "-c", program, str(fifo)], stdout=file)
    with fifo.open("wb", buffering=0) as trainer:
        trainer.write(b"y" * 500000)  # more than the pipe has room for; no EPIPE
        time.sleep(0.5)
        assert log.read_bytes() == b""
        (disk / "other").unlink()
        deadline = time.monotonic() + HANG
        while len(log.read_bytes()) < min(kept, 500000):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        trainer.write(b"\nthe end\n")
    assert reader.wait(HANG) == 0
    content = log.read_text()
    if is_lost:
        lost = "\nslurmray: 400000 bytes of output are lost: the log could not be written\n"
        assert content == "y" * 100000 + lost + "\nthe end\n"
    else:
        assert content == "y" * 500000 + "\nthe end\n"
