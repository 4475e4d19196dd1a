"""Facts about this node and the job's share of it."""

import os
import re

from .. import paths
from ..inherited import LOGIN_SESSION
from . import job_folder

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, List, Mapping, Set

LABEL = re.compile("[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?")  # that Ray accepts: as in Kubernetes


def user_name() -> str:
    """The name of this user, or the uid if it has none."""
    return paths.user_name(os.getuid())


def shares_gpus(env: "Mapping[str, str]") -> bool:
    """Whether Slurm shares the GPUs of this step among jobs: gres/shard and gres/mps."""
    return "SLURM_SHARDS_ON_NODE" in env or "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE" in env


def drop_foreign_session(env: "Dict[str, str]") -> "Dict[str, str]":
    """The environment without the variables of LOGIN_SESSION that are not valid on this node.

    With them Podman 4.6 and later fails: `lstat /run/user/1000: no such file or directory`.
    """
    folder, bus = (env.get(name) for name in LOGIN_SESSION)
    foreign: "Set[str]" = set()
    if folder is not None and not job_folder.is_own_folder(os.path.realpath(folder)):
        foreign.update(LOGIN_SESSION)
    if bus and bus.startswith("unix:path=") and not os.path.exists(_bus_path(bus)):
        foreign.add("DBUS_SESSION_BUS_ADDRESS")
    return {name: value for name, value in env.items() if name not in foreign}


def _bus_path(address: str) -> str:
    """The socket of an address such as `unix:path=/run/user/1000/bus,guid=1f`."""
    return address[len("unix:path=") :].partition(";")[0].partition(",")[0]


def job_memory(env: "Mapping[str, str]", charged: int) -> int:
    """Memory of the job on this node in MiB, from Slurm's variables; 0: unknown.

    Where the job has all of its nodes' memory, e.g. with `slurm.mem: 0`, Slurm sets none. charged: MiB of a
    node on average, which then counts. A node may have less.
    """

    def number(name: str) -> int:
        value = env.get(name, "")
        return int(value) if value.isdigit() else 0

    given = (
        number("SLURM_MEM_PER_NODE")
        + number("SLURM_MEM_PER_CPU") * number("SLURM_CPUS_ON_NODE")
        + number("SLURM_MEM_PER_GPU") * number("SLURM_GPUS_ON_NODE")
    )
    return given or min(charged, os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") >> 20)


def resolved_addresses(name: str) -> "List[str]":
    """Addresses of the node's name, or else of this host's name, in the resolver's order."""
    import socket

    flags = socket.AI_ADDRCONFIG | socket.AI_V4MAPPED
    for host in (name, os.uname().nodename):
        try:
            entries = socket.getaddrinfo(host, None, 0, socket.SOCK_STREAM, 0, flags)
        except (OSError, UnicodeError):
            continue
        return list(dict.fromkeys(str(entry[4][0]) for entry in entries))
    return []


def all_addresses(name: str) -> "List[str]":
    """Addresses of the node's name, then those of this host's interfaces (for network.interface)."""
    from ..hosts import reachable_addresses

    return list(dict.fromkeys(resolved_addresses(name) + reachable_addresses()))


def topology_labels(env: "Mapping[str, str]", node: str) -> "Dict[str, str]":
    """The label of the switch or block next to the node, e.g. {"slurm-topology/switch": "leaf1"}.

    env: Slurm's variables. {} where Slurm knows no topology, or where the name is no label of Ray: several
    switches are `leaf[1-2]`.
    """
    # `core.leaf1.node7` and `switch.switch.node`. After a switch with dots in its name, the node's differs.
    kinds = env.get("SLURM_TOPOLOGY_ADDR_PATTERN", "").split(".")
    names = env.get("SLURM_TOPOLOGY_ADDR", "").split(".", len(kinds) - 1)
    if not 1 < len(kinds) == len(names) or names[-1] != node:
        return {}
    kind, name = kinds[-2], names[-2]
    return {"slurm-topology/" + kind: name} if LABEL.fullmatch(kind) and LABEL.fullmatch(name) else {}
