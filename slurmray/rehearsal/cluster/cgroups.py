"""The cgroups of a rehearsal, the one thing that does not end with the namespaces."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from slurmray.errors import RehearsalError
from slurmray.rehearsal.machine import birth

_ROOTS = ("/sys/fs/cgroup", "/sys/fs/cgroup/unified")  # the second one where there are both v1 and v2
_SLURM = ("cpuset", "memory", "freezer")  # what task/cgroup and proctrack/cgroup need of cgroup v1
_COPIED = ("cpuset.cpus", "cpuset.mems")  # a new cgroup has none, and takes no process then


def pid_namespace() -> str:
    """Return the number of this process's PID namespace: containers on one machine may share its cgroups."""
    return re.sub(r"\D", "", str(Path("/proc/self/ns/pid").readlink()))


def parent(namespace: str, first_process: int) -> str:
    """Return the name of a rehearsal's cgroup, below that of the process which booted it.

    namespace: the PID namespace in which first_process is the rehearsal's.
    """
    return f"slurmray-{namespace}-{first_process}"


def controllers() -> list[str]:
    """Return the controllers of cgroup v1 that hosts can have; RehearsalError where Slurm lacks one."""
    found = sorted(_own_v1())
    if missing := [name for name in _SLURM if name not in found]:
        raise RehearsalError(
            f"jobs cannot be confined here: {', '.join(missing)} of cgroup v1 is not mounted; boot with "
            "systemd.unified_cgroup_hierarchy=0"
        )
    return found


def make(rehearsal: str, host: str, names: Sequence[str]) -> list[Path]:
    """Make a cgroup of each of these controllers for a host, to be its root, and return their folders."""
    made = []
    for above in map(_own_v1().__getitem__, names):
        for folder in (above / rehearsal, above / rehearsal / host):
            folder.mkdir(exist_ok=True)
            for setting in _COPIED:
                if (folder / setting).exists():
                    (folder / setting).write_text((folder.parent / setting).read_text())
        made.append(above / rehearsal / host)
    return made


def sweep() -> None:
    """Remove the cgroups of rehearsals that have ended, of this process's PID namespace alone."""
    own = re.search("^0::/?(.*)$", Path("/proc/self/cgroup").read_text(), re.MULTILINE)
    own_folders = [Path(root, own[1] if own else "") for root in _ROOTS] + list(_own_v1().values())
    for top in (top for folder in own_folders for top in folder.glob(f"slurmray-{pid_namespace()}-*")):
        if not birth(int(re.sub(".*-", "", top.name))):
            for folder, _, _ in os.walk(top, topdown=False):
                with suppress(OSError):  # another sweep was faster
                    Path(folder).rmdir()


def _own_v1() -> dict[str, Path]:
    """Return controller -> folder of this process's cgroup, of those that have a mount of their own."""
    lines = re.findall(r"^[1-9]\d*:(\w+):/?(.*)$", Path("/proc/self/cgroup").read_text(), re.MULTILINE)
    folders = {name: Path("/sys/fs/cgroup", name, path) for name, path in lines}
    return {name: folder for name, folder in folders.items() if folder.is_dir()}
