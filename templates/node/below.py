"""The processes below this one: in a container all there are, on a host those of this job alone."""

import contextlib
import fcntl
import os
import signal
import time

SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER of linux/prctl.h


def adopt():
    """Makes this process the parent of orphans below it, which a process 1 is anyway."""
    if os.getpid() != 1:
        import ctypes  # not in every image

        ctypes.CDLL(None).prctl(SUBREAPER, 1, 0, 0, 0)


def hold(folder):
    """Locks a folder until this process ends, so that the task of the node can wait for that."""
    fcntl.flock(os.open(folder, os.O_RDONLY), fcntl.LOCK_SH)


def processes(ended=False):
    """{pid: its session} of all that run; ended: of those that do not, and that nobody has waited for yet."""
    table = {}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError), open(f"/proc/{pid}/stat") as file:
            state, parent, _, session = file.read().rpartition(")")[2].split()[:4]
            table[int(pid)] = int(parent), int(session), state in "ZX"
    found, wanted = {}, {os.getpid()}
    while wanted:
        wanted = {pid for pid, (parent, _, _) in table.items() if parent in wanted} - found.keys()
        found.update((pid, table[pid]) for pid in wanted)
    return {pid: session for pid, (_, session, has_ended) in found.items() if has_ended == ended}


def names(ended=False):
    """{pid: its name} of each, as the kernel has it."""
    found = {}
    for pid in processes(ended):
        with contextlib.suppress(OSError), open(f"/proc/{pid}/comm") as file:
            found[pid] = file.read().rstrip("\n")
    return found


def kill(spared=()):
    """Kills them, until nothing new has been started meanwhile. spared: sessions that are left alone."""
    foreign = set()  # of another user, as what sudo starts
    while True:
        found = {pid for pid, session in processes().items() if session not in spared} - foreign
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
