"""`ray start` on one node: preloaded early, and repeated if another process took a leased port."""

import json
import os
import subprocess
import sys

from ... import nodes
from ...errors import JobError
from .. import environment, process_tree, reachability
from . import command, network, ports, preload
from . import environment as ray_environment
from .watch import RayWatch, show_last_lines

TYPE_CHECKING = False
if TYPE_CHECKING:
    import socket
    from typing import IO, Dict, List, Optional

    from ..node_context import NodeContext

MAX_TRIES = 3


class RayProcess:
    """Ray on this node."""

    def __init__(self, context: "NodeContext") -> None:
        self.context = context
        self.watch = RayWatch(context)
        self.version_text = ""
        self.version: "command.Version" = ()
        self.address = ""  # of this node
        self.cluster: "Optional[str]" = None  # on a worker: `host:port` of the GCS
        self.ports: "List[int]" = []
        self.env: "Dict[str, str]" = {}  # of Ray, the trainer, prepare steps and services
        self.preset_env: "Dict[str, str]" = {}  # variables of the preset that depend on the node
        self.gpu_mask: "Dict[str, str]" = {}  # variable that hides the services' GPUs from Ray
        self._tries = 0
        self._lease: "Optional[socket.socket]" = None
        self._input: "Optional[IO[bytes]]" = None  # of the preloaded process, which reads its argv there

    def make_environment(self) -> None:
        """Set `env`, with the job's token if this Ray supports tokens."""
        context = self.context
        settings, job = context.settings, context.job
        token = None
        if ray_environment.uses_token(settings["ray"]["auth"], self.version):
            token = os.path.join(context.folder, "token")
            ray_environment.write_private(token, job["token"])
        elif context.is_head:
            danger = "runs without a token: every user who can connect can run code"
            context.phase("ray", "Ray %s %s" % (self.version_text, danger))
        foreign = [name for name in ray_environment.FOREIGN if name in os.environ or name in context.env]
        if foreign and context.is_head:
            context.phase("ray", "removed from the environment: %s, of another Ray" % ", ".join(foreign))
        env = environment.default_environment(context.user, context.folder)
        env.update(context.env)
        env.update(self.gpu_mask)
        self.env = ray_environment.ray_environment(
            context.folder, env, token, self.version, settings["ray"]["metrics"]
        )

    def preload(self) -> None:
        """Start the process that imports Ray and becomes `ray start`."""
        context, start = self.context, preload.FAST
        if not self.watch.plain_reason:
            reason = preload.reason_for_plain(
                context.settings["ray"]["start"], self.version_text, self.version
            )
            if reason:
                self.watch.use_plain(reason)
        if self.watch.plain_reason:
            start = preload.PLAIN
        env = ray_environment.start_timeouts(context.settings["timeouts"]["ready"])
        env.update(self.env)
        argv = [*context.program("ray"), start]
        self._input = context.children.spawn("ray", argv, env, stdin=subprocess.PIPE).stdin

    def start(self, address: str, cluster: "Optional[str]" = None) -> None:
        """Lease ports and send the preloaded process its argv. cluster: None on the head node."""
        context = self.context
        settings = context.settings
        self.address, self.cluster = address, cluster
        if self._lease:
            self._lease.close()
        self._lease, self.ports = ports.lease_ports(context.attempt_name, self._tries)
        if cluster is None:
            self._take_fixed_ports()
        elif self._tries == 0 and settings["preflight"] != "none":
            self._check_connections(cluster)
        more = self._late_environment()
        self.env.update(more)
        extra = settings["ray"]["args"] + settings["ray"]["worker_args" if cluster else "head_args"]
        if context.group["name"]:
            extra = command.with_resource(extra, "group:" + context.group["name"])
        object_store = command.object_store_size(context.memory)
        cpus, gpus = context.cpus, nodes.ray_gpus(settings, context.rank)
        memory = command.memory_for_tasks(context.memory, object_store)
        if cluster is None:
            head = settings["ray"]["head"]
            cpus = cpus if head["cpus"] is None else head["cpus"]
            memory = memory if head["memory"] is None else head["memory"]
        argv = command.start_command(
            context.name,
            address,
            self.ports,
            cluster,
            self.version,
            context.folder,
            cpus,
            gpus,
            object_store,
            memory,
            extra,
        )
        sys.stderr.write(" ".join(argv) + "\n")
        sys.stderr.flush()
        request = {"argv": argv, "env": more, "folder": context.folder}
        process_tree.write_and_close(self._input, json.dumps(request).encode())
        self.watch.begin(self.ports, argv, self.ports[ports.DASHBOARD])

    @property
    def gcs_address(self) -> str:
        """`host:port` of the GCS."""
        return self.cluster or network.join_host_port(self.address, self.ports[ports.GCS])

    def does_gcs_answer(self) -> bool:
        """Whether the GCS of this head node accepts connections, and is a process of the job."""
        port = self.ports[ports.GCS]
        if network.is_open(self.address, port) and not self.watch.is_port_taken():
            self.watch.has_gcs_answered = port in self.watch.own_ports
        return self.watch.has_gcs_answered

    def ended(self, code: int) -> None:
        """Handle the end of `ray start`: repeat it if another process took a port, else raise a JobError."""
        if not self.watch.is_port_taken():
            show_last_lines(self.context.folder)
            raise JobError("ray", self.watch.end_text("ray start exited with %d" % code))
        self._tries += 1
        if self._tries == MAX_TRIES:
            text = "other processes took the chosen ports %d times. Submit the job again"
            raise JobError("bring_up", text % MAX_TRIES)
        self.make_environment()
        self.preload()
        self.start(self.address, self.cluster)

    def _take_fixed_ports(self) -> None:
        """Replace leased ports with those of the job spec."""
        options = self.context.settings["ray"]
        for field, port, place in (
            ("port", options["port"], ports.GCS),
            ("dashboard_port", options["dashboard_port"], ports.DASHBOARD),
        ):
            if port != "auto":
                self.ports[place] = int(port)
                if not ports.is_free(int(port)):
                    text = "port %s is taken on this node. Set ray.%s to auto or to another port"
                    raise JobError("bring_up", text % (port, field))

    def _check_connections(self, cluster: str) -> None:
        """Check connections from this worker to the head node and back."""
        context, port = self.context, self.ports[ports.REACHABILITY_PORT]
        reachability.accept_once(self.address, port)
        host, gcs_port = network.split_host_port(cluster)
        reachability.check_reachable([("the head node", host, gcs_port)], context.finding)
        context.send({"type": "reachable_at", "address": self.address, "port": port})

    def _late_environment(self) -> "Dict[str, str]":
        """Variables that depend on the addresses of this node and of the head node."""
        context = self.context
        head, port = network.split_host_port(self.gcs_address)
        local = network.local_addresses()
        peers = [head, *context.job["nodes"], *context.peers]
        found = environment.network_environment(self.env, self.address, peers, local)
        facts = {
            "rank": str(context.rank),
            "nodes": str(len(context.ray_nodes)),
            "head": head,
            "ray_port": str(port),
            "interface": network.interface_of(self.address, local),
        }
        self.preset_env = {name: facts[fact] for name, fact in context.settings["preset_env"].items()}
        found.update(self.preset_env)
        if context.settings["ray"]["metrics"]:
            found.update(ray_environment.metrics_environment(self.env, self.ports))
        return found
