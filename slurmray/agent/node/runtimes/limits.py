"""The job's cgroup: processes killed in it, and its limits for containers outside it."""

import os

from ..facts import job_memory

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import List

    from ..agent_interface import NodeApi


def step_cgroup(root: str = "/") -> str:
    """The last line of /proc/self/cgroup about the task's step, as v1's lines come before v2's; "" for none.

    By the step's component: the job's own is job_ID or, with cgroup v2 since Slurm 26.05, its SLUID, unless
    cgroup.conf has CgroupJobIdPaths=yes. Slurm's src/plugins/cgroup/v1/cgroup_v1.c and v2/cgroup_v2.c:
    v1 /slurm[_NODE]/uid_UID/job_ID/step_N[/task_N]
    v2 /system.slice/[NODE_]slurmstepd.scope/JOB/step_N/user/task_N
    """
    try:
        lines = [line for line in read_cgroups("self", root) if "/step_" in line]
    except OSError:
        return ""
    return lines[-1] if lines else ""


def read_cgroups(pid: str, root: str = "/") -> "List[str]":
    """The lines of /proc/PID/cgroup (cgroups(7)). OSError where there is no such process."""
    with open(os.path.join(root, "proc", pid, "cgroup")) as file:
        return file.read().splitlines()


def oom_kills(root: str = "/") -> int:
    """Processes of the task's step that the kernel has killed as memory ran out; 0 where it does not say.

    Source: Linux, admin-guide/cgroup-v2.rst and cgroup-v1/memory.rst. v2 counts also those in cgroups below;
    v1, since Linux 4.13, only those of the cgroup itself.
    """
    try:
        for line in read_cgroups("self", root):
            _, controllers, path = line.split(":", 2)
            before, step, name = path.partition("/step_")
            if not step or controllers not in ("memory", ""):
                continue
            file = "sys/fs/cgroup/memory%s/memory.oom_control" % path
            if not controllers:
                file = "sys/fs/cgroup%s/memory.events" % (before + step + name.partition("/")[0])
            with open(os.path.join(root, file)) as counts:
                return int(dict(count.split() for count in counts).get("oom_kill", 0))
    except (OSError, ValueError):
        pass
    return 0


def allocation_options(node: "NodeApi", runtime: str, root: str = "/") -> "List[str]":
    """Options for the job's CPUs and memory; none where the job has the entire node."""
    options = []
    allowed = _allowed_cpus(root)
    with open(os.path.join(root, "sys/devices/system/cpu/online")) as file:
        online = file.read().strip()
    if allowed and allowed != online:
        options += ["--cpuset-cpus", allowed]
    memory = job_memory(node.env)
    if memory:
        options += ["--memory", "%dm" % memory]
    if options:
        node.phase("container", "%s leaves the job's cgroup, so it gets %s" % (runtime, " ".join(options)))
    return options


def _allowed_cpus(root: str) -> str:
    """CPUs of this process, e.g. 0-3,8."""
    with open(os.path.join(root, "proc/self/status")) as file:
        for line in file:
            name, _, value = line.partition(":")
            if name == "Cpus_allowed_list":
                return value.strip()
    return ""
