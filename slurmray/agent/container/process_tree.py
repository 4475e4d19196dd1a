"""The processes below this one: in a container all there are, on a host those of this job alone."""

import fcntl
import os
import signal
import subprocess
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import IO, Any, Callable, Collection, Dict, List, Mapping, Optional, Set, Union

PR_SET_CHILD_SUBREAPER = 36  # linux/prctl.h


def adopt_orphans() -> None:
    """Make this process the parent of orphans below it, which a process 1 is anyway."""
    if os.getpid() != 1:
        import ctypes  # not in every image

        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def lock_folder(folder: str) -> None:
    """Hold a shared lock on a folder until this process ends, so that the node agent can wait for that."""
    fcntl.flock(os.open(folder, os.O_RDONLY), fcntl.LOCK_SH)


def descendants(ended: bool = False) -> "Dict[int, int]":
    """{pid: its session} of all that run; ended: of those that have ended and that nobody has waited for."""
    table = {}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open("/proc/%s/stat" % pid) as file:
                state, parent, _, session = file.read().rpartition(")")[2].split()[:4]
        except (OSError, ValueError):  # it has ended meanwhile
            continue
        table[int(pid)] = int(parent), int(session), state in "ZX"
    found: "Dict[int, int]" = {}
    seen = wanted = {os.getpid()}
    while wanted:
        wanted = {pid for pid, (parent, _, _) in table.items() if parent in wanted} - seen
        seen = seen | wanted
        # A zombie is not alive: where process 1 does not reap, some stay for ever.
        found.update((pid, table[pid][1]) for pid in wanted if table[pid][2] == ended)
    return found


def descendant_names(ended: bool = False) -> "Dict[int, str]":
    """{pid: its name} of each, as the kernel has it."""
    found = {}
    for pid in descendants(ended):
        try:
            with open("/proc/%d/comm" % pid) as file:
                found[pid] = file.read().rstrip("\n")
        except OSError:
            pass
    return found


def kill_descendants(spared: "Collection[int]" = ()) -> None:
    """Kill them until no new one was started meanwhile. spared: sessions that are left alone."""
    foreign: "Set[int]" = set()  # of another user, e.g. what sudo starts
    while True:
        found = {pid for pid, session in descendants().items() if session not in spared} - foreign
        if not found:
            return
        for pid in found:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            except PermissionError:
                foreign.add(pid)
        time.sleep(0.01)


def write_and_close(pipe: "Optional[IO[bytes]]", data: bytes) -> None:
    """Write to the standard input of a child and close it. That the child has ended is seen elsewhere."""
    assert pipe  # noqa: S101 - it was asked for
    try:
        with pipe:
            pipe.write(data)
    except BrokenPipeError:
        pass


class Children:
    """The child processes of the container process, each with a role, e.g. "ray" or "service NAME".

    on_end(role, code) is called for each that has ended; 128 + n stands for signal n. Their end is seen by
    waitpid alone, which also reaps the orphans that a first process inherits.
    """

    def __init__(self, on_end: "Callable[[str, int], None]") -> None:
        self.on_end = on_end
        self.roles: "Dict[int, str]" = {}  # pid -> role
        self._started: "List[subprocess.Popen[bytes]]" = []  # keeps objects alive: reap() does the waiting

    def spawn(
        self,
        role: str,
        argv: "List[str]",
        env: "Mapping[str, str]",
        out: "Union[int, IO[Any], None]" = None,
        err: "Union[int, IO[Any], None]" = None,
        stdin: int = subprocess.DEVNULL,
    ) -> "subprocess.Popen[bytes]":
        """Start a child in a session of its own, so that a signal to its group reaches all of it.

        out, err: standard error of this process where None. OSError where the program cannot be started.
        """
        process = subprocess.Popen(
            argv,
            env=dict(env),
            stdin=stdin,
            stdout=sys.stderr if out is None else out,
            stderr=sys.stderr if err is None else err,
            start_new_session=True,
        )
        self._started.append(process)
        self.roles[process.pid] = role
        return process

    def pid_of(self, role: str) -> "Optional[int]":
        """The process of that role, or None."""
        return next((pid for pid, known in self.roles.items() if known == role), None)

    def kill(self, role: str) -> None:
        """Kill that child and all it has started, which may not end with it."""
        kill_descendants({pid for pid, known in self.roles.items() if known != role})

    def reap(self) -> None:
        """Wait for everything that has ended, orphans included, without blocking."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            role = self.roles.pop(pid, None)
            if role is not None:
                signalled = os.WIFSIGNALED(status)
                self.on_end(role, os.WTERMSIG(status) + 128 if signalled else os.WEXITSTATUS(status))
