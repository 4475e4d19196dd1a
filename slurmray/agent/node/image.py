"""Makes images available on a node for Podman and Docker: pull, load or build."""

import os

from ..errors import JobError
from ..fixes import TRANSIENT, fix_for, last_line
from . import job_folder
from .processes import user_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import IO, List, Optional

    from .api import NodeApi, Result
    from .runtimes.base import Runtime

TRIES = 3
PULLS_PER_SECOND = 4  # that start on all nodes together: many do not ask a registry at one moment


def ensure(node: "NodeApi", runtime: "Runtime") -> None:
    """The image of Ray's container. Records findings."""
    container = node.settings["container"]
    archive, build_ = container["archive"], container["build"]
    if runtime.has_image() and (container["pull"] != "always" or build_ or archive):
        return
    if build_:
        build(node, runtime)
    elif archive:
        load(node, runtime)
    else:
        name = container["image_with_registry"] or runtime.image
        if pull_unless_never(node, runtime, runtime.image, name):
            runtime.image = name


def pull_unless_never(node: "NodeApi", runtime: "Runtime", image: str, name: str) -> bool:
    """Pull an image by its name with registry, unless the job spec forbids it; whether that went well."""
    if node.settings["container"]["pull"] != "never":
        return pull(node, runtime, name)
    wanted = "the image, as container.pull is never"
    node.finding(
        "image", image, "is not on this node", wanted, "%s load it on %s" % (runtime.name, node.name)
    )
    return False


def pull(node: "NodeApi", runtime: "Runtime", name: str) -> bool:
    """Pull an image, again where the answer may soon be another one; whether that went well."""
    import random
    import re

    jitter = random.SystemRandom()
    node.wait(jitter.random() * (len(node.job["nodes"]) - 1) / PULLS_PER_SECOND)
    for attempt in range(1, TRIES + 1):
        result = run_long(node, runtime.name, ["pull", name], name)
        if result.code == 0:
            return True
        if attempt == TRIES or not re.search(TRANSIENT, _output(result)):
            break
        node.wait(attempt * 10 + jitter.random() * 10)
    report(node, runtime.name, "pull", name, result)
    return False


def load(node: "NodeApi", runtime: "Runtime") -> None:
    """Load container.archive."""
    archive = node.host_path(node.settings["container"]["archive"])
    result = run_long(node, runtime.name, ["load", "--input", archive], runtime.image)
    if result.code:
        report(node, runtime.name, "load", runtime.image, result)
    elif not (runtime.works() and runtime.has_image()):
        fix = "set container.image to the name that %s load prints" % runtime.name
        node.finding("image", archive, "has no image of that name", runtime.image, fix)


def build(node: "NodeApi", runtime: "Runtime") -> None:
    """Build container.build: one job of a user at a time on a node, as the next one then finds the image."""
    path = os.path.join(node.settings["temp_dir"], "slurmray-build-%d" % os.geteuid())
    lock = _build_lock(node, path)
    try:
        if runtime.works() and runtime.has_image():
            return
        recipe = node.settings["container"]["build"]
        if not recipe:
            return
        file, context = node.host_path(recipe["file"]), node.host_path(recipe["context"])
        argv = ["build", "--force-rm", "--tag", runtime.image, "--file", file, context]
        result = run_long(node, runtime.name, argv, runtime.image)
        if result.code:
            report(node, runtime.name, "build", runtime.image, result)
    finally:
        if lock:
            os.unlink(path)  # by the one who holds the lock
            lock.close()


def _build_lock(node: "NodeApi", path: str) -> "Optional[IO[bytes]]":
    """The file with the lock; None where it belongs to somebody else: built without."""
    import fcntl

    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    node.doing = "build"
    try:
        while True:
            try:
                file = os.fdopen(os.open(path, flags, 0o600), "ab")
            except OSError:
                return None  # somebody else's, or a link
            try:
                if os.fstat(file.fileno()).st_uid == os.geteuid():
                    fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
                    if _is_same_file(path, file.fileno()):
                        return file
                else:
                    file.close()
                    return None
            except BlockingIOError:
                node.phase("image", "waiting for another job that builds on this node")
                node.wait(1)
            file.close()
    finally:
        node.doing = ""


def _is_same_file(path: str, handle: int) -> bool:
    """Whether the path still leads to that file: its last owner removes it."""
    try:
        return os.path.samestat(os.lstat(path), os.fstat(handle))
    except OSError:
        return False


def run_long(node: "NodeApi", program: str, args: "List[str]", image: str) -> "Result":
    """Run a command of a runtime that can take long, with a TMPDIR that is removed after it."""
    node.phase("image", "%s %s %s" % (program, args[0], image))
    scratch = job_folder.scratch(node)
    if not job_folder.is_own_folder(scratch):
        try:
            os.mkdir(scratch, 0o700)
        except OSError as error:
            message = "cannot make %s (TMPDIR): %s. Remove it, or set TMPDIR in setup" % (
                scratch,
                error.strerror,
            )
            raise JobError("preflight", message) from None
    result = node.run_long([program, *args], args[0], dict(node.env, TMPDIR=scratch))
    job_folder.remove_tree(scratch)  # after Stopped with the job's folder
    return result


def report(node: "NodeApi", program: str, verb: str, image: str, result: "Result") -> None:
    """Record the finding of a command that failed."""
    why = last_line(_output(result)) or result.why
    recipe = node.settings["container"]["build"]
    file = recipe["file"] if recipe else ""
    fix = fix_for(verb, why, node.name, user_name(), program, file, node.log_path)
    node.finding("image", "%s %s" % (program, verb), why, image, fix)


def with_registry(image: str) -> str:
    """The image's name with its registry: the first part is one if it could be a host's name."""
    first, slash, _ = image.partition("/")
    if slash and ("." in first or ":" in first or first == "localhost"):
        return image
    return "docker.io/" + image if slash else "docker.io/library/" + image


def _output(result: "Result") -> str:
    return result.out + "\n" + result.err
