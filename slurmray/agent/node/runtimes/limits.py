"""The job's cgroup: processes killed in it, and its limits for containers outside it."""

import os

from ..facts import job_memory

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, List, Optional, Sequence

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


def cpu_seconds(root: str = "/") -> "Optional[float]":
    """CPU seconds of the job on this node so far; None where no cgroup counts them."""
    counts = _job_counts("cpuacct", ("cpuacct.usage",), ("cpu.stat",), root)
    if "usage_usec" in counts:
        return counts["usage_usec"] / 1e6
    return counts["cpuacct.usage"] / 1e9 if "cpuacct.usage" in counts else None


def memory_used(root: str = "/") -> "Optional[int]":
    """Bytes of memory of the job on this node; None where no cgroup counts them.

    Without files that the kernel would drop first.
    """
    v1, v2 = ("memory.usage_in_bytes", "memory.stat"), ("memory.current", "memory.stat")
    counts = _job_counts("memory", v1, v2, root)
    used = counts.get("memory.current", counts.get("memory.usage_in_bytes"))
    return None if used is None else used - counts.get("total_inactive_file", counts.get("inactive_file", 0))


def _job_counts(controller: str, v1: "Sequence[str]", v2: "Sequence[str]", root: str) -> "Dict[str, int]":
    """Numbers in files of the job's cgroup, by their names, or by that of a file with a single one.

    controller: of v1. v1, v2: names of files. Empty where the task is in no cgroup of a step.
    """
    counts: "Dict[str, int]" = {}
    try:
        for line in read_cgroups("self", root):
            _, controllers, path = line.split(":", 2)
            job, step, _ = path.partition("/step_")
            if not step or (controllers and controller not in controllers.split(",")):
                continue
            folder = "%s%s" % (controller if controllers else "", job)
            for name in v1 if controllers else v2:
                with open(os.path.join(root, "sys/fs/cgroup", folder.lstrip("/"), name)) as file:
                    for count in file:
                        key, _, value = count.rpartition(" ")
                        counts[key or name] = int(value)
    except (OSError, ValueError):
        pass
    return counts


def allocation_options(node: "NodeApi", runtime: str, root: str = "/") -> "List[str]":
    """Options for the job's CPUs and memory; none where the job has the entire node."""
    options = []
    allowed = _allowed_cpus(root)
    with open(os.path.join(root, "sys/devices/system/cpu/online")) as file:
        online = file.read().strip()
    if allowed and allowed != online:
        options += ["--cpuset-cpus", allowed]
    memory = job_memory(node.env, node.memory)
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
