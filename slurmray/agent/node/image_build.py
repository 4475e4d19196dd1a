"""Builds container.build on a node."""

import os

from .image_commands import record_failure, run_with_tmpdir

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import IO, Optional

    from ..wire.settings import Build
    from .agent_interface import NodeApi
    from .runtime_interface import ImageStore


def build(node: "NodeApi", runtime: "ImageStore", recipe: "Build") -> bool:
    """Build container.build, one job of a user at a time on a node, so that the next finds the image."""
    path = os.path.join(node.settings["temp_dir"], "slurmray-build-%d" % os.geteuid())
    lock = _build_lock(node, path)
    try:
        if runtime.works() and runtime.image_is_here:
            return True
        file, context = node.host_path(recipe["file"]), node.host_path(recipe["context"])
        argv = ["build", "--force-rm", "--tag", runtime.image, "--file", file, context]
        result = run_with_tmpdir(node, runtime.program, argv, runtime.image)
        if result.code:
            record_failure(node, runtime.program, "build", runtime.image, result)
        return not result.code
    finally:
        if lock:
            os.unlink(path)  # safe while the lock is held
            lock.close()


def _build_lock(node: "NodeApi", path: str) -> "Optional[IO[bytes]]":
    """The locked file; None where another user made it: the build then goes without a lock."""
    import fcntl

    # O_NONBLOCK: for another user's FIFO.
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    node.doing = "build"
    try:
        while True:
            try:
                file = os.fdopen(os.open(path, flags, 0o600), "ab")
            except OSError:
                return None  # another user's, or a symbolic link
            try:
                if os.fstat(file.fileno()).st_uid == os.geteuid():
                    fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
                    if _is_same_file(path, file.fileno()):
                        return file
                else:
                    file.close()
                    return None
            except BlockingIOError:
                node.phase("image", "waiting for the build of another job on this node")
                node.wait(1)
            file.close()
    finally:
        node.doing = ""


def _is_same_file(path: str, handle: int) -> bool:
    """Whether the path is still that file: the job that held the lock before has removed it."""
    try:
        return os.path.samestat(os.lstat(path), os.fstat(handle))
    except OSError:
        return False
