"""`container.setup` of the job spec: commands in the container of each node, before Ray starts."""

import os
import time

from .. import heartbeat, paths
from ..job_errors import Unfit

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, List, Optional

    from .node_context import NodeContext

ROLE = "setup"  # of the child process
OUTPUT = "setup-output"  # file in the job's folder
COMMANDS = "setup-commands"  # file in the job's folder: `ps` shows arguments to everybody
# $0: COMMANDS. $1: OUTPUT. The output also goes to the node's log.
SCRIPT = 'set -o pipefail; bash -e "$0" 2>&1 | tee "$1"'
# Types of messages that are handled while the commands run. The others wait.
MEANWHILE = ("stop", "stop_at_limit", "stop_before_restart")


class Setup:
    """Runs the commands. waiting: messages that came meanwhile."""

    def __init__(self, context: "NodeContext") -> None:
        self.context = context
        self.is_running = False
        self.waiting: "List[bytes]" = []
        self._deadline: "Optional[float]" = None  # time.monotonic(); None once it has passed
        self._heartbeat = heartbeat.Timer()

    def start(self, env: "Dict[str, str]") -> None:
        """Start the commands. env: their environment."""
        context, settings = self.context, self.context.settings["container"]
        context.phase("container", "container.setup runs")
        argv = ["bash", "-c", SCRIPT, *(os.path.join(context.folder, name) for name in (COMMANDS, OUTPUT))]
        with open(os.open(argv[3], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            file.write(os.fsencode(settings["setup"]))
        try:
            context.children.spawn(ROLE, argv, env)
        except OSError as error:
            self._fail("%s: %s" % (argv[0], error.strerror), "install it in the image")
        self.is_running = True
        self._deadline = time.monotonic() + settings["setup_timeout"]

    def tick(self) -> None:
        """Send heartbeats while the commands run, and kill them after their timeout."""
        now = time.monotonic()
        if not self.is_running:
            return
        if self._heartbeat.is_due(now):
            self.context.send({"type": "heartbeat", "doing": "container.setup"})
        if self._deadline is not None and now > self._deadline:
            self._deadline = None
            self.context.children.kill(ROLE)

    def ended(self, code: int) -> None:
        """Handle the end of the commands. Raises Unfit after a failure."""
        context = self.context
        self.is_running = False
        if code and self._deadline is None:
            seconds = context.settings["container"]["setup_timeout"]
            self._fail("no end after %d s" % seconds, "raise container.setup_timeout")
        if code:
            lines = paths.last_lines(os.path.join(context.folder, OUTPUT), 1)
            found = "exited with %d: %s" % (code, lines[0] if lines else "no output")
            self._fail(found, "correct it; the node's log has its output")

    def _fail(self, found: str, fix: str) -> None:
        self.context.send(
            {
                "type": "finding",
                "kind": "preflight",
                "check": "container.setup",
                "found": found,
                "wanted": "exit code 0",
                "fix": fix,
            }
        )
        raise Unfit
