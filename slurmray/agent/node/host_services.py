"""Services outside Ray's container: on the host, or in a container with another image."""

import os
import time

from .. import paths
from . import detached_process

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, List, Tuple

    from .agent_interface import NodeApi
    from .runtime_interface import Runtime

STOP_EACH = 1.0  # seconds between stopping one service and the next
STOP_ALL = 2.0  # seconds for all services


class HostServices:
    """Starts a service when the container process has written its script, FOLDER/inside/begin-NAME.

    The script ends the service when its standard input ends. This process holds the other end of that tether.
    """

    def __init__(self, node: "NodeApi", runtime: "Runtime") -> None:
        self._node = node
        self._runtime = runtime
        # name -> image; "": on the host
        self._images: "Dict[str, str]" = {
            item["name"]: item.get("image") or ""
            for item in node.settings["services"]
            if item.get("host") or item.get("image")
        }
        self._running: "Dict[str, detached_process.DetachedProcess]" = {}

    def poll(self) -> "List[Tuple[str, int]]":
        """Start services that have a script; return (name, exit code) of ended ones. Never blocks."""
        ended = []
        for name, image in self._images.items():
            if name in self._running:
                code = self._running[name].poll()
                if code is not None:
                    self._running.pop(name).close_input()
                    ended.append((name, code))
            elif os.path.exists(os.path.join(self._node.inside, "begin-" + name)):
                code = self._start(name, image)
                if code:
                    ended.append((name, code))
        return ended

    def stop(self) -> None:
        """Stop services in reverse order, STOP_EACH apart, in at most STOP_ALL."""
        due = time.monotonic() + STOP_ALL
        for name in reversed(list(self._images)):
            if name in self._running:
                self._running[name].close_input()
                self._running[name].poll(min(STOP_EACH, max(0.0, due - time.monotonic())))
        for service in self._running.values():
            service.end(0)  # for a container only its client; Runtime.remove() ends the container
        self._running = {}

    def _start(self, name: str, image: str) -> int:
        """Start a service; return 0, or an exit code if it cannot be started."""
        node = self._node
        script = os.path.join(node.inside, "service-" + name)
        try:
            os.rename(os.path.join(node.inside, "begin-" + name), script)
            if image:
                argv, env = self._runtime.service_argv(name, image, script), node.env
            else:
                argv = ["/bin/sh", script, node.env["SLURM_SUBMIT_DIR"]]
                env = dict(node.env, **{paths.FOLDER_VARIABLE: node.folder})
            with open(node.service_log_path(name), "ab", opener=paths.own_file) as log:
                self._running[name] = detached_process.DetachedProcess(argv, env, log.fileno(), log.fileno())
        except OSError as error:
            node.log("cannot start service %s: %s" % (name, error))
            return 127
        return 0
