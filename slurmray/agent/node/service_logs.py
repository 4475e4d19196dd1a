"""Logs of this node's services: service-NAME@NODE.log in the run directory.

A service in Ray's container prints into a FIFO in the job's folder, because the container may not have the
run directory, or its user may not write there. The readiness check of each service does so, too. Services
outside Ray's container print into the log itself.
"""

import os
import select

from .. import background_io, paths
from ..job_errors import JobError
from ..nodes import places

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict

    from .agent_interface import NodeApi

READ_SIZE = 65536


class ServiceLogs:
    """Copies from the FIFOs to the logs in a thread, as the run directory may be slow.

    JobError where a log cannot be written.
    """

    def __init__(self, node: "NodeApi") -> None:
        self._logs: "Dict[int, int]" = {}  # descriptor of a FIFO -> of the log
        nodes, ray_nodes = node.job["nodes"], node.settings["ray"]["nodes"]
        may_take_any_place = node.name in node.job["spares"]  # but that of the head node
        for item in node.settings["services"]:
            is_here = node.name in places(item["where"], nodes, ray_nodes)
            if is_here or (may_take_any_place and item["where"] != "head"):
                self._open(node, item["name"])
        self._over, self._waker = os.pipe()
        self._thread = background_io.start("logs of services", self._copy)

    def _open(self, node: "NodeApi", service: str) -> None:
        fifo = os.path.join(node.inside, paths.SERVICE_FIFO + service)
        path = node.service_log_path(service)
        try:
            os.mkfifo(fifo)
            os.chmod(fifo, 0o666)  # noqa: S103 - for any user of the container, as in job_folder.make
            log = paths.own_file(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        except OSError as error:
            message = "cannot make %s: %s. Free space, or set run_dir" % (error.filename, error.strerror)
            raise JobError("preflight", message) from None
        # Also for writing: so it has no end while a service is not running.
        self._logs[os.open(fifo, os.O_RDWR)] = log

    def finish(self, seconds: float) -> None:
        """Copy what is left, but for at most so many seconds. The container has ended."""
        os.close(self._waker)
        self._thread.join(seconds)

    def _copy(self) -> None:
        while True:
            ready, _, _ = select.select([self._over, *self._logs], [], [])
            for fifo in ready:
                if fifo != self._over:
                    try:
                        background_io.write_all(self._logs[fifo], os.read(fifo, READ_SIZE))
                    except Exception as error:  # e.g. a full disk: the services go on
                        background_io.errors.note("logs of services", error)
            if ready == [self._over]:
                return
