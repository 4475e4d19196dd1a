"""FUSE file system with root_squash, like NFS: root is treated as nobody.

usage: root_squash_fs.py FOLDER (mounts it over the folder)
Permissions of root are checked here, for each call, by the caller's uid. Nothing is cached.
"""

import errno
import os
import sys
from typing import Any

import mfusepy as fuse  # type: ignore[import-untyped]

NOBODY = 65534
UTIME_NOW = (1 << 30) - 1  # ns: linux/stat.h


class RootSquashFS(fuse.Operations):  # type: ignore[misc]
    """The files below the folder that is open as descriptor `root`."""

    use_ns = True

    def __init__(self, root: int) -> None:
        self.root = f"/proc/self/fd/{root}"

    def caller(self) -> tuple[int, int]:
        uid, gid, _ = fuse.fuse_get_context()
        return (uid, gid) if uid else (NOBODY, NOBODY)

    def real(self, path: str) -> str:
        """Return the real path; EACCES if the caller must not enter a folder on the way."""
        uid, gid = self.caller()
        here = self.root + "/"
        for name in filter(None, path.split("/")):
            self.check_may_enter(here, uid, gid)
            here = os.path.join(here, name)
        return here

    def check_may_enter(self, folder: str, uid: int, gid: int) -> None:
        stat = os.stat(folder)
        shift = 6 if stat.st_uid == uid else 3 if stat.st_gid == gid else 0
        if not stat.st_mode >> shift & 1:
            raise fuse.FuseOSError(errno.EACCES)

    def own(self, path: str) -> None:
        """Make the caller the owner of a new file."""
        os.chown(path, *self.caller(), follow_symlinks=False)

    def getattr(self, path: str, fh: int | None = None) -> dict[str, Any]:
        stat = os.lstat(self.real(path))
        names = ("st_mode", "st_nlink", "st_uid", "st_gid", "st_size")
        times = {name: getattr(stat, f"{name}_ns") for name in ("st_atime", "st_mtime", "st_ctime")}
        return {name: getattr(stat, name) for name in names} | times

    def readdir(self, path: str, fh: int) -> list[str]:
        return [".", "..", *os.listdir(self.real(path))]

    def readlink(self, path: str) -> str:
        return os.readlink(self.real(path))

    def open(self, path: str, flags: int) -> int:
        return os.open(self.real(path), flags)

    def create(self, path: str, mode: int, fi: Any = None) -> int:
        real = self.real(path)
        descriptor = os.open(real, os.O_RDWR | os.O_CREAT, mode)
        self.own(real)
        return descriptor

    def mkdir(self, path: str, mode: int) -> None:
        real = self.real(path)
        os.mkdir(real, mode)
        self.own(real)

    def read(self, path: str, size: int, offset: int, fh: int) -> bytes:
        return os.pread(fh, size, offset)

    def write(self, path: str, data: bytes, offset: int, fh: int) -> int:
        return os.pwrite(fh, data, offset)

    def truncate(self, path: str, length: int, fh: int | None = None) -> None:
        os.truncate(self.real(path), length)

    def unlink(self, path: str) -> None:
        os.unlink(self.real(path))

    def rmdir(self, path: str) -> None:
        os.rmdir(self.real(path))

    def rename(self, old: str, new: str) -> None:
        os.rename(self.real(old), self.real(new))

    def chmod(self, path: str, mode: int) -> None:
        os.chmod(self.real(path), mode)

    def utimens(self, path: str, times: tuple[int, int]) -> None:
        if UTIME_NOW in times:
            os.utime(self.real(path))
        else:
            os.utime(self.real(path), ns=times)

    def release(self, path: str, fh: int) -> None:
        os.close(fh)


def main() -> None:
    folder = sys.argv[1]
    root = os.open(folder, os.O_PATH)  # before the mount hides it
    no_cache = {f"{kind}_timeout": 0 for kind in ("entry", "attr", "negative")}
    fuse.FUSE(
        RootSquashFS(root),
        folder,
        foreground=True,
        nothreads=True,
        allow_other=True,
        fsname="squashed",
        **no_cache,
    )


if __name__ == "__main__":
    main()
