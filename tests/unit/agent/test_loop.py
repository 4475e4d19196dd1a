"""The loop of the agent's programs, in a process of its own, as it takes over that one's signals."""

from __future__ import annotations

import json
import subprocess
import sys

HANG = 20  # seconds

PROGRAM = """
import json, os, signal, threading
from slurmray.agent.loop import Loop

seen = []
turns = Loop(seen.append)
turns.catch(signal.SIGTERM, lambda: seen.append("stop"))
pipes = {name: os.pipe() for name in ("first", "second")}

for name in reversed(sorted(pipes)):
    turns.add(pipes[name][0], lambda data, name=name: seen.append(name + " " + data.decode()))
for name in sorted(pipes):
    os.write(pipes[name][1], b"data")
seen.append(turns.turn(None))
for number in (signal.SIGUSR1, signal.SIGTERM, signal.SIGTSTP):  # the last one does not stop the process
    os.kill(os.getpid(), number)
seen.append(turns.turn(None))
os.close(pipes["first"][1])
turns.turn(None)
seen.append(turns.turn(0))
threading.Timer(0.1, turns.wake).start()
seen.append(turns.turn(None))
print(json.dumps(seen))
"""


def test_data_signals_and_other_threads_begin_a_turn() -> None:
    argv = [sys.executable, "-c", PROGRAM]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=HANG, check=True)
    assert json.loads(done.stdout) == [
        *("second data", "first data", True),  # in the order in which they were added
        *("USR1", "stop", False),
        "first ",
        *(False, False),
    ]
