"""Removes shared memory that killed processes of a job leave in the node's /dev/shm.

Ray kills its workers together with the process that would remove what they made (Python's resource tracker),
also after a trainer that exits with 0.
"""

import os
import re

from .job_folder import TASK

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, Set, Tuple

    Key = Tuple[int, int]  # device and inode

FOLDER = "/dev/shm"
# Those that are of no use once nobody has them mapped: of Python, sem_open(3), CUDA, NCCL and PyTorch. Other
# files may be meant for the user's next job.
NAME = re.compile(r"psm_|sem\.|cuda\.shm\.|nccl-|torch_")


def remove(folder: str) -> None:
    """Remove this user's segments that are newer than a job and used by no process. folder: the job's."""
    segments = _segments(os.stat(os.path.join(folder, TASK)).st_ctime)
    used = _used() if segments else set()
    for key, path in segments.items():
        if key not in used:
            try:
                os.unlink(path)
            except OSError:  # another job of this user has just done so
                pass


def _segments(since: float) -> "Dict[Key, str]":
    """Segments made by this user since then, which no other user can open. Not links: their mode is 0777."""
    segments = {}
    for name in filter(NAME.match, os.listdir(FOLDER)):
        path = os.path.join(FOLDER, name)
        try:
            status = os.lstat(path)
        except OSError:
            continue
        is_own = status.st_uid == os.geteuid() and not status.st_mode & 0o077
        if is_own and min(status.st_ctime, status.st_mtime) >= since:
            segments[status.st_dev, status.st_ino] = path
    return segments


def _used() -> "Set[Key]":
    """Files that processes have mapped or open.

    Processes of others cannot have a private file of this user. Those of this user that nobody may look at,
    e.g. ssh-agent, are no trainers.
    """
    used: "Set[Key]" = set()
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open("/proc/%s/maps" % pid, "rb") as file:
                for line in file:
                    device, inode = line.split(None, 5)[3:5]
                    major, _, minor = device.partition(b":")
                    used.add((os.makedev(int(major, 16), int(minor, 16)), int(inode)))
            for descriptor in os.listdir("/proc/%s/fd" % pid):
                try:
                    status = os.stat("/proc/%s/fd/%s" % (pid, descriptor))
                except FileNotFoundError:
                    continue
                used.add((status.st_dev, status.st_ino))
        except OSError:  # another user's, or it has ended
            continue
    return used
