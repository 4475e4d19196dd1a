"""Threads that write, so that the caller never waits."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

from slurmray.agent.background_io import CallQueue, PipeWriter


def test_sending_does_not_wait_for_the_reader() -> None:
    out, into = os.pipe()
    outbox = PipeWriter(into)
    begin = time.monotonic()
    for number in range(100):
        outbox.send(b"%04d" % number + b"x" * 9_996)  # a pipe holds 65,536
    outbox.close()
    assert time.monotonic() - begin < 5
    data = b""
    while part := os.read(out, 1 << 20):
        data += part
    os.close(out)
    assert len(data) == 1_000_000
    assert [int(data[at : at + 4]) for at in range(0, len(data), 10_000)] == list(range(100))


def test_a_reader_that_is_gone() -> None:
    out, into = os.pipe()
    os.close(out)
    outbox = PipeWriter(into)
    outbox.send(b"lost")
    outbox.send(b"lost, too")
    outbox.close(5)


def test_calls_run_in_order_also_after_an_error(tmp_path: Path) -> None:
    worker, done = CallQueue(), []
    worker.submit(lambda: done.append(1))
    worker.submit((tmp_path / "no" / "such").mkdir)
    worker.submit(lambda: done.append(2))
    worker.finish(5)
    assert done == [1, 2]


def test_finish_does_not_wait_for_a_stalled_file_system() -> None:
    worker, stall = CallQueue(), threading.Event()

    def wait() -> None:
        stall.wait()

    worker.submit(wait)
    begin = time.monotonic()
    worker.finish(0.2)
    assert time.monotonic() - begin < 5
    stall.set()
