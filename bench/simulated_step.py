"""Stand-in for srun: one process simulates all node agents of a step, over one pair of pipes.

usage: python -m bench.simulated_step RESULT SECONDS CODE MODE SRUN_ARGUMENT...
Its parent is a real controller. SECONDS: how long the trainer runs. CODE: its exit code.
MODE: see MODES. RESULT: path of a JSON file with the fields of `Result`.
"""

from __future__ import annotations

import json
import os
import select
import sys
import time
import zlib
from pathlib import Path
from typing import Any, NamedTuple

from slurmray.agent.heartbeat import LONGEST
from slurmray.agent.paths import job_folder
from slurmray.agent.wire import codec

# Times of the nodes' heartbeats: evenly spread, which wakes the controller most often; or all at once,
# directly followed by the exit code.
SPREAD, AT_ONCE = MODES = ("spread", "at-once")
WORKERS_PORT = 23010  # arbitrary


class Result(NamedTuple):
    """Measurements of the controller. A share of 1.0 is one CPU that is always busy."""

    start_cpu: float  # CPU seconds of the controller until the trainer started
    start_seconds: float  # from this process's start until the trainer started
    heartbeat_share: float  # CPU seconds per second while the trainer ran
    exit_seconds: float  # from sending the message `exit` until the controller ends the step
    late_seconds: float  # maximum delay of a heartbeat in this process


class Step:
    """All nodes of a step, and the messages that they exchange with the controller."""

    def __init__(self, seconds: float, code: int, mode: str) -> None:
        self.seconds = seconds
        self.code = code
        self.mode = mode
        self.started = time.monotonic()
        self.controller = os.getppid()  # the story execs srun
        self.job: dict[str, Any] = {}
        self.nodes: list[str] = []
        self.heartbeats: list[bytes] = []
        self.is_training = False
        self.is_stdin_closed = False
        self.late_seconds = 0.0
        self._decoder = codec.LineDecoder()
        self._script = zlib.decompressobj()
        self._next = 0  # index of the node whose heartbeat is due next
        self._due = self.started

    def run(self) -> Result:
        """Simulate the job until its end."""
        while not self.is_training:
            if self.is_stdin_closed:
                sys.exit("the controller has ended before the trainer could start")
            self._poll(1.0)
        start_cpu, start_seconds = cpu_seconds(self.controller), time.monotonic() - self.started
        self._due = start = time.monotonic()
        end = start + self.seconds
        while time.monotonic() < end:
            self._poll(min(self._due, end) - time.monotonic())
            self._send_due_heartbeats()
        share = (cpu_seconds(self.controller) - start_cpu) / (time.monotonic() - start)
        exit_sent = time.monotonic()
        if self.mode == AT_ONCE:
            for line in self.heartbeats:
                write(line)
        self._send(self.nodes[0], "exit", code=self.code)
        while not self.is_stdin_closed:
            self._poll(self._due - time.monotonic())
            self._send_due_heartbeats()
        exit_seconds = time.monotonic() - exit_sent
        for node in self.nodes:
            self._send(node, "gone")
        return Result(start_cpu, start_seconds, share, exit_seconds, self.late_seconds)

    def _poll(self, timeout: float) -> None:
        """Handle messages of the controller; wait at most `timeout` seconds for them."""
        ready, _, _ = select.select([0], [], [], max(0.0, timeout))
        if not ready:
            return
        data = os.read(0, 1 << 16)
        if not data:
            self.is_stdin_closed = True
        if not self._script.eof:
            self._script.decompress(data)
            data = self._script.unused_data
        for line in self._decoder.feed(data):
            message = codec.decode(line)
            handler = getattr(self, "_on_" + message["type"], None) if message else None
            if handler:
                handler(message)

    def _on_job(self, message: codec.Message) -> None:
        self.job = message["job"]
        self.nodes = self.job["nodes"]
        folder = job_folder(str(Path.cwd()), message["job"])
        inside = Path(folder, "inside")  # where the controller reads the output
        inside.mkdir(parents=True)
        for name in ("out", "err"):
            (inside / name).write_text("")
        self.heartbeats = [_line(node, "heartbeat", doing="") for node in self.nodes]
        for node in self.nodes:
            self._send(node, "started", step="0")
        for line in self.heartbeats:
            write(line)
        for index, node in enumerate(self.nodes):
            self._send(node, "checked", addresses=[_address(index)], proxy=False, folder=folder)

    def _on_start_ray(self, _message: codec.Message) -> None:
        for node in self.nodes:
            self._send(node, "phase", phase="container", text="none, with /usr/bin/python3")
        self._send(self.nodes[0], "versions", text="Ray 2.60.0, Python 3.11.2")
        self._send(self.nodes[0], "join", address="10.1.0.0:23001")

    def _on_join(self, _message: codec.Message) -> None:
        for index, node in enumerate(self.nodes[1:], 1):
            self._send(node, "reachable_at", address=_address(index), ports=[WORKERS_PORT, WORKERS_PORT + 1])
        self._send(self.nodes[0], "ready")

    def _on_ready(self, _message: codec.Message) -> None:
        self._send(self.nodes[0], "trainer", command="simulated")
        self.is_training = True

    def _on_check_health(self, _message: codec.Message) -> None:
        for node in self.nodes:
            self._send(node, "healthy")

    def _send_due_heartbeats(self) -> None:
        now = time.monotonic()
        self.late_seconds = max(self.late_seconds, now - self._due)
        if self.mode == AT_ONCE:
            if now >= self._due:
                for line in self.heartbeats:
                    write(line)
                self._due += LONGEST
            return
        while now >= self._due:
            write(self.heartbeats[self._next])
            self._next = (self._next + 1) % len(self.heartbeats)
            self._due += LONGEST / len(self.heartbeats)

    @staticmethod
    def _send(node: str, message_type: str, **fields: Any) -> None:
        write(_line(node, message_type, **fields))


def _line(node: str, message_type: str, **fields: Any) -> bytes:
    message: Any = {**fields, "type": message_type}
    return codec.encode_to_controller(message, node)


def _address(index: int) -> str:
    return f"10.1.{index // 256}.{index % 256}"


def write(line: bytes) -> None:
    """Write one message, like srun; blocks while the controller does not read."""
    while line:
        line = line[os.write(1, line) :]


def cpu_seconds(pid: int) -> float:
    """CPU seconds of a process without its children, from proc_pid_stat(5)."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main() -> None:
    result, seconds, code, mode = sys.argv[1:5]
    measured = Step(float(seconds), int(code), mode).run()
    Path(result).write_text(json.dumps(measured._asdict()))


if __name__ == "__main__":
    main()
