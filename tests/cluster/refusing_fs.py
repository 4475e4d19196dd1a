"""FUSE file system that refuses writes as a network file system or a quota does, for a while.

usage: refusing_fs.py FOLDER FILE (mounts it over the folder)
FILE has the errno of write(2); while it does not exist, writes succeed.
"""

import os
import sys
from pathlib import Path

import mfusepy as fuse  # type: ignore[import-untyped]
from root_squash_fs import RootSquashFS  # type: ignore[import-not-found]


class RefusingFS(RootSquashFS):  # type: ignore[misc]
    """The files below the folder that is open as descriptor `root`, for their owner."""

    def __init__(self, root: int, refusal: Path) -> None:
        super().__init__(root)
        self.refusal = refusal

    def caller(self) -> tuple[int, int]:
        uid, gid, _ = fuse.fuse_get_context()
        return uid, gid

    def write(self, path: str, data: bytes, offset: int, fh: int) -> int:
        if self.refusal.exists():
            raise fuse.FuseOSError(int(self.refusal.read_text()))
        return int(super().write(path, data, offset, fh))


def main() -> None:
    folder, refusal = sys.argv[1:]
    root = os.open(folder, os.O_PATH)  # before the mount hides it
    no_cache = {f"{kind}_timeout": 0 for kind in ("entry", "attr", "negative")}
    fuse.FUSE(
        RefusingFS(root, Path(refusal)), folder, foreground=True, nothreads=True, allow_other=True, **no_cache
    )


if __name__ == "__main__":
    main()
