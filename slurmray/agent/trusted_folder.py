"""Opens a folder in which no other user can replace what this user makes.

It is often below one where others can make files, too, e.g. a sticky /scratch. So a path that exists is
looked at before it is used, and names are relative to folders that are open.
"""

import errno
import os
import stat

from . import paths

# Passes through folders that cannot be listed. With O_DIRECTORY it also mounts what autofs has there.
PASS = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC
OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
ALL_USERS = ["0", "0", str(2**32 - 1)]  # user_namespaces(7): the initial namespace has the users of the host


class UntrustedError(OSError):
    """Others could replace what is in a folder. strerror: which one, and why."""


def open_folder(place: str, submit_dir: str, is_made: bool = True) -> int:
    """Open a folder to make others in it, with their names relative to it. OSError.

    The submit folder and those around it are not questioned: who can write there can change the trainer, too.
    is_made: make what is missing.
    """
    place = os.path.normpath(place)
    is_below = (place + "/").startswith(submit_dir.rstrip("/") + "/")
    path = submit_dir if is_below else "/"
    names = [name for name in os.path.relpath(place, path).split("/") if name != "."]
    folder = os.open(path, PASS)
    for name in names:
        parent, path = folder, os.path.join(path, name)
        try:
            status = os.lstat(name, dir_fd=parent)
        except FileNotFoundError:
            if not is_made:
                raise
            try:
                os.mkdir(name, 0o755, dir_fd=parent)
            except FileExistsError:
                pass  # another job has just made it
            status = os.lstat(name, dir_fd=parent)
        is_link = stat.S_ISLNK(status.st_mode)
        # Others can have made it where they can make files, and in the last one they are not to be trusted.
        is_checked = is_below or name is names[-1] or os.fstat(parent).st_mode & (stat.S_ISVTX | stat.S_IWOTH)
        if is_checked and is_link:
            _require_own(parent, status, path)
        folder = os.open(name, PASS | (0 if is_link else os.O_NOFOLLOW), dir_fd=parent)
        status = os.fstat(folder)
        if is_checked:
            _require_own(folder, status, path)
        if name is names[-1]:
            _require_closed(status, path)
        os.close(parent)
    return folder


def _require_own(folder: int, status: os.stat_result, path: str) -> None:
    """Raise UntrustedError unless an entry belongs to this user or root. folder: to make a file in."""
    owner = status.st_uid
    if owner in (0, os.geteuid()) or owner in (_unknown_user(), paths.probe_owner(folder)):
        return
    message = "%s belongs to %s, who could change the job's files"
    raise UntrustedError(errno.EPERM, message % (path, paths.user_name(owner)))


def _unknown_user() -> int:
    """In a container of pyxis, which has only this user: what others are there, also root; -1 elsewhere."""
    with open("/proc/self/uid_map") as users:
        if users.read().split() == ALL_USERS:
            return -1
    with open("/proc/sys/kernel/overflowuid") as number:
        return int(number.read())


def _require_closed(status: os.stat_result, path: str) -> None:
    """See that others cannot rename what this user makes in a folder; UntrustedError where they can.

    Older versions made `slurmray-runs` with the umask, so writable for a group: it gets the sticky bit.
    Others who have run directories there keep them.
    """
    if not status.st_mode & OTHERS_WRITE or status.st_mode & stat.S_ISVTX:
        return
    try:
        os.chmod(path, stat.S_IMODE(status.st_mode) | stat.S_ISVTX)
    except OSError:  # a mount with fixed modes, or a folder of root
        if status.st_uid == 0 != os.geteuid():
            message = "%s: others can rename what is in it (mode %04o)"
            raise UntrustedError(errno.EPERM, message % (path, stat.S_IMODE(status.st_mode))) from None
