"""Processes that hold memory of the job's GPUs: by nvidia-smi, and whose they are, by /proc."""

import os
import pwd
import re

from .. import command_runner
from .checks.gpu_health import BUSY
from .facts import shares_gpus
from .runtimes.limits import read_cgroups, step_cgroup

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, List, Optional, Tuple

    from .agent_interface import NodeApi

    Gpu = Dict[str, Optional[int]]  # a sample of it: see gpu_samples.py
    # number of the GPU, pid on the host, MiB, name, whether it is the job's (None: not known)
    Process = Tuple[int, int, int, str, Optional[bool]]

TIMEOUT = 20.0  # seconds for nvidia-smi
MOST = 32  # processes of a node
# Without names: users choose them, and one may have a line feed. MiB, or `[N/A]`.
LINE = re.compile(r"(GPU-[\w-]+), (\d{1,10}), (\d{1,9})", re.ASCII)


def read(node: "NodeApi", root: str = "/") -> "List[Process]":
    """The processes, those with most memory first. Empty where nvidia-smi fails. root: for tests."""
    argv = ["nvidia-smi", "--query-compute-apps=gpu_uuid,pid,used_memory", "--format=csv,noheader,nounits"]
    result = command_runner.run(argv, node.env, TIMEOUT, lambda: node.mail.is_stopped, is_logged=False)
    found = [match.groups() for match in map(LINE.fullmatch, result.out.splitlines()) if match]
    rows = [(int(mib), node.gpus.index(uuid), pid) for uuid, pid, mib in found if uuid in node.gpus]
    job, step, _ = step_cgroup(root).partition("/step_")
    owned = {pid: _is_below(job, pid, root) for _, _, pid in rows} if step else {}
    # A container may have left the job's cgroup: then nothing is known of any process.
    is_known = True in owned.values()
    return [
        (gpu, int(pid), mib, _name(pid, root), owned.get(pid) if is_known else None)
        for mib, gpu, pid in sorted(rows, reverse=True)[:MOST]
    ]


def describe_other(node: "NodeApi", processes: "List[Process]", gpus: "List[Gpu]", root: str = "/") -> str:
    """The largest process that is not the job's, if it holds much; "" where jobs share GPUs."""
    if shares_gpus(node.env):
        return ""
    for gpu, pid, mib, name, is_own in processes:
        if is_own is False and mib > BUSY * (gpus[gpu].get("memory_total") or 0):
            text = "GPU %d: %d MiB held by %s (pid %d)" % (gpu, mib, name or "a process", pid)
            return text + _owner(pid, root)
    return ""


def _is_below(cgroup: str, pid: str, root: str) -> "Optional[bool]":
    """Whether a process is in a cgroup below another one; None where that is not known."""
    try:
        return any(line.startswith(cgroup + "/") for line in read_cgroups(pid, root))
    except OSError:  # it has ended, or /proc is mounted with hidepid
        return None


def _name(pid: str, root: str) -> str:
    try:
        with open(os.path.join(root, "proc", pid, "comm"), "rb") as file:
            return _clean(file.read(64).decode("ascii", "replace").strip())
    except OSError:
        return ""


def _owner(pid: int, root: str) -> str:
    try:
        return " of " + _clean(pwd.getpwuid(os.stat(os.path.join(root, "proc/%d" % pid)).st_uid).pw_name)
    except (OSError, KeyError):
        return ""


def _clean(name: str) -> str:
    return re.sub(r"[^\w.:/+-]", "?", name, flags=re.ASCII)[:32]
