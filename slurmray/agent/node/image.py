"""Images for Podman and Docker on a node: load, build or pull (pull.py), or share (shared_image.py)."""

import os

from .image_commands import load, report_failure, run_with_tmpdir

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import IO, Optional

    from ..wire.settings import Build
    from .agent_interface import NodeApi
    from .runtime_interface import ImageStore


def ensure(node: "NodeApi", runtime: "ImageStore") -> None:
    """Make the image of Ray's container available. Records findings."""
    container = node.settings["container"]
    archive = container["archive"]
    if runtime.image_is_here and (container["pull"] != "always" or container["build"] or archive):
        return
    if archive:
        load_archive(node, runtime, node.host_path(archive))
    elif container["stage"] == "shared":
        from . import shared_image

        shared_image.ensure(node, runtime, lambda: fetch(node, runtime))
    else:
        fetch(node, runtime)


def check_never_pulled(node: "NodeApi", runtime: "ImageStore") -> None:
    """With `pull: never`: record a finding about each image that is not on this node."""
    container = node.settings["container"]
    if container["pull"] != "never":
        return
    images = [service["image"] for service in node.settings["services"] if service.get("image")]
    missing = [image for image in images if not runtime.has_image(image)]
    if not (runtime.image_is_here or container["build"] or container["archive"]):
        missing.insert(0, runtime.image)
    for image in missing:
        wanted = "the image, as container.pull is never"
        fix = "%s load it on %s" % (runtime.program, node.name)
        node.finding("image", image, "is not on this node", wanted, fix)


def fetch(node: "NodeApi", runtime: "ImageStore") -> bool:
    """Build or pull the image of Ray's container; return whether it is there. Records findings."""
    container = node.settings["container"]
    if container["build"]:
        return build(node, runtime, container["build"])
    from .pull import pull

    name = container["image_with_registry"]
    if not pull(node, runtime, name):
        return False
    runtime.image = name
    return True


def load_archive(node: "NodeApi", runtime: "ImageStore", archive: str) -> None:
    """Load container.archive. Records findings."""
    result = load(node, runtime, archive)
    if result.code:
        report_failure(node, runtime.program, "load", runtime.image, result)
    elif not (runtime.works() and runtime.image_is_here):
        fix = "set container.image to the name that %s load prints" % runtime.program
        node.finding("image", archive, "has no image of that name", runtime.image, fix)


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
            report_failure(node, runtime.program, "build", runtime.image, result)
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
