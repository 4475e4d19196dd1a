"""A process outside the task's process tree, which exits when its standard input, the tether, ends.

Slurm signals the descendants of a task, and Podman fails when a signal reaches its short-lived helpers.
Therefore a wrapper outside the tree starts the process, waits for it, and sends its pid and exit code
through a pipe. That works even where process 1 does not reap orphans.
"""

import os
import select
import signal
import subprocess
import time

from .. import background_io, signals

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, List, Optional

KILLED = 137  # exit code where the wrapper could not send one: 128 + SIGKILL
# $0: descriptor for the process's standard output; the wrapper's own is the pipe to this module. At the end
# it kills the rest of its process group, itself included. bash -p: nothing else prints before the pid.
_WRAPPER = "trap : TERM " + signals.NAMES + '; echo $$; "$@" >&"$0"; echo $?; exec >&-; kill -KILL 0'


class DetachedProcess:
    """A running process. output: the descriptor for its standard output; log: for its standard error.

    The exit code is 127 where argv[0] does not exist, as in a shell.
    """

    def __init__(self, argv: "List[str]", env: "Dict[str, str]", output: int, log: int = 2) -> None:
        out = os.dup(output)
        starter = subprocess.Popen(
            ["setsid", "--fork", "/bin/bash", "-p", "-c", _WRAPPER, str(out), *argv],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, env=env, pass_fds=(out,),
        )  # fmt: skip
        os.close(out)
        assert starter.stdin and starter.stdout
        self._starter = starter  # keeps the pipe open
        self._answers = starter.stdout.fileno()
        self._written = b""
        self._code: "Optional[int]" = None
        self._input: "Optional[background_io.PipeWriter]" = background_io.PipeWriter(
            os.dup(starter.stdin.fileno())
        )
        starter.stdin.close()
        starter.wait()  # setsid has forked

    @property
    def session(self) -> int:
        """The session id of wrapper and process; 0 until the wrapper has sent it."""
        first, newline, _ = self._written.partition(b"\n")
        return int(first) if newline else 0

    def send(self, data: bytes) -> None:
        """Write to its standard input without blocking."""
        if self._input:
            self._input.send(data)

    def close_input(self) -> None:
        """Close its standard input, on which the process is to exit."""
        if self._input:
            self._input.close()
        self._input = None

    def poll(self, seconds: float = 0.0) -> "Optional[int]":
        """Wait at most `seconds` for its end; return its exit code, or None while it runs."""
        end = time.monotonic() + seconds
        while self._code is None:
            ready, _, _ = select.select([self._answers], [], [], max(0.0, end - time.monotonic()))
            if not ready:
                return None
            data = os.read(self._answers, 4096)
            self._written += data
            lines = self._written.split(b"\n")
            if len(lines) > 2:
                self._code = int(lines[1])
            elif not data:
                self._code = KILLED
        return self._code

    def end(self, seconds: float) -> None:
        """Close its input, wait at most `seconds` for its end, then kill its session."""
        self.close_input()
        if self.poll(seconds) is None and self.session:
            try:
                os.killpg(self.session, signal.SIGKILL)
            except ProcessLookupError:
                pass
            self.poll(1.0)
