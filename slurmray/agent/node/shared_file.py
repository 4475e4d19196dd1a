"""Files in a folder that nodes share: one node makes a file, the others wait for it.

There is no lock: on a network file system it may hold on one node only (NFS mounted with nolock, Lustre
without flock). A node that creates `PATH.maker` makes the file, and meanwhile renews the time of that claim.
Where the time stays the same, another node takes over. Two nodes may then make the file at once, which costs
time and nothing else: each writes a file of its own, and renames it. Nodes that do not share the folder make
one each.
"""

import os
import tempfile
import threading

from .. import background_io, job_log, paths, trusted_folder

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, Tuple

    from .agent_interface import NodeApi

RENEWAL = 5.0  # seconds between two renewals of a claim
STALE = 90  # seconds without one: a network file system shows it late (NFS: acregmax, 60)
MAX_CLAIM = 1000  # bytes
FAILED = "failed"  # ends the claim of a node that could not make the file


def obtain(node: "NodeApi", path: str, what: str, make: "Callable[[str], bool]") -> bool:
    """Make a file, or wait until another node has made it; return whether it is there. OSError.

    what: what takes long, e.g. `podman pull NAME`. make: writes the file to the given path, and returns
    whether that succeeded. Where it fails on one node of the job, each of the others calls it, too, and none
    waits any longer: that node may be the reason.
    """
    claim, own = path + ".maker", "%s %s" % (node.job["mark"], node.name)
    if not _claim(node, path, what, claim, own):
        return True
    part = "%s.%s" % (path, node.name)
    is_over = threading.Event()
    background_io.start("a claim", lambda: _renew(claim, is_over))
    is_made = None
    try:
        _remove(part)  # of an earlier attempt; Podman does not overwrite files
        is_made = make(part)
        if is_made:
            os.rename(part, path)
        return is_made
    finally:
        is_over.set()
        _remove(part)
        if _read(claim)[0] == own:
            if is_made is False:
                _write(claim, "%s %s" % (own, FAILED), 0)
            else:
                _remove(claim)


def _claim(node: "NodeApi", path: str, what: str, claim: str, own: str) -> bool:
    """Wait until the file is there, or this node has to make it: return whether it has to."""
    last, waited = None, 0
    node.doing = "build"
    try:
        while True:
            os.listdir(os.path.dirname(path))  # makes a network file system look again
            if os.path.exists(path):
                return False
            if _write(claim, own, os.O_CREAT | os.O_EXCL):
                return True
            latest = _read(claim)
            mark, other, *state = [*latest[0].split(), "", ""]
            if FAILED in state and mark == node.job["mark"]:
                return True
            if FAILED in state or waited > STALE:
                _remove(claim)
                waited = 0
                continue
            waited = waited + 1 if latest == last else 0
            last = latest
            node.phase("image", "waiting for %s: %s" % (job_log.printable(other), what))
            node.wait(1)
    finally:
        node.doing = ""


def _renew(claim: str, is_over: threading.Event) -> None:
    while not is_over.wait(RENEWAL):
        try:
            os.utime(claim)
        except FileNotFoundError:  # another node has taken over
            return
        except Exception as error:
            background_io.errors.note("a claim", error)


def _write(claim: str, text: str, flags: int) -> bool:
    """Write a claim; return whether it could be opened with these flags."""
    try:
        file = os.open(claim, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC | flags, 0o600)
    except FileExistsError:
        return False
    with os.fdopen(file, "w") as stream:
        stream.write(text)
    return True


def _read(claim: str) -> "Tuple[str, int]":
    """Text and time of a claim; ("", 0) if there is none. An opened file has its latest time with NFS."""
    try:
        text, status = paths.read_begin(claim, MAX_CLAIM)
    except OSError:  # also ESTALE, where another node has removed it meanwhile
        return "", 0
    return text.decode("utf-8", "replace"), status.st_mtime_ns


def _remove(path: str) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass


def private_path(folder: str, name: str, submit_dir: str) -> str:
    """The path of a file in a folder that only this user can enter. A file of another user is removed.

    OSError, also where others could replace the folder.
    """
    os.close(trusted_folder.open_folder(folder, submit_dir))
    with tempfile.TemporaryFile(dir=folder) as probe:
        owner = os.fstat(probe.fileno()).st_uid  # a file server may map the user's id to another
    os.chmod(folder, 0o700)
    path = os.path.join(folder, name)
    if os.path.lexists(path) and os.lstat(path).st_uid != owner:
        os.unlink(path)
    return path
