"""Reads files, never more than a limit.

`read` and `read_own` are for files that others may have written or replaced: they never block. The others
wait for a FIFO that the user named.
"""

from __future__ import annotations

import errno
import os
import stat
import sys
from collections.abc import Callable
from pathlib import Path

MAX_INPUT = 16 << 20  # bytes of a configuration file, a template, or a job's events
MAX_LOG = 1 << 30  # bytes of a log that is read as a whole
NOT_REGULAR = "is no regular file"
FOREIGN = "is another user's"
LINK = "is a symbolic link"


def too_large(limit: int) -> str:
    """Return why a file is not read that has more than `limit` bytes."""
    return f"is larger than {limit >> 20} MiB"


def may_exist(path: Path, check: Callable[[Path], bool] = lambda path: path.exists()) -> bool:
    """Whether a path passes a check of Path, or the user may not look: using it then fails."""
    try:
        return check(path)
    except PermissionError:  # Python 3.14 returns False, for other errors, too
        return True
    except OSError:  # e.g. a name that is too long
        return False


def read(path: Path, limit: int = MAX_INPUT) -> bytes:
    """Return what a regular file has, or the one that a link names. OSError, also if it has more bytes."""
    return _read(path, 0, 0, None, limit)


def read_given(path: Path, limit: int = MAX_INPUT) -> bytes:
    """Return what a file has that the user named; it may be a FIFO: `render <(...)`. Otherwise as `read`."""
    with path.open("rb") as file:
        data = file.read(limit + 1)
    if len(data) > limit:
        raise OSError(errno.EFBIG, too_large(limit), str(path))
    return data


def read_end(path: str, last: int) -> bytes:
    """Return at most the last bytes of a file or FIFO that the user named; - is standard input. OSError."""
    if path == "-" and sys.stdin is None:
        raise OSError(errno.EBADF, "is closed", path)
    with sys.stdin.buffer if path == "-" else Path(path).open("rb") as file:
        if file.seekable():
            file.seek(max(0, file.seek(0, os.SEEK_END) - last))
        data = b""
        while part := file.read(last):
            data = (data + part)[-last:]
    return data


def read_own(path: Path, start: int = 0, last: int | None = None, limit: int = MAX_LOG) -> bytes:
    """Return what a regular file of this user has. OSError for a link, for another user's, or too many bytes.

    start: first byte. last: at most so many bytes, from the end.
    """
    return _read(path, os.O_NOFOLLOW, start, last, limit)


def _read(path: Path, flags: int, start: int, last: int | None, limit: int) -> bytes:
    try:
        # O_NONBLOCK: a FIFO without a writer would block here.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC | flags)
    except OSError as error:
        if error.errno == errno.ELOOP and flags:
            raise OSError(errno.ELOOP, LINK, str(path)) from None
        raise
    except ValueError as error:  # a NUL in it
        raise OSError(errno.EINVAL, str(error), str(path)) from None
    try:
        status = os.fstat(descriptor)
        if stat.S_ISDIR(status.st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, NOT_REGULAR, str(path))
        if flags and status.st_uid != os.geteuid():
            raise PermissionError(errno.EPERM, FOREIGN, str(path))
        first = start if last is None else max(0, status.st_size - last)
        data = b""
        if status.st_size - first <= limit:
            with os.fdopen(descriptor, "rb", closefd=False) as file:
                file.seek(first)
                data = file.read(limit + 1)  # the file may grow
    finally:
        os.close(descriptor)
    if max(status.st_size - first, len(data)) > limit:
        raise OSError(errno.EFBIG, too_large(limit), str(path))
    return data
