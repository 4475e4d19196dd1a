"""Root filesystems of Debian suites, made by mmdebstrap without touching this machine's packages."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

from slurmray import local_commands
from slurmray.errors import RehearsalError
from slurmray.rehearsal.images import cache as store
from slurmray.rehearsal.machine import PATH

# Packages of a compute node and of slurmctld, without any that a site may lack, for example jq. The agent
# needs python3, checks.same_commit needs git. Since trixie, Docker's client is a separate package; unlike a
# name, a pattern may match nothing.
HOST = [
    *("slurmctld", "slurmd", "slurm-client", "munge"),
    *("podman", "crun", "netavark", "uidmap", "docker.io", "?exact-name(docker-cli)"),
    *("iproute2", "util-linux", "mount", "procps", "git", "python3"),
]

# A suite's Release file can outlive its date on a mirror that is a snapshot.
_MMDEBSTRAP = [
    *("mmdebstrap", "--mode=root", "--variant=essential", "--skip=output/dev"),
    '--aptopt=Acquire::Check-Valid-Until "false"',
    *(f"--dpkgopt=path-exclude=/usr/share/{folder}/*" for folder in ("doc", "man", "locale", "info")),
]


def command(suite: str, packages: Sequence[str], hooks: Sequence[str] = ()) -> list[str]:
    """Return mmdebstrap's command line for a minimal Debian of `suite`, without its output path."""
    included = [f"--include={package}" for package in packages]
    return [*_MMDEBSTRAP, *included, *(f"--customize-hook={hook}" for hook in hooks), suite]


def bootstrap(argv: Sequence[str], path: Path) -> None:
    """Run mmdebstrap's command line `argv`; `path` becomes a tar file if it ends in .tar, else a folder.

    The files belong to root; for an ordinary user, to the root of `cache.as_root`. That root can enter a home
    that is closed to others, which the root of mmdebstrap's unshare mode cannot.
    RehearsalError has mmdebstrap's error.
    """
    # Same packages, same bytes: reproducible-builds.org/specs/source-date-epoch.
    env = {"SOURCE_DATE_EPOCH": "0", "TMPDIR": str(path.parent)}
    store.call([*store.isolated(), *argv, str(path)], f"Debian {argv[-1]} could not be built", env)


def root(cache: Path, suite: str, log: Callable[[str], None], more: Sequence[str] = ()) -> Path:
    """Return a folder with the root filesystem of `suite` (bookworm, trixie, sid, …).

    Includes Slurm, munge, Podman, Docker and Python. more: further packages. About 450 MB; takes 30 s the
    first time. RehearsalError if the mirror does not have the suite, or packages cannot be downloaded.
    """
    argv = command(suite, [*HOST, *more])

    def build(path: Path) -> None:
        log(f"building a Debian {suite} with Slurm (once, about a minute)")
        bootstrap(argv, path)

    return store.build_once(cache, f"root-{suite}-{store.key(argv)}", build, log)


def hosts_root(cache: Path, suite: str | None, log: Callable[[str], None]) -> Path:
    """Return the root filesystem with the hosts' programs: a suite's, or the machine's if suite is None.

    On a machine with Slurm 23.11 (Ubuntu 24.04) it is bookworm's: there every job waits with InvalidAccount.
    """
    if not suite and slurm_major(Path("/")) == 23:
        log("with this machine's Slurm 23.11 jobs wait for an account: using Debian bookworm's Slurm")
        suite = "bookworm"
    return root(cache, suite, log) if suite else Path("/")


def slurm_major(root: Path) -> int:
    """Return the major version of the Slurm in a root filesystem: 22 for 22.05."""
    chroot = shutil.which("chroot", path=PATH) or "chroot"  # an ordinary user's PATH lacks /usr/sbin
    result = local_commands.run([*store.as_root(), chroot, str(root), "/usr/sbin/slurmctld", "-V"])
    if result.returncode != 0:
        raise RehearsalError(f"slurmctld does not run: {result.stderr.strip()}")
    return int(result.stdout.split()[1].split(".")[0])
