"""The command line of `ray start` on one node, for the Ray version in the image."""

import os
import re
import sys

from ... import nodes
from ...job_errors import JobError
from .. import ports as port_places

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, List, Optional, Tuple, Union

    from ..node_context import NodeContext

    Version = Tuple[int, ...]  # (major, minor)

IPV6_SINCE = (2, 49)  # Ray's release notes
LABELS_SINCE = (2, 49)  # docs.ray.io, "Use labels to control scheduling"
WORKER_TEMP_DIR_SINCE = (2, 55)  # before, --temp-dir was only for the head node, and workers used its path

MIN_OBJECT_STORE = 75 * 2**20  # with less Ray refuses to start (OBJECT_STORE_MINIMUM_MEMORY_BYTES)
MAX_OBJECT_STORE = 200 * 10**9  # as in Ray (DEFAULT_OBJECT_STORE_MAX_MEMORY_BYTES)
# Where Ray looks for a container's limit: cgroup v1 and v2 (get_system_memory() in ray/_common/utils.py).
MEMORY_LIMITS = ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory.max")

# Options of `ray start` that take a port, and the place of that port in the leased block.
NODE_PORTS = {
    "--node-manager-port": port_places.NODE_MANAGER,
    "--object-manager-port": port_places.OBJECT_MANAGER,
    "--dashboard-agent-listen-port": port_places.AGENT,
    "--dashboard-agent-grpc-port": port_places.AGENT_GRPC,
    "--runtime-env-agent-port": port_places.RUNTIME_ENV,
    "--metrics-export-port": port_places.METRICS,
}
HEAD_PORTS = {"--port": port_places.GCS, "--dashboard-port": port_places.DASHBOARD}


def ray_version() -> "Optional[Tuple[str, Version]]":
    """(text, (major, minor)) of the Ray that this Python imports; None where there is none."""
    version = package_version("ray")
    return (version, version_numbers(version)) if version else None


def package_version(name: str) -> str:
    """The version of an installed package; "" where there is none."""
    # importlib.metadata costs each node 70 ms of CPU, so it is only the fallback.
    pattern = re.compile(re.escape(name) + r"-([^-]+)\.dist-info")
    for path in sys.path:
        try:
            names = os.listdir(path or ".")
        except OSError:
            continue
        for entry in names:
            match = pattern.fullmatch(entry)
            if match:
                return match.group(1)
    from importlib import metadata  # novermin: Ray's own floor holds in containers

    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return ""


def version_numbers(version: str) -> "Version":
    """The first two numbers of a version."""
    return tuple(int(number) for number in re.findall(r"\d+", version)[:2])


