"""`ray start` on one node: preloaded early, and repeated if another process took a leased port."""

import json
import os
import subprocess
import sys

from ... import inherited, nodes, parts
from ...job_errors import JobError
from .. import node_address, ports, process_tree, reachability, variables
from ..part import Part
from . import command, fast_start, preload
from .watch import RayWatch, show_last_lines

TYPE_CHECKING = False
if TYPE_CHECKING:
    import socket
    from typing import IO, Dict, Optional

    from ..node_context import NodeContext

MAX_TRIES = 3


class RayProcess(Part):
    """Ray on this node."""

    roles = ("ray",)

    def __init__(self, context: "NodeContext") -> None:
        self.context = context
        self.watch = RayWatch(context)
        self.version_text = ""
        self._env: "Dict[str, str]" = {}  # of the preloaded process
        self._tries = 0
        self._lease: "Optional[socket.socket]" = None
        self._input: "Optional[IO[bytes]]" = None  # of the preloaded process, which reads its argv there

    def write_token(self) -> None:
        """Write the job's token if this Ray supports tokens, and log what is not as it should be."""
        context = self.context
        if context.settings["ray"]["auth"] != "none" and context.ray_version >= variables.TOKEN_SINCE:
            context.token = os.path.join(context.folder, "token")
            with open(os.open(context.token, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
                file.write(context.job["token"])
        elif context.is_head:
            danger = "runs without a token: every user who can connect can run code"
            context.phase("ray", "Ray %s %s" % (self.version_text, danger))
        given = variables.collect(variables.GIVEN, context)
        foreign = [name for name in inherited.FOREIGN if name in given]
        if foreign and context.is_head:
            context.phase("ray", "removed from the environment: %s, of another Ray" % ", ".join(foreign))

    def preload(self) -> None:
        """Start the process that imports Ray and becomes `ray start`."""
        context, wanted = self.context, self.context.settings["ray"]["start"]
        reason = "ray.start is standard"
        if wanted == preload.FAST:
            reason = fast_start.reason_against(context.ray_version, self.version_text)
        self.watch.use_standard(reason)
        start = preload.STANDARD if self.watch.standard_reason else preload.FAST
        self._env = variables.collect(variables.RAY_START, context)
        argv = [*context.program("ray"), start]
        self._input = context.children.spawn("ray", argv, self._env, 1, stdin=subprocess.PIPE).stdin

    def start(self, address: str, cluster: "Optional[str]" = None) -> None:
        """Lease ports and send the preloaded process its argv. cluster: None on the head node."""
        context = self.context
        context.address, context.interfaces = address, node_address.local_addresses()
        if self._lease:
            self._lease.close()
        self._lease, context.ports = ports.lease_ports(context.attempt_name, self._tries)
        if cluster is None:
            self._take_fixed_ports()
        context.gcs = cluster or node_address.join_host_port(address, context.ports[ports.GCS])
        argv = command.start_command(context, cluster)
        sys.stderr.write(" ".join(argv) + "\n")
        sys.stderr.flush()
        more = variables.difference(self._env, variables.collect(variables.RAY, context))
        request = {
            "argv": argv,
            "env": more,
            "folder": context.folder,
            "node": context.name,
            "gcs": context.gcs,
            "may_wait": self._may_wait(),
        }
        if cluster is None:
            gpus = (nodes.ray_gpus(context.settings, rank) for rank in range(len(context.ray_nodes)))
            request["expected"] = dict(zip(context.ray_nodes, gpus))
            request["timeout"] = context.settings["timeouts"]["ready"]
            request["watches_demands"] = parts.is_needed("demands", context.settings)
        # First: Ray may be started before the next line runs.
        self.watch.start(argv)
        process_tree.write(self._input, json.dumps(request).encode() + b"\n")
        if cluster:
            self.confirm_gcs()

    def confirm_gcs(self) -> None:
        """Let the readiness probe begin: the GCS has answered."""
        assert self._input  # noqa: S101 - of the process that got its address
        self._input.close()

    def mark_ready(self) -> None:
        """Write the file for which processes of Ray wait: the cluster is ready."""
        open(os.path.join(self.context.folder, fast_start.READY), "w").close()

    def does_gcs_answer(self) -> bool:
        """Whether the GCS of this head node accepts connections, and is a process of the job."""
        port = self.context.ports[ports.GCS]
        if node_address.is_open(self.context.address, port) and not self.watch.is_port_taken():
            self.watch.has_gcs_answered = port in self.watch.own_ports
        return self.watch.has_gcs_answered

    def child_ended(self, role: str, code: int) -> None:
        """Handle the end of `ray start`: repeat it if another process took a port, else raise a JobError."""
        del role
        if not self.watch.is_port_taken():
            show_last_lines(self.context.folder)
            raise JobError("ray", self.watch.end_text("ray start exited with %d" % code))
        self._tries += 1
        if self._tries == MAX_TRIES:
            message = "other processes took the chosen ports %d times. Submit the job again"
            raise JobError("bring_up", message % MAX_TRIES)
        self.write_token()
        self.preload()
        self.start(self.context.address, None if self.context.is_head else self.context.gcs)

    def _may_wait(self) -> bool:
        """Whether processes of Ray may start later: nothing that begins with the cluster needs them."""
        settings = self.context.settings
        items = settings["prepare"] + settings["services"]
        is_needed = parts.is_needed("ray_job", settings) or settings["ray"]["dashboard_port"] != "auto"
        return not (is_needed or any(item["needs_ray"] for item in items))

    def _take_fixed_ports(self) -> None:
        """Replace leased ports with those of the job spec."""
        options = self.context.settings["ray"]
        for field, port, place in (
            ("port", options["port"], ports.GCS),
            ("dashboard_port", options["dashboard_port"], ports.DASHBOARD),
        ):
            if port != "auto":
                self.context.ports[place] = int(port)
                if not ports.is_free(int(port)):
                    message = "port %s is taken on this node. Set ray.%s to auto or to another port"
                    raise JobError("bring_up", message % (port, field))

    def check_connections(self, cluster: str) -> None:
        """Check connections from this worker to the head node and back, if findings are wanted."""
        context, settings = self.context, self.context.settings
        if settings["preflight"] == "none":
            return
        wanted = [context.ports[ports.REACHABILITY_PORT]]
        if not command.has_worker_ports(settings["ray"]["args"] + settings["ray"]["worker_args"]):
            wanted.append(0)
        listening = [reachability.accept_once(context.address, port) for port in wanted]
        host, gcs_port = node_address.split_host_port(cluster)
        reachability.check_reachable([("the head node", host, gcs_port)], context)
        context.send({"type": "reachable_at", "address": context.address, "ports": listening})
