"""The job's folder: private, one for each attempt, on the node's own disk.

task     pid and start time of the node agent
inside/  mounted into the containers at the path of the job's folder: the agent, and the FIFOs `out` and `err`
         for the trainer's output
"""

import os
import signal
import time

from .. import paths, trusted_folder
from ..job_errors import JobError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import List

    from .agent_interface import NodeApi

TASK = "task"
INSIDE = "inside"
LOCK_TIMEOUT = 10.0  # seconds for the container process to end


def make(node: "NodeApi", agent: str) -> str:
    """Make the job's folder and return its path. agent: the agent's text, for the container process.

    JobError where that is not possible.
    """
    import glob

    from .. import loader

    folder = paths.job_folder(node.settings["temp_dir"], node.job)
    for other in glob.glob(folder.rpartition("-")[0] + "-*"):
        _remove_dead(other)
    try:
        try:
            _make_private(node, folder)
        except FileExistsError:  # another user has seen its name on another node
            folder = folder[:-6] + os.urandom(3).hex()
            _make_private(node, folder)
    except OSError as error:
        message = "cannot make %s: %s. Set ray.temp_dir" % (folder, error.strerror)
        raise JobError("preflight", message) from None
    try:
        with open(os.path.join(folder, TASK), "w") as file:
            file.write("%d %s\n" % (os.getpid(), _start_time(os.getpid())))
        inside = os.path.join(folder, INSIDE)
        os.mkdir(inside)
        os.chmod(inside, 0o777)  # noqa: S103 - for any user of the container; others cannot enter `folder`
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


def make_scratch(node: "NodeApi") -> str:
    """Make the TMPDIR of a pull or build, where an interrupted Podman leaves many files. Return its path.

    Random digits, as others could make it beforehand. JobError where it is not possible.
    """
    path = os.path.join(scratch_parent(node), "%s-%s" % (node.container_name, os.urandom(4).hex()))
    try:
        _make_private(node, path)
    except OSError as error:
        message = "cannot make %s (TMPDIR): %s. Set TMPDIR in setup" % (path, error.strerror)
        raise JobError("preflight", message) from None
    return path


def _make_private(node: "NodeApi", path: str) -> None:
    """Make a folder that only this user can enter or replace. OSError."""
    place, name = os.path.split(path)
    parent = trusted_folder.open_folder(place, node.env["SLURM_SUBMIT_DIR"], is_made=False)
    try:
        os.mkdir(name, 0o700, dir_fd=parent)
    finally:
        os.close(parent)


def scratch_parent(node: "NodeApi") -> str:
    """The folder in which make_scratch() makes others."""
    return node.env.get("TMPDIR") or "/var/tmp"


def remove(node: "NodeApi", rm: "List[str]") -> bool:
    """Remove the job's folder. Return whether it is gone. rm: see Runtime."""
    remove_tree(node.folder)
    if rm and os.path.lexists(node.folder):
        node.run([*rm, node.folder], timeout=120)
        remove_tree(node.folder)
    return not os.path.lexists(node.folder)


def remove_tree(folder: str) -> None:
    """Remove a folder as far as possible."""
    import shutil

    shutil.rmtree(folder, ignore_errors=True)


def is_own_folder(path: str) -> bool:
    """Whether it is a folder of this user. A symbolic link is not: anybody can make one in /tmp."""
    import stat

    try:
        status = os.lstat(path)
    except OSError:
        return False
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid()


def wait_for_lock(folder: str, seconds: float) -> bool:
    """Wait for the end of the container process, or its guard, which has a lock on `inside` while it runs.

    Return False after so many seconds, or where the folder cannot be opened or locked.
    """
    import fcntl

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
    """Remove the folder of an earlier job with the same id if its agent and container have ended."""
    if not is_own_folder(folder):
        return
    try:
        with open(os.path.join(folder, TASK)) as file:
            pid, _, start_time = file.read().strip().partition(" ")
    except (OSError, ValueError):
        return
    if not pid.isdigit() or not _has_ended(int(pid), start_time):
        return
    if wait_for_lock(folder, 0) and end_processes(folder):
        remove_tree(folder)


def _has_ended(pid: int, start_time: str) -> bool:
    """Whether a process has ended. start_time, "" if unknown, tells it from a later one with the same pid."""
    try:
        actual_start = _start_time(pid)
    except (FileNotFoundError, ProcessLookupError):
        return True
    except OSError:
        return False
    return not actual_start or (bool(start_time) and actual_start != start_time)


def _start_time(pid: int) -> str:
    """Start time of a process in clock ticks since boot; "" for a zombie."""
    with open("/proc/%d/stat" % pid, errors="replace") as file:
        fields = file.read().rpartition(")")[2].split()
    return "" if fields[0] in "ZX" else fields[19]


def end_task(folder: str) -> bool:
    """Wait for the end of the container process, then kill what is left. Return whether nothing is left."""
    wait_for_lock(folder, LOCK_TIMEOUT)
    return end_processes(folder)


def end_processes(folder: str) -> bool:
    """Kill this user's processes of the job with that folder. Return whether none is left.

    Spares jobs submitted from within it: they inherited paths.FOLDER_VARIABLE, but have another job id.
    """
    job_id = os.path.basename(folder).split("-")[1]  # ray-JOBID-...
    for _ in range(20):
        pids = find_processes(folder, job_id)
        if not pids:
            return True
        for pid in pids:
            try:
                os.kill(pid, signal.SIGKILL)
            except OSError:
                pass
        time.sleep(0.1)
    return False


def find_processes(folder: str, job_id: str) -> "List[int]":
    """Pids of processes with that folder and job id in their environment. Zombies have no environment."""
    wanted = os.fsencode("%s=%s" % (paths.FOLDER_VARIABLE, folder))
    job = b"SLURM_JOB_ID=" + job_id.encode()
    pids = []
    for name in os.listdir("/proc"):
        if not name.isdigit() or int(name) == os.getpid():
            continue
        try:
            with open("/proc/%s/environ" % name, "rb") as file:
                entries = file.read().split(b"\0")
        except OSError:
            continue
        if wanted in entries and all(e == job for e in entries if e.startswith(b"SLURM_JOB_ID=")):
            pids.append(int(name))
    return pids
