"""Cgroups of a rehearsal. Unlike everything else, they do not end with its namespaces."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from slurmray.errors import RehearsalError
from slurmray.rehearsal.machine import start_time

_ROOTS = ("/sys/fs/cgroup", "/sys/fs/cgroup/unified")  # the second one on machines with both v1 and v2
_REQUIRED = ("cpuset", "memory", "freezer")  # what task/cgroup and proctrack/cgroup need of cgroup v1
_INHERITED = ("cpuset.cpus", "cpuset.mems")  # empty in a new cgroup, which then accepts no process


def pid_namespace() -> str:
    """Return the number of this process's PID namespace: containers on one machine may share its cgroups."""
    return re.sub(r"\D", "", str(Path("/proc/self/ns/pid").readlink()))


def controllers() -> list[str]:
    """Return the cgroup v1 controllers for hosts; RehearsalError if Slurm needs a missing one."""
    mounted = sorted(_own_v1())
    if missing := [name for name in _REQUIRED if name not in mounted]:
        raise RehearsalError(
            f"jobs cannot be confined here: {', '.join(missing)} of cgroup v1 is not mounted; boot with "
            "systemd.unified_cgroup_hierarchy=0"
        )
    return mounted


def create(rehearsal: str, host: str, names: Sequence[str]) -> list[Path]:
    """Create a host's root cgroup for each of these controllers, and return the folders."""
    created = []
    for parent in map(_own_v1().__getitem__, names):
        for folder in (parent / rehearsal, parent / rehearsal / host):
            folder.mkdir(exist_ok=True)
            for setting in _INHERITED:
                if (folder / setting).exists():
                    (folder / setting).write_text((folder.parent / setting).read_text())
        created.append(parent / rehearsal / host)
    return created


def remove_stale() -> None:
    """Remove the cgroups of ended rehearsals of this process's PID namespace."""
    match = re.search("^0::/?(.*)$", Path("/proc/self/cgroup").read_text(), re.MULTILINE)
    own_folders = [Path(root, match[1] if match else "") for root in _ROOTS] + list(_own_v1().values())
    for top in (top for folder in own_folders for top in folder.glob(f"slurmray-{pid_namespace()}-*")):
        if not start_time(int(re.sub(".*-", "", top.name))):
            for folder, _, _ in os.walk(top, topdown=False):
                with suppress(OSError):  # another process has removed it meanwhile
                    Path(folder).rmdir()


def _own_v1() -> dict[str, Path]:
    """Return controller -> folder of this process's cgroup, for controllers with a mount of their own."""
    lines = re.findall(r"^[1-9]\d*:(\w+):/?(.*)$", Path("/proc/self/cgroup").read_text(), re.MULTILINE)
    folders = {name: Path("/sys/fs/cgroup", name, path) for name, path in lines}
    return {name: folder for name, folder in folders.items() if folder.is_dir()}