def object_store_size(memory: int, shm: str = "/dev/shm") -> int:
    """Size of Ray's object store in bytes: Ray's default, but for the job's memory instead of the host's.

    memory: of the job on this node in MiB; 0: unknown, then that of the host counts.
    """
    total = memory * 2**20 or _host_memory()
    disk = os.statvfs(shm)
    room = disk.f_bavail * disk.f_frsize
    return max(MIN_OBJECT_STORE, min(total * 3 // 10, room * 9 // 10, MAX_OBJECT_STORE))


def memory_for_tasks(
    memory: int, object_store: int, limits: "Tuple[str, ...]" = MEMORY_LIMITS
) -> "Optional[int]":
    """Memory in bytes that Ray's tasks may ask for: the job's without the object store.

    memory: of the job on this node in MiB. None leaves it to Ray: where the job's is unknown (0), or where
    Ray sees a limit of the container. Elsewhere Ray would offer the host's.
    """
    if not memory or any(_read_limit(path) < _host_memory() for path in limits):
        return None
    return max(0, memory * 2**20 - object_store)


def _read_limit(path: str) -> float:
    """A limit in bytes; infinite without a file, or with `max`."""
    try:
        with open(path) as file:
            value = file.read().strip()
    except OSError:
        return float("inf")
    return int(value) if value.isdigit() else float("inf")


def _host_memory() -> int:
    """The host's memory in bytes."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def port_options(places: "Dict[str, int]", ports: "Union[List[int], Dict[int, int]]") -> "List[str]":
    """Options that set ports. places: NODE_PORTS or HEAD_PORTS. ports: port by place."""
    return ["%s=%d" % (name, ports[place]) for name, place in places.items()]


def node_options(cpus: "Optional[int]", gpus: int, ports: "Union[List[int], Dict[int, int]]") -> "List[str]":
    """Options of `ray start` that head and worker nodes share.

    cpus, gpus: for Ray's scheduler. cpus: None lets Ray count those of the host. ports: port by place.
    """
    options = [] if cpus is None else ["--num-cpus=%d" % cpus]
    return [
        *options,
        "--num-gpus=%d" % gpus,
        *port_options(NODE_PORTS, ports),
        # 0: the kernel picks a free port when a worker process starts.
        "--min-worker-port=0",
        "--max-worker-port=0",
    ]


def has_worker_ports(extra: "List[str]") -> bool:
    """Whether the user's options choose the ports of worker processes, which are ephemeral otherwise."""
    return any(option.startswith(("--min-worker-port", "--worker-port-list")) for option in extra)


def start_command(context: "NodeContext", cluster: "Optional[str]") -> "List[str]":
    """argv of `ray start --block`. JobError for an IPv6 address where this Ray has no IPv6.

    cluster: None on the head node, else `host:port` of the GCS. CPUs and GPUs are for Ray's scheduler; Ray
    itself would count those of the host. The user's options are last, to have priority.
    """
    settings, address, version = context.settings, context.address, context.ray_version
    if ":" in address and version < IPV6_SINCE:
        fix = "Use an image with Ray 2.49 or later, or network.family: ipv4 where the nodes have it"
        message = "%s: Ray %d.%d has no IPv6. %s" % (address, version[0], version[1], fix)
        raise JobError("preflight", message)
    object_store = object_store_size(context.memory)
    cpus, memory = context.cpus, memory_for_tasks(context.memory, object_store)
    if cluster is None:
        head = settings["ray"]["head"]
        cpus = cpus if head["cpus"] is None else head["cpus"]
        memory = memory if head["memory"] is None else head["memory"]
        place = ["--head", *port_options(HEAD_PORTS, context.ports)]
    else:
        place = ["--address=" + cluster]
    if cluster is None or version >= WORKER_TEMP_DIR_SINCE:
        place.append("--temp-dir=" + context.folder)
    if context.labels and version >= LABELS_SINCE:
        place.append("--labels-file=" + _write_labels(context))
    extra = settings["ray"]["args"] + settings["ray"]["worker_args" if cluster else "head_args"]
    return [
        *("ray", "start", "--block", "--node-name=" + context.name, "--node-ip-address=" + address),
        "--object-store-memory=%d" % object_store,
        *([] if memory is None else ["--memory=%d" % memory]),
        *node_options(cpus, nodes.ray_gpus(settings, context.rank), context.ports),
        *place,
        *(add_resource(extra, "group:" + context.group["name"]) if context.group["name"] else extra),
    ]


def add_resource(options: "List[str]", name: str) -> "List[str]":
    """Options of `ray start` with 1 of a resource added to those of the last `--resources`, which counts."""
    import json

    given = [option.partition("=")[2] for option in options if option.startswith("--resources=")]
    resources = json.loads(given[-1]) if given else {}
    others = [option for option in options if not option.startswith("--resources=")]
    return [*others, "--resources=" + json.dumps(dict(resources, **{name: 1}))]


def _write_labels(context: "NodeContext") -> str:
    """Write the node's labels to a file, to which the user's --labels adds; return its path."""
    import json

    path = os.path.join(context.folder, "labels")
    with open(path, "w") as file:
        json.dump(context.labels, file)  # which is YAML, too
    return path
