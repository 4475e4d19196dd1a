"""Root filesystems of a rehearsal's hosts: the part that they share, and each host's /var and /tmp."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path

_EMPTY_FOLDERS = (
    "dev/mqueue", "dev/net", "dev/pts", "dev/shm", "etc", "home", "mnt", "proc", "root", "run", "sys", "tmp",
    "var", ".old",
)  # fmt: skip
_DEVICES = ("null", "zero", "full", "random", "urandom", "tty", "fuse", "net/tun")
_LINKS = {"ptmx": "pts/ptmx", "fd": "/proc/self/fd", "stdin": "/proc/self/fd/0", "stdout": "/proc/self/fd/1",
          "stderr": "/proc/self/fd/2"}  # fmt: skip
_MOUNTED_FOLDERS = ("usr", "opt", "bin", "sbin", "lib", "lib32", "lib64", "libx32")
_HOST_FOLDERS = (
    "cache", "lib/apptainer/mnt/session", "lib/containers", "lib/docker", "lib/munge", "lib/rehearsal-images",
    "log/munge", "spool/slurmctld", "spool/slurmd",
)  # fmt: skip
_MOUNT_FLAGS = {
    os.ST_NOSUID: "nosuid",
    os.ST_NODEV: "nodev",
    os.ST_NOEXEC: "noexec",
    os.ST_NOATIME: "noatime",
}


def mount(*args: str | Path, cwd: Path | None = None) -> None:
    """Run mount(8)."""
    subprocess.run(["mount", *map(str, args)], check=True, cwd=cwd)


def compose(base: Path, root: Path, etc: Mapping[str, str], devices: Iterable[str]) -> None:
    """Create the hosts' shared root at `base`, from the root filesystem `root`.

    etc: path below /etc -> text. The rest of /etc is copied, except for unreadable files.
    devices: paths below /dev of the declared GPUs.
    """
    base.mkdir()
    mount("--bind", base, base)
    for folder in _EMPTY_FOLDERS:
        (base / folder).mkdir(parents=True)
    for name in _MOUNTED_FOLDERS:
        _mount_read_only(root / name, base / name)
    _devices(base / "dev", devices)
    copy = ["cp", "-dR", "--preserve=mode,timestamps,links", f"{root}/etc/.", str(base / "etc")]
    subprocess.run(copy, check=False, stderr=subprocess.DEVNULL)  # an ordinary user cannot read all files
    shutil.rmtree(base / "etc/cni", ignore_errors=True)  # Podman warns about missing plugins
    (base / "etc/mtab").unlink(missing_ok=True)
    (base / "etc/mtab").symlink_to("../proc/self/mounts")
    for name, content in etc.items():
        path = base / "etc" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        path.write_text(content)
        path.chmod(0o755 if content.startswith("#!") else 0o644)
    key = base / "etc/munge/munge.key"
    key.parent.mkdir(exist_ok=True)
    key.unlink(missing_ok=True)
    key.write_bytes(os.urandom(128))
    key.chmod(0o600)
    key.parent.chmod(0o700)


def create_host_folder(folder: Path) -> None:
    """Create a host's /var and /tmp, which survive its power failure."""
    for name in _HOST_FOLDERS:
        (folder / "var" / name).mkdir(parents=True)
    for name in ("tmp", "var/tmp"):
        (folder / name).mkdir()
        (folder / name).chmod(0o1777)
    (folder / "var/log/munge").chmod(0o700)
    (folder / "var/lib/munge").chmod(0o711)
    (folder / "var/run").symlink_to("/run")


def docker_root(template: Path, target: Path) -> None:
    """Create a Docker data root from a template: layers are shared read-only, the rest is copied."""
    layers = [path for path in (template / "overlay2").iterdir() if path.name != "l"]
    _copy([path for path in template.iterdir() if path.name != "overlay2"], target)
    (target / "overlay2").mkdir()
    _copy([template / "overlay2/l"], target / "overlay2")
    for layer in layers:
        own_layer = target / "overlay2" / layer.name
        (own_layer / "diff").mkdir(parents=True)
        _copy([path for path in layer.iterdir() if path.name != "diff"], own_layer)
        mount("--bind", layer / "diff", own_layer / "diff")
        read_only(own_layer / "diff")


def copy_on_write(folder: Path, source: Path, options: str) -> Path:
    """Mount an overlay of `source`, with its changes in `folder`, and return the mount point."""
    for name in ("lower", "upper", "work", "merged"):
        (folder / name).mkdir(parents=True)
    mount("--rbind", source, folder / "lower")
    stat = source.stat()
    (folder / "upper").chmod(stat.st_mode & 0o7777)
    os.chown(folder / "upper", stat.st_uid, stat.st_gid)
    # Relative paths: a comma or colon in a path would end an option.
    layers = f"lowerdir=lower,upperdir=upper,workdir=work{options}"
    mount("-t", "overlay", "-o", layers, "overlay", "merged", cwd=folder)
    return folder / "merged"


def read_only(path: Path) -> None:
    """Make a bind mount read-only. The kernel requires its current flags (e.g. nosuid) to be repeated."""
    flags = os.statvfs(path).f_flag
    options = ["remount", "bind", "ro", *(name for flag, name in _MOUNT_FLAGS.items() if flags & flag)]
    mount("-o", ",".join(options), path)


def _copy(paths: Iterable[Path], target: Path) -> None:
    subprocess.run(["cp", "-a", *paths, target], check=True)


def _mount_read_only(source: Path, target: Path) -> None:
    if source.is_symlink():
        target.symlink_to(source.readlink())
    elif source.is_dir():
        target.mkdir()
        mount("--rbind", source, target)
        read_only(target)


def _devices(dev: Path, files: Iterable[str]) -> None:
    for name in _DEVICES:
        if Path("/dev", name).exists():
            (dev / name).touch()
            mount("--bind", Path("/dev", name), dev / name)
    for name, target in _LINKS.items():
        (dev / name).symlink_to(target)
    for path in files:  # Slurm requires character devices, but never opens them
        (dev / Path(path).name).touch()
        mount("--bind", "/dev/null", dev / Path(path).name)
