"""The child processes of the first process in a container."""

import contextlib
import os
import signal
import subprocess
import sys


class Children:
    """Children by role, and the orphans that a first process inherits."""

    def __init__(self, ended):
        self.ended = ended  # called with (role, code); 128 + n for signal n
        self.roles = {}  # pid -> role: ray | probe | trainer
        self.processes = []  # keeps Popen objects alive; reap() does the waiting

    def spawn(self, role, words, env, out, err=None, stdin=subprocess.DEVNULL):
        """Starts a child in a session of its own, so that a signal to its group reaches all of it."""
        process = subprocess.Popen(
            words, env=env, stdin=stdin, stdout=out, stderr=err or sys.stderr, start_new_session=True
        )
        self.processes.append(process)
        self.roles[process.pid] = role
        return process

    def pid_of(self, role):
        """The process of that role, or None."""
        return next((pid for pid, known in self.roles.items() if known == role), None)

    def kill(self, role):
        """Kills that child and, in a container, all that it has started, which may not end with it."""
        if os.getpid() != 1:
            os.killpg(self.pid_of(role), signal.SIGKILL)
            return
        others = {pid for pid, known in self.roles.items() if known != role}  # each has a session of its own
        found = True
        while found:  # until nothing new has been started meanwhile
            found = False
            for pid in map(int, filter(str.isdigit, os.listdir("/proc"))):
                with contextlib.suppress(ProcessLookupError):
                    if pid != 1 and os.getsid(pid) not in others and is_alive(pid):
                        os.kill(pid, signal.SIGKILL)
                        found = True

    def reap(self):
        """Waits for everything that has ended, orphans included: this is process 1."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            role = self.roles.pop(pid, None)
            if role:
                signalled = os.WIFSIGNALED(status)
                self.ended(role, os.WTERMSIG(status) + 128 if signalled else os.WEXITSTATUS(status))


def is_alive(pid):
    """Whether that process has not ended; one that nobody has waited for yet is still there."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False
