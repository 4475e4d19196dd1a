"""Threads that write, so that the caller never waits."""

from __future__ import annotations

import functools
import os
import re
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from slurmray.agent import background_io
from slurmray.agent.background_io import CallQueue, Errors, PipeWriter, call, start

AGENT = Path(background_io.__file__).parent
HANG = 30  # seconds


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


ERRORS = [
    FileNotFoundError(2, "No such file or directory", "/run/x"),
    OSError(28, "No space left on device"),
    UnicodeEncodeError("utf-8", "job\udce9", 3, 4, "surrogates not allowed"),
    KeyError("uuid"),
    RuntimeError("can't start new thread"),
    RecursionError(),
    MemoryError(),
    AssertionError(),
]


@pytest.mark.parametrize("error", ERRORS, ids=repr)
def test_a_queue_outlives_each_error_and_says_it_once(error: Exception, thread_errors: list[str]) -> None:
    worker, done = CallQueue("the run directory"), []

    def fail() -> None:
        raise error

    for number in range(3):
        worker.submit(fail)
        worker.submit(lambda number=number: done.append(number))  # type: ignore[misc]
    worker.finish(HANG)
    assert done == [0, 1, 2]
    (line,) = thread_errors
    assert line.startswith(f"error in the thread for the run directory: {type(error).__name__}: ")


def test_each_type_in_each_thread_is_said(thread_errors: list[str]) -> None:
    for name in ("one", "two"):
        worker = CallQueue(name)
        for text in ("a", "b"):
            empty: dict[str, str] = {}
            failing: tuple[Callable[[str], Any], ...] = (int, empty.__getitem__)
            for fail in failing:
                worker.submit(functools.partial(fail, text))
        worker.finish(HANG)
    kinds = [re.sub(".* thread for (.*?: .*?):.*", r"\1", line) for line in thread_errors]
    assert kinds == ["one: ValueError", "one: KeyError", "two: ValueError", "two: KeyError"]


@pytest.mark.attack("texts of errors in threads")
@pytest.mark.parametrize("text", ["a\nb\r[slurmray 0.0 s] done", "\x1b]0;x\x07", "job\udce9", "x" * 10**6])
def test_an_error_is_one_clean_line(text: str, thread_errors: list[str]) -> None:
    def fail() -> None:
        raise ValueError(text)

    start("samples", fail).join(HANG)
    (line,) = thread_errors
    assert line.isprintable()
    assert len(line) <= 500
    assert "thread for samples: ValueError: " in line


@pytest.mark.parametrize("error", ERRORS, ids=repr)
def test_an_error_in_what_writes_the_errors(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise error

    errors = Errors()
    errors.write = fail
    monkeypatch.setattr(background_io, "errors", errors)
    worker, done = CallQueue("the run directory"), []
    worker.submit(fail)
    worker.submit(lambda: done.append(1))
    worker.finish(HANG)
    assert done == [1]


def test_before_there_is_a_log(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background_io, "errors", Errors())
    call("a notice", lambda: int("job\udce9"), HANG)  # type: ignore[arg-type]
    line = capfd.readouterr().err
    assert line.startswith("slurmray: error in the thread for a notice: ValueError: ")
    assert line.count("\n") == 1


def test_all_threads_of_the_agent_are_of_this_kind() -> None:
    """One that is made in another way would end silently, or with a traceback of many lines."""
    found = [
        path.relative_to(AGENT).as_posix()
        for path in AGENT.rglob("*.py")
        if re.search(r"\bThread\(|(?<!heartbeat\.)\bTimer\(|ThreadPool|run_in_executor", path.read_text())
    ]
    assert found == ["background_io.py"]


def test_finish_does_not_wait_for_a_stalled_file_system() -> None:
    worker, stall = CallQueue("the run directory"), threading.Event()

    def wait() -> None:
        stall.wait()

    worker.submit(wait)
    begin = time.monotonic()
    worker.finish(0.2)
    assert time.monotonic() - begin < 5
    stall.set()
