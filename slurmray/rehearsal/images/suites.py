"""Root filesystems of Debian suites, made by mmdebstrap without touching this machine's packages."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

from slurmray import process
from slurmray.errors import RehearsalError
from slurmray.rehearsal.images import cache as store

# Packages of a compute node and of slurmctld, and none that a site might lack, for example jq. python3 is for
# the agent, git for checks.same_commit.
# From trixie on Docker's client is a package of its own; a pattern may match nothing, a name may not.
_HOST = [
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
    """Return mmdebstrap's command line for a minimal Debian of `suite`, without the path it writes to."""
    included = [f"--include={package}" for package in packages]
    return [*_MMDEBSTRAP, *included, *(f"--customize-hook={hook}" for hook in hooks), suite]


def bootstrap(argv: Sequence[str], path: Path) -> None:
    """Run `argv`, as `command` made it: `path` becomes a tar if it ends in .tar, else a folder.

    The files belong to root; an ordinary user's folder to the root that `cache.as_root` maps. A home that is
    closed to others lets in that root, but not the one of mmdebstrap's own unshare mode.
    RehearsalError says what mmdebstrap missed.
    """
    # Same packages, same bytes: reproducible-builds.org/specs/source-date-epoch.
    env = {"SOURCE_DATE_EPOCH": "0", "TMPDIR": str(path.parent)}
    store.call([*store.contained(), *argv, str(path)], f"Debian {argv[-1]} could not be built", env)


def root(cache: Path, suite: str, say: Callable[[str], None], more: Sequence[str] = ()) -> Path:
    """Return a folder with the root filesystem of `suite` (bookworm, trixie, sid, …).

    It has Slurm, munge, Podman, Docker and Python. more: further packages. About 450 MB; 30 s the first time.
    RehearsalError for a suite that the mirror does not have, or when packages cannot be fetched.
    """
    argv = command(suite, [*_HOST, *more])

    def build(path: Path) -> None:
        say(f"building a Debian {suite} with Slurm (once, about a minute)")
        bootstrap(argv, path)

    return store.once(cache, f"root-{suite}-{store.key(argv)}", build, say)


def hosts_root(cache: Path, suite: str | None, say: Callable[[str], None]) -> Path:
    """Return where the hosts' programs come from: a suite's root, or with None the machine's own.

    With Slurm 23.11 (Ubuntu 24.04) every job of a rehearsal waits with InvalidAccount: bookworm's then.
    """
    if not suite and slurm_major(Path("/")) == 23:
        say("this machine's Slurm 23.11 lets jobs wait for an account: Debian bookworm's takes its place")
        suite = "bookworm"
    return root(cache, suite, say) if suite else Path("/")


def slurm_major(root: Path) -> int:
    """Return the first number of the Slurm in a root: 22 for 22.05."""
    chroot = shutil.which("chroot", path=store.PATH) or "chroot"  # an ordinary user's PATH lacks /usr/sbin
    done = process.run([*store.as_root(), chroot, str(root), "/usr/sbin/slurmctld", "-V"])
    if done.returncode != 0:
        raise RehearsalError(f"slurmctld does not run: {done.stderr.strip()}")
    return int(done.stdout.split()[1].split(".")[0])
