"""What this machine has, and what a rehearsal needs of it."""

from __future__ import annotations

import os
import pwd
import shutil
from pathlib import Path

from slurmray.errors import RehearsalError
from slurmray.rehearsal.images.cache import PATH

# Program -> the package that has it, by Debian's and Ubuntu's names.
_ALWAYS = {"ip": "iproute2", "nsenter": "util-linux", "setpriv": "util-linux", "unshare": "util-linux"}
_SLURM = {"sbatch": "slurm-client", "slurmctld": "slurmctld", "slurmd": "slurmd", "munged": "munge"}
_RUNTIMES = {
    "podman": {"podman": "podman"},
    "docker": {"dockerd": "docker.io", "docker": "docker.io"},
    "none": {},
}
_USER = {"newuidmap": "uidmap", "newgidmap": "uidmap"}
_BUILD = {"mmdebstrap": "mmdebstrap"}
_IDS = (Path("/etc/subuid"), Path("/etc/subgid"))
_RESTRICTED = Path("/proc/sys/kernel/apparmor_restrict_unprivileged_userns")


def cache_folder() -> Path:
    """Return the only folder of the machine that a rehearsal writes to."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "slurmray")


def is_root() -> bool:
    """Tell whether this process is root, and needs no user namespace to boot a cluster."""
    return os.geteuid() == 0


def birth(pid: int) -> int:
    """Return when a process began, in ticks since the machine's boot; 0 when there is none, zombies apart."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0
    return 0 if fields[0] in "ZX" else int(fields[19])


def require(runtime: str, *, own_slurm: bool, builds: bool) -> None:
    """Check that the machine has all that a rehearsal needs; RehearsalError names all that is missing.

    own_slurm: the machine's own Slurm is used, not a suite's. builds: an image or a suite is to be built.
    """
    programs = dict(_ALWAYS)
    if own_slurm:
        programs |= _SLURM
    programs |= _RUNTIMES[runtime]
    if builds:
        programs |= _BUILD
    if not is_root():
        programs |= _USER
    missing = [program for program in programs if not shutil.which(program, path=PATH)]
    sudo = "" if is_root() else "sudo "
    commands = []
    if missing:
        packages = sorted({programs[program] for program in missing})
        commands.append(f"{sudo}apt-get install -y {' '.join(packages)}")
    if not is_root() and (lacking := _without_ids()):
        missing.append(f"subordinate ids of {_user()} in {' and '.join(lacking)}")
        ids = "--add-subuids 100000-165535 --add-subgids 100000-165535"
        commands.append(f"sudo usermod {ids} {_user()}")
    if not is_root() and _RESTRICTED.exists() and _RESTRICTED.read_text().strip() == "1":
        missing.append("leave for ordinary users to make namespaces")
        commands.append(f"sudo sysctl {'.'.join(_RESTRICTED.parts[3:])}=0")
    if missing:
        remedy = " && ".join(commands)
        raise RehearsalError(f"missing on this machine: {', '.join(missing)}; install with: {remedy}")


def _user() -> str:
    return pwd.getpwuid(os.getuid()).pw_name


def _without_ids() -> list[str]:
    names = {_user(), str(os.getuid())}
    return [
        str(file)
        for file in _IDS
        if not file.exists() or not names & {line.split(":")[0] for line in file.read_text().splitlines()}
    ]
