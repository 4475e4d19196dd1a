"""`container.setup` of the job spec: commands in the container of each node, before Ray starts.

What they export is the environment of all that runs later. Where they put another Python first in PATH, e.g.
with `conda activate`, the container process starts again with that Python, as its own is the one of Ray.
"""

import json
import os
import sys
import time

from .. import heartbeat, paths
from ..job_errors import JobError, Unfit
from . import variables
from .node_context import RESUME
from .part import Part

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, Dict, List, NoReturn, Optional  # novermin

    from .node_context import NodeContext

ROLE = "container_setup"  # of the child process
OUTPUT = "setup-output"  # file in the job's folder
COMMANDS = "setup-commands"  # file in the job's folder: `ps` shows arguments to everybody
ENVIRONMENT = "setup-environment"  # file in the job's folder: that of the commands at their end
# $0: COMMANDS. $1: OUTPUT, which also goes to the node's log. $2: ENVIRONMENT, also after `exit`, and where
# the commands set a trap of their own. The names of files are in the inner command, which has no arguments,
# so that the commands have none. $1.over appears when tee has written everything. It is awaited for two
# seconds only: a daemon of the commands may have the pipe.
SCRIPT = """rm -f "$1.over"
bash -e -c "trap 'env -0 >$2' EXIT; . $0
case \\$? in 0) env -0 >$2 ;; *) exit ;; esac" "$0" > >(tee "$1"; : >"$1.over") 2>&1; code=$?
for _ in {1..20}; do [[ ! -e $1.over ]] || break; sleep 0.1; done
exit "$code\""""
BASHS_OWN = ("_", "OLDPWD", "PWD", "SHLVL")  # variables that bash sets
# Types of messages that are handled while the commands run. The others wait.
MEANWHILE = ("stop", "stop_at_limit", "stop_before_restart")


class ContainerSetup(Part):
    """Runs the commands. on_end: called after them, with the Python to start again with, or ""."""

    roles = (ROLE,)
    is_busy = False  # the commands run

    def __init__(self, context: "NodeContext", on_end: "Callable[[str], None]") -> None:
        self.context = context
        self._on_end = on_end
        self._env: "Dict[str, str]" = {}
        self._deadline: "Optional[float]" = None  # time.monotonic(); None once it has passed
        self._heartbeat = heartbeat.Timer()

    def start(self, env: "Dict[str, str]") -> None:
        """Start the commands. env: their environment."""
        context, settings = self.context, self.context.settings["container"]
        context.phase("container", "container.setup runs")
        files = (COMMANDS, OUTPUT, ENVIRONMENT)
        argv = ["bash", "-c", SCRIPT, *(os.path.join(context.folder, name) for name in files)]
        with open(os.open(argv[3], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            file.write(os.fsencode(settings["setup"]))
        try:
            context.children.spawn(ROLE, argv, env)
        except OSError as error:
            self._fail("%s: %s" % (argv[0], error.strerror), "install it in the image")
        self.is_busy = True
        self._env = env
        self._deadline = time.monotonic() + settings["setup_timeout"]

    def holds(self, kind: str) -> bool:
        return self.is_busy and kind not in MEANWHILE

    def tick(self) -> None:
        """Send heartbeats while the commands run, and kill them after their timeout."""
        now = time.monotonic()
        if not self.is_busy:
            return
        if self._heartbeat.is_due(now):
            self.context.send({"type": "heartbeat", "doing": "container.setup"})
        if self._deadline is not None and now > self._deadline:
            self._deadline = None
            self.context.children.kill(ROLE)

    def child_ended(self, role: str, code: int) -> None:
        """Handle the end of the commands. Raises Unfit after a failure."""
        del role
        context = self.context
        if context.deadline is not None:
            return
        self.is_busy = False
        if code and self._deadline is None:
            seconds = context.settings["container"]["setup_timeout"]
            self._fail("no end after %d s" % seconds, "raise container.setup_timeout")
        if code:
            lines = paths.last_lines(os.path.join(context.folder, OUTPUT), 1)
            found = "exited with %d: %s" % (code, lines[0] if lines else "no output")
            self._fail(found, "correct it; the node's log has its output")
        context.setup_env = self._changes()
        self._on_end(self._other_python())

    def _changes(self) -> "Dict[str, Optional[str]]":
        """The variables that the commands have set, and None for those that they have unset."""
        path = os.path.join(self.context.folder, ENVIRONMENT)
        try:
            with open(path, "rb") as file:
                entries = file.read().decode("utf-8", "surrogateescape").split("\0")
        except FileNotFoundError:
            self._fail("exited with 0 before its end", "it must not exec, nor exit with a trap of its own")
        os.unlink(path)
        pairs = (entry.partition("=") for entry in entries)
        env = {name: value for name, equals, value in pairs if equals}
        changes: "Dict[str, Optional[str]]" = dict.fromkeys(self._env.keys() - env.keys())
        changes.update(variables.difference(self._env, env))
        # isidentifier: not functions that bash has exported.
        return {name: changes[name] for name in changes if name.isidentifier() and name not in BASHS_OWN}

    def _other_python(self) -> str:
        """The Python with which the container process has to start again; "" for none."""
        name = self.context.settings["container"]["python"]
        env = variables.collect(variables.GIVEN, self.context)
        before, after = (paths.find_program(name, given.get("PATH", "")) for given in (self._env, env))
        if after != before:
            return after
        return sys.executable if "PYTHONPATH" in self.context.setup_env else ""  # Ray may be there

    def _fail(self, found: str, fix: str) -> "NoReturn":
        self.context.send_finding("preflight", "container.setup", found, "exit code 0", fix)
        raise Unfit


def start_again(context: "NodeContext", python: str, messages: "List[bytes]", rest: bytes) -> None:
    """Replace this process by one that has another Python, and the environment of the commands.

    It handles these messages, and continues with the input after `rest`. JobError.
    """
    context.phase("container", "container.setup has activated %s" % python)
    path = os.path.join(context.folder, RESUME)
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(b"\n".join([json.dumps(context.setup_env).encode(), *messages, rest]))
    argv = [python, "-I", os.path.join(context.folder, "agent"), "container", context.name]
    try:
        os.execve(python, argv, variables.collect(variables.GIVEN, context))
    except OSError as error:
        raise JobError("image", "%s: %s" % (python, error.strerror)) from error
