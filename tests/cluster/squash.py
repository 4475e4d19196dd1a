"""A file system as a root-squashing NFS server has it: root is nobody. `squash.py FOLDER` puts it over one.

What root may do is decided here for each call, by whom the kernel says it comes from: nothing is remembered.
"""

import errno
import os
import sys
from typing import Any

import mfusepy as fuse  # type: ignore[import-untyped]

NOBODY = 65534


class Squashed(fuse.Operations):  # type: ignore[misc]
    """The files below a folder that is open as `root`."""

    use_ns = True

    def __init__(self, root: int) -> None:
        self.root = f"/proc/self/fd/{root}"

    def real(self, path: str) -> str:
        """The file itself, if the caller may enter each folder on the way to it."""
        uid, gid, _ = fuse.fuse_get_context()
        if uid == 0:
            uid, gid = NOBODY, NOBODY
        here = self.root + "/"
        for name in filter(None, path.split("/")):
            self.may_enter(here, uid, gid)
            here = os.path.join(here, name)
        return here

    def may_enter(self, folder: str, uid: int, gid: int) -> None:
        about = os.stat(folder)
        shift = 6 if about.st_uid == uid else 3 if about.st_gid == gid else 0
        if not about.st_mode >> shift & 1:
            raise fuse.FuseOSError(errno.EACCES)

    def own(self, path: str) -> None:
        """What the caller makes is the caller's."""
        uid, gid, _ = fuse.fuse_get_context()
        os.chown(path, uid, gid, follow_symlinks=False)

    def getattr(self, path: str, fh: int | None = None) -> dict[str, Any]:
        about = os.lstat(self.real(path))
        names = ("st_mode", "st_nlink", "st_uid", "st_gid", "st_size")
        times = {name: getattr(about, f"{name}_ns") for name in ("st_atime", "st_mtime", "st_ctime")}
        return {name: getattr(about, name) for name in names} | times

    def readdir(self, path: str, fh: int) -> list[str]:
        return [".", "..", *os.listdir(self.real(path))]

    def readlink(self, path: str) -> str:
        return os.readlink(self.real(path))

    def open(self, path: str, flags: int) -> int:
        return os.open(self.real(path), flags)

    def create(self, path: str, mode: int, fi: Any = None) -> int:
        real = self.real(path)
        made = os.open(real, os.O_RDWR | os.O_CREAT, mode)
        self.own(real)
        return made

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
        os.utime(self.real(path), ns=times)

    def release(self, path: str, fh: int) -> None:
        os.close(fh)


def main() -> None:
    folder = sys.argv[1]
    root = os.open(folder, os.O_PATH)  # before the mount hides it
    never = {f"{what}_timeout": 0 for what in ("entry", "attr", "negative")}
    fuse.FUSE(
        Squashed(root), folder, foreground=True, nothreads=True, allow_other=True, fsname="squashed", **never
    )


if __name__ == "__main__":
    main()
