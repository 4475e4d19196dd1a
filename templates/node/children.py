"""The child processes of the first process in a container."""

import contextlib
import os
import subprocess
import sys

import below


def tell(pipe, data):
    """Writes those bytes to the standard input of a child, and closes it."""
    with contextlib.suppress(BrokenPipeError), pipe:  # that it has ended is seen elsewhere
        pipe.write(data)


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
        """Kills that child and all that it has started, which may not end with it."""
        # Each has a session of its own.
        below.kill({pid for pid, known in self.roles.items() if known != role})

    def reap(self):
        """Waits for everything that has ended, orphans included."""
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
