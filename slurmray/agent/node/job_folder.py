"""The folder of a job's attempt on one node: for its owner alone, on the node's own disk.

task     the node agent: its pid and start time
inside/  what the containers see of it, at the folder's own path: the agent; the trainer's output, `out` and
         `err`
"""

import os

from .. import paths
from ..errors import JobError
from . import processes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Optional

    from .api import NodeApi
    from .runtimes.base import Runtime

TASK = "task"
INSIDE = "inside"


def make(node: "NodeApi", agent: str) -> str:
    """Make it. agent: the agent's text, for the container process and its children.

    JobError where that is not possible, for example where a job with the same number still uses it.
    """
    from .. import loader

    folder = paths.job_folder(node.settings["temp_dir"], node.job)
    _remove_dead(folder)
    try:
        os.mkdir(folder, 0o700)
    except OSError as error:
        fix = "Remove it if no job uses it, or set" if isinstance(error, FileExistsError) else "Set"
        message = "cannot make %s: %s. %s ray.temp_dir" % (folder, error.strerror, fix)
        raise JobError("preflight", message) from None
    try:
        with open(os.path.join(folder, TASK), "w") as file:
            file.write("%d %s\n" % (os.getpid(), _start_time(os.getpid())))
        inside = os.path.join(folder, INSIDE)
        os.mkdir(inside)
        os.chmod(inside, 0o777)  # noqa: S103 - whoever the container runs as; the folder above keeps others out
        for name in ("out", "err"):
            path = os.path.join(inside, name)
            os.mkfifo(path)
            os.chmod(path, 0o666)  # noqa: S103
        loader.write_program(os.path.join(inside, "agent"), agent)
    except OSError as error:
        remove_tree(folder)
        message = "cannot write to %s: %s. Free space, or set ray.temp_dir" % (folder, error.strerror)
        raise JobError("preflight", message) from None
    return folder


def scratch(node: "NodeApi") -> str:
    """The TMPDIR of pulls and builds, as Podman leaves much there when it is interrupted. Not made here."""
    return os.path.join(node.env.get("TMPDIR") or "/var/tmp", node.container_name)


def remove(node: "NodeApi", runtime: "Optional[Runtime]") -> bool:
    """Remove the job's folder and scratch folder; whether the former is gone."""
    if is_own_folder(scratch(node)):
        remove_tree(scratch(node))
    remove_tree(node.folder)
    if runtime and runtime.name == "podman" and os.path.lexists(node.folder):
        # What other users of a rootless container wrote is not the submitter's to remove.
        node.run(["podman", "unshare", "rm", "-rf", node.folder], timeout=120)
        remove_tree(node.folder)
    return not os.path.lexists(node.folder)


def remove_tree(folder: str) -> None:
    """Remove what can be removed of a folder."""
    import shutil

    shutil.rmtree(folder, ignore_errors=True)


def is_own_folder(path: str) -> bool:
    """Whether it is a folder of this user, and no symbolic link, which anybody may make in /tmp."""
    import stat

    try:
        found = os.lstat(path)
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid()


def wait_for_lock(folder: str, seconds: float) -> bool:
    """Wait until nobody has a lock on `inside`: the container process, or its guard, has while it runs."""
    import fcntl
    import time

    try:
        handle = os.open(os.path.join(folder, INSIDE), os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    due = time.monotonic() + seconds
    try:
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return True
            except BlockingIOError:
                if time.monotonic() >= due:
                    return False
                time.sleep(0.05)
            except OSError:
                return False
    finally:
        os.close(handle)


def _remove_dead(folder: str) -> None:
    """Remove the folder of a job that had the same number, if its agent and container have ended."""
    if not is_own_folder(folder):
        return
    try:
        with open(os.path.join(folder, TASK)) as file:
            pid, _, start_time = file.read().strip().partition(" ")
    except (OSError, ValueError):
        return
    if not pid.isdigit() or not _has_ended(int(pid), start_time):
        return
    if wait_for_lock(folder, 0) and processes.end_processes(folder):
        remove_tree(folder)


def _has_ended(pid: int, start_time: str) -> bool:
    """Whether that process has: by its start time, too, as pids are reused. start_time: "": not known."""
    try:
        found = _start_time(pid)
    except (FileNotFoundError, ProcessLookupError):
        return True
    except OSError:
        return False
    return not found or (bool(start_time) and found != start_time)


def _start_time(pid: int) -> str:
    """When a process started, in clock ticks since boot; "" for a zombie."""
    with open("/proc/%d/stat" % pid, errors="replace") as file:
        fields = file.read().rpartition(")")[2].split()
    return "" if fields[0] in "ZX" else fields[19]
