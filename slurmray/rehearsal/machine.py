"""Programs, subordinate ids and settings that a rehearsal needs on this machine."""

from __future__ import annotations

import os
import pwd
import shutil
from pathlib import Path
from typing import Literal

from slurmray.errors import RehearsalError

Runtime = Literal["podman", "docker", "none"]
# Folders of packaged programs. The caller's PATH may lack sbin, or may have wrappers in front.
PATH = "/usr/sbin:/usr/bin:/sbin:/bin:/usr/local/sbin:/usr/local/bin"
# Program -> its package in Debian and Ubuntu.
_ALWAYS = {"ip": "iproute2", "nsenter": "util-linux", "setpriv": "util-linux", "unshare": "util-linux"}
_SLURM = {"sbatch": "slurm-client", "slurmctld": "slurmctld", "slurmd": "slurmd", "munged": "munge"}
RUNTIMES: dict[Runtime, dict[str, str]] = {
    "podman": {"podman": "podman"},
    "docker": {"dockerd": "docker.io", "docker": "docker.io"},
    "none": {},
}
_USER = {"newuidmap": "uidmap", "newgidmap": "uidmap"}
_BUILD = {"mmdebstrap": "mmdebstrap"}
_IDS = (Path("/etc/subuid"), Path("/etc/subgid"))
_RESTRICTED = Path("/proc/sys/kernel/apparmor_restrict_unprivileged_userns")


def cache_folder() -> Path:
    """Return the folder for images and root filesystems, the only one that a rehearsal leaves files in."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "slurmray")


def is_root() -> bool:
    """Return whether this process is root, and can boot a cluster without a user namespace."""
    return os.geteuid() == 0


def start_time(pid: int) -> int:
    """Return a process's start time in clock ticks since boot; 0 if it has ended, also for a zombie."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0
    return 0 if fields[0] in "ZX" else int(fields[19])


def require(runtime: Runtime, *, own_slurm: bool, builds: bool) -> None:
    """Check the machine's programs and settings; RehearsalError lists all that is missing, with a command.

    own_slurm: the hosts use the machine's Slurm, not a suite's. builds: an image or a suite will be built.
    """
    programs = {**_ALWAYS, **(_SLURM if own_slurm else {}), **RUNTIMES[runtime]}
    programs |= {**(_BUILD if builds else {}), **({} if is_root() else _USER)}
    missing = [program for program in programs if not shutil.which(program, path=PATH)]
    sudo = "" if is_root() else "sudo "
    commands = []
    if missing:
        packages = sorted({programs[program] for program in missing})
        commands.append(f"{sudo}apt-get install -y {' '.join(packages)}")
    if not is_root() and (lacking := _files_without_ids()):
        missing.append(f"subordinate ids of {_user()} in {' and '.join(lacking)}")
        ids = "--add-subuids 100000-165535 --add-subgids 100000-165535"
        commands.append(f"sudo usermod {ids} {_user()}")
    if not is_root() and _RESTRICTED.exists() and _RESTRICTED.read_text().strip() == "1":
        missing.append("permission for ordinary users to create user namespaces")
        commands.append(f"sudo sysctl {'.'.join(_RESTRICTED.parts[3:])}=0")
    if missing:
        fix = " && ".join(commands)
        raise RehearsalError(f"missing on this machine: {', '.join(missing)}; install with: {fix}")


def _user() -> str:
    return pwd.getpwuid(os.getuid()).pw_name


def _files_without_ids() -> list[str]:
    names = {_user(), str(os.getuid())}
    return [
        str(file)
        for file in _IDS
        if not file.exists() or not names & {line.split(":")[0] for line in file.read_text().splitlines()}
    ]
