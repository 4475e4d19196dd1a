"""Stacks of a stalled trainer's processes, as py-spy prints them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from slurmray.agent.container.stacks import find_place

from ..containers import write_agent

# py-spy 0.4.3 about a process that waits (recorded; names of files are other ones).
HEAD = "Process 15603: python3 train.py\nPython v3.11.7 (/usr/bin/python3.11)\n\n"
WAITS = """Thread 15603 (idle): "MainThread"
    Condition.wait (threading.py:327)
    Event.wait (threading.py:629)
    all_reduce (torch/distributed/distributed_c10d.py:2810)
    wrapper (torch/distributed/c10d_logger.py:81)
    train (train.py:8)
    <module> (train.py:10)
"""
READER = """Thread 15646 (idle): "reader"
    reader (hang.py:4)
    Thread.run (threading.py:982)
    Thread._bootstrap (threading.py:1002)
"""
SERVER = """Thread 173 (idle): "MainThread"
    EpollSelector.select (selectors.py:468)
    BaseEventLoop._run_once (asyncio/base_events.py:1884)
    BaseEventLoop.run_forever (asyncio/base_events.py:607)
Thread 376 (idle): "executor_0"
    _worker (concurrent/futures/thread.py:81)
    Thread.run (threading.py:975)
"""
# The thread of an actor's method, and the driver that waits for it.
GET = """Thread 1 (idle): "MainThread"
    get_objects (ray/_private/worker.py:932)
    get (ray/_private/worker.py:2822)
    main (train.py:9)
"""


@pytest.mark.parametrize(
    ("text", "place"),
    [
        (HEAD + WAITS, "all_reduce (distributed_c10d.py:2810)"),
        (HEAD + READER + WAITS, "all_reduce (distributed_c10d.py:2810)"),
        (HEAD + GET, ""),
        (HEAD + GET + READER, "reader (hang.py:4)"),
        (HEAD + SERVER, ""),
        ("", ""),
        ("\0\x1b[31m" * 1000, ""),
        (HEAD + 'Thread 1 (active): "MainThread"\n    f (a b (1).py:7)\n', "f (a b (1).py:7)"),
    ],
)
def test_where_a_process_is(text: str, place: str) -> None:
    assert find_place(text) == place


@pytest.fixture
def trainer() -> Iterator[int]:
    """A Python process of a trainer, as rank 7."""
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, env={"RANK": "7"})
    yield process.pid
    process.kill()
    process.wait()


def run(folder: Path, *pids: int, path: str) -> tuple[str, list[dict[str, object]]]:
    """Run the role; return the evidence, and its messages."""
    write_agent(folder)
    done = subprocess.run(
        [sys.executable, str(folder / "agent"), "stacks", "node1", "3", *map(str, pids)],
        capture_output=True,
        text=True,
        check=True,
        env={"PATH": path},
    )
    messages = [json.loads(line) for line in done.stdout.splitlines()]
    return (folder / "evidence-3.txt").read_text(), messages


def test_the_role(tmp_path: Path, trainer: int) -> None:
    """Of Python processes alone; a py-spy that fails shows why."""
    spy = tmp_path / "bin/py-spy"
    spy.parent.mkdir()
    spy.write_text(f'#!/bin/sh\n[ "$1 $2 $3" = "dump --pid {trainer}" ] && cat <<"EOF"\n{HEAD}{WAITS}EOF\n')
    spy.chmod(0o755)
    path = f"{spy.parent}:/usr/bin:/bin"
    text, (message,) = run(tmp_path, 1, trainer, 2**22 + 1, path=path)
    assert text == f"== rank 7, pid {trainer}\n{HEAD}{WAITS}"
    assert {name: message[name] for name in ("type", "node", "number", "rows", "is_complete")} == {
        "type": "stacks",
        "node": "node1",
        "number": 3,
        "rows": [["rank 7", "all_reduce (distributed_c10d.py:2810)"]],
        "is_complete": True,
    }
    spy.write_text("#!/bin/sh\nprintf 'Error: Permission Denied\\n\\nStack backtrace:\\n' >&2; exit 1\n")
    text, (message,) = run(tmp_path, trainer, path=path)
    assert text == f"== rank 7, pid {trainer}\nError: Permission Denied\n"
    assert message["rows"] == []


def test_without_py_spy(tmp_path: Path, trainer: int) -> None:
    assert not Path(sys.executable).with_name("py-spy").exists()
    text, (message,) = run(tmp_path, trainer, path="/usr/bin:/bin")
    assert "not found" in text
    assert text.endswith("Install py-spy in the image for stacks: pip install py-spy\n")
    assert message["is_complete"] is True
