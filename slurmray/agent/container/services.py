"""The services of one node: starts them, waits until each is ready, and restarts them."""

import json
import os

from .. import paths
from ..job_errors import JobError
from . import variables
from .readiness_check import NOT_READY
from .stage import Stage, move_text_to_file

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import List, Set

    from .node_context import NodeContext
    from .stage import Item


# Script of a service outside Ray's container: ends when its standard input does, as the container does. $1 is
# the submit folder. POSIX shell, as the image may have no bash. Only the service gets the job's variables.
SERVICE_SCRIPT = """exec 3<&0 </dev/null
(
	%s
	cd "$1" || exit
	exec %s
) 3<&- &
service=$!
(
	while read -r _; do :; done
	trap : TERM
	kill -TERM 0
	sleep 2
	kill -KILL 0
) <&3 &
exec 3<&-
trap : TERM
wait "$service"
code=$?
if kill -0 "$service" 2>/dev/null; then # a signal ended the wait
	wait "$service"
	code=$?
fi
exit "$code"
"""


class Services(Stage):
    """Starts the services of a stage, waits until each is ready, and restarts them.

    items: this node's services with this `needs_ray`, as in the settings, by name.
    """

    error_kind = "service"

    def __init__(self, context: "NodeContext", name: str, needs_ray: bool) -> None:
        super().__init__(context, name)
        self.kinds = ("service-with-ray", "ready-with-ray") if needs_ray else ("service", "ready")
        own = context.own_items(context.settings["services"])
        if context.is_replacement and context.runtime == "pyxis":  # steps of services get no new nodes
            own = [item for item in own if not item.get("image")]
        self.items = {item["name"]: item for item in own if item["needs_ray"] == needs_ray}
        self.restarts = dict.fromkeys(self.items, 0)
        self.waiting: "Set[str]" = set()  # names of services that are not ready yet

    def begin(self) -> None:
        """Start all services."""
        self.waiting = set(self.items)
        for name in self.items:
            self._start(name)
        self._check_all_ready()

    def child_ended(self, kind: str, name: str, code: int) -> None:
        """Handle the end of a service in this container, or of a readiness check."""
        if kind == self.kinds[0]:
            self.on_service_ended(name, code)
        elif code == NOT_READY:
            message = "service %s is not ready after %s s. See its log, or raise its ready.timeout"
            raise self._error(name, message % (name, self.items[name]["ready"]["timeout"]))
        elif code:
            message = "the readiness check of service %s exited with %d. The service's log has its output"
            raise self._error(name, message % (name, code))
        else:
            self.waiting.discard(name)
            self._check_all_ready()

    def _error(self, name: str, message: str) -> JobError:
        return JobError("service", message, paths.service_log(name, self.context.name))

    def open_output(self, name: str) -> int:
        """As in Stage: of the service's FIFO. Not blocking, as the node agent may have ended."""
        path = os.path.join(self.context.folder, paths.SERVICE_FIFO + name)
        return os.open(path, os.O_WRONLY | os.O_NONBLOCK)

    def roles(self) -> "List[str]":
        """Roles of the services as child processes, the last one first."""
        return ["%s %s" % (self.kinds[0], name) for name in reversed(list(self.items))]

    def _start(self, name: str) -> None:
        """Start a service, and its readiness check."""
        context, item = self.context, self.items[name]
        env = variables.collect(variables.SERVICE, context, item)
        context.phase("services", "%s starts" % name)
        if item["host"] or item.get("image"):
            write_script(context, item)
        else:
            self.spawn(self.kinds[0], name, item["run"], env)
        if name not in self.waiting:  # restarted after it had been ready
            return
        if not item.get("ready"):
            self.waiting.discard(name)
        elif context.children.find_pid("%s %s" % (self.kinds[1], name)) is None:
            path = os.path.join(context.folder, "ready-" + name)  # not an argument, which `ps` shows
            with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
                json.dump(item["ready"], file)
            self.spawn(self.kinds[1], name, [*context.program("ready"), path], env)

    def _check_all_ready(self) -> None:
        if not self.waiting:
            self.send_done()

    def on_service_ended(self, name: str, code: int) -> None:
        """Restart a service that has ended, or end the job, or continue without it."""
        context, item = self.context, self.items[name]
        message = "service %s exited with %d" % (name, code)
        if self.restarts[name] < item["restarts"]:
            self.restarts[name] += 1
            count = "%d of %d" % (self.restarts[name], item["restarts"])
            context.phase("services", "%s on %s: restart %s" % (message, context.name, count))
            self._start(name)
        elif context.deadline is not None:  # Slurm signals some services during the grace period
            context.phase("services", "%s on %s while the job is being ended" % (message, context.name))
        elif item["on_end"] == "fail" or name in self.waiting:
            raise self._error(name, message + ". Its log has the output")
        else:
            context.phase("services", "%s on %s; the job continues" % (message, context.name))


def write_script(context: "NodeContext", item: "Item") -> None:
    """Write the script of a service outside this container, which the node agent then runs.

    item: as in the settings.
    """
    import shlex

    env = variables.collect(variables.OUTSIDE_SERVICE, context, item)
    exports = "umask %04o\n" % context.children.umask + variables.export_lines(env)
    # Beside the script, whose path is another one in a container. For any user of the image.
    name = "run-" + item["name"]
    argv = move_text_to_file(item["run"], os.path.join(context.folder, name), 0o644)
    command = " ".join(map(shlex.quote, argv))
    if argv is not item["run"]:
        command = 'bash "${0%/*}/"' + shlex.quote(name)
    script = SERVICE_SCRIPT % (exports, command)
    path = os.path.join(context.folder, "new-" + item["name"])
    with open(path, "wb") as file:
        file.write(os.fsencode(script))
    os.chmod(path, 0o644)  # others cannot enter the parent folder
    os.rename(path, os.path.join(context.folder, "begin-" + item["name"]))
