"""Child processes and their descendants: starts, reaps and kills them."""

import fcntl
import os
import signal
import subprocess
import sys
import time

from .. import background_io

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import IO, Any, Callable, Collection, Dict, List, Mapping, Optional, Set, Union

PR_SET_CHILD_SUBREAPER = 36  # linux/prctl.h


def adopt_orphans() -> None:
    """Make this process the parent of its orphaned descendants, as process 1 is anyway."""
    if os.getpid() != 1:
        import ctypes  # some images lack it

        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def lock_folder(folder: str) -> None:
    """Hold a shared lock on a folder until this process ends. The node agent waits for its release."""
    fcntl.flock(os.open(folder, os.O_RDONLY), fcntl.LOCK_SH)


def descendants(ended: bool = False) -> "Dict[int, int]":
    """{pid: session id} of running descendants; ended: of zombies instead."""
    table = {}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open("/proc/%s/stat" % pid) as file:
                state, parent, _, session = file.read().rpartition(")")[2].split()[:4]
        except (OSError, ValueError):  # it has just ended
            continue
        table[int(pid)] = int(parent), int(session), state in "ZX"
    sessions: "Dict[int, int]" = {}
    seen = wanted = {os.getpid()}
    while wanted:
        wanted = {pid for pid, (parent, _, _) in table.items() if parent in wanted} - seen
        seen = seen | wanted
        # Zombies do not run: where process 1 does not reap orphans, they stay forever.
        sessions.update((pid, table[pid][1]) for pid in wanted if table[pid][2] == ended)
    return sessions


def descendant_names(ended: bool = False) -> "Dict[int, str]":
    """{pid: command name} of descendants; ended: as in descendants()."""
    names = {}
    for pid in descendants(ended):
        try:
            with open("/proc/%d/comm" % pid) as file:
                names[pid] = file.read().rstrip("\n")
        except OSError:
            pass
    return names


def kill_descendants(spared: "Collection[int]" = ()) -> None:
    """Kill all descendants, until no new one has started meanwhile. spared: session ids to leave alone."""
    foreign: "Set[int]" = set()  # of another user, e.g. what sudo starts
    while True:
        pids = {pid for pid, session in descendants().items() if session not in spared} - foreign
        if not pids:
            return
        for pid in pids:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            except PermissionError:
                foreign.add(pid)
        time.sleep(0.01)


def write(pipe: "Optional[IO[bytes]]", data: bytes) -> None:
    """Write to the standard input of a child. A child that has ended is handled elsewhere."""
    assert pipe  # noqa: S101 - opened with stdin=PIPE
    try:
        background_io.write_all(pipe.fileno(), data)
    except BrokenPipeError:
        pass


def write_and_close(pipe: "Optional[IO[bytes]]", data: bytes) -> None:
    """Write to the standard input of a child and close it."""
    write(pipe, data)
    assert pipe  # noqa: S101
    pipe.close()


class Children:
    """The child processes of the container process, each with a role, e.g. "ray" or "service NAME".

    on_end(role, code) is called for each that has ended; code 128 + n means signal n. Only reap() waits, with
    waitpid, so that it also gets the orphans that process 1 adopts.
    """

    def __init__(self, on_end: "Callable[[str, int], None]") -> None:
        self.on_end = on_end
        self.roles: "Dict[int, str]" = {}  # pid -> role
        self.umask = 0o022  # of the children
        self._started: "List[subprocess.Popen[bytes]]" = []  # kept, as Popen.__del__ waits

    def spawn(
        self,
        role: str,
        argv: "List[str]",
        env: "Mapping[str, str]",
        out: "Union[int, IO[Any], None]" = None,
        err: "Union[int, IO[Any], None]" = None,
        stdin: int = subprocess.DEVNULL,
    ) -> "subprocess.Popen[bytes]":
        """Start a child in a new session, so that a signal to its process group reaches its descendants.

        out, err: None for the standard error of this process. OSError where the program cannot be started.
        """
        own = os.umask(self.umask)  # Popen has no such option before Python 3.9
        try:
            process = subprocess.Popen(
                argv,
                env=dict(env),
                stdin=stdin,
                stdout=sys.stderr if out is None else out,
                stderr=sys.stderr if err is None else err,
                start_new_session=True,
            )
        finally:
            os.umask(own)
        self._started.append(process)
        self.roles[process.pid] = role
        return process

    def find_pid(self, role: str) -> "Optional[int]":
        """Pid of the child with that role, or None."""
        return next((pid for pid, known in self.roles.items() if known == role), None)

    def send_signal(self, role: str, name: str, send: "Callable[[int, int], None]" = os.killpg) -> bool:
        """Send a signal, e.g. TERM, to the process group of that child. Return False if there is none."""
        pid = self.find_pid(role)
        if pid is not None:
            send(pid, getattr(signal, "SIG" + name))
        return pid is not None

    def kill(self, role: str) -> None:
        """Kill that child and its descendants, which may not end with it."""
        kill_descendants({pid for pid, known in self.roles.items() if known != role})

    def reap(self) -> None:
        """Reap all ended children, including orphans, without blocking."""
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
