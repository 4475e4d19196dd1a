"""Images for Podman and Docker on a node: pull, load or build."""

import os

from ..fixes import TRANSIENT, fix_for, last_line
from . import job_folder
from .facts import user_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import IO, List, Optional

    from ..command_runner import Result
    from ..wire.settings import Build
    from .agent_interface import NodeApi
    from .runtimes.engine import Engine

TRIES = 3
PULLS_PER_SECOND = 4  # started on all nodes together, to spare the registry


def ensure(node: "NodeApi", runtime: "Engine") -> None:
    """Make the image of Ray's container available. Records findings."""
    container = node.settings["container"]
    archive, recipe = container["archive"], container["build"]
    if runtime.image_is_here and (container["pull"] != "always" or recipe or archive):
        return
    if recipe:
        build(node, runtime, recipe)
    elif archive:
        load(node, runtime)
    else:
        name = container["image_with_registry"]
        if pull_unless_never(node, runtime, runtime.image, name):
            runtime.image = name


def pull_unless_never(node: "NodeApi", runtime: "Engine", image: str, name: str) -> bool:
    """Pull an image unless container.pull is never. Return whether it is there.

    image: its name in the job spec. name: the same with registry.
    """
    if node.settings["container"]["pull"] != "never":
        return pull(node, runtime, name)
    wanted = "the image, as container.pull is never"
    node.finding(
        "image", image, "is not on this node", wanted, "%s load it on %s" % (runtime.program, node.name)
    )
    return False


def pull(node: "NodeApi", runtime: "Engine", name: str) -> bool:
    """Pull an image, repeatedly after transient errors. Return whether it is there."""
    import random
    import re

    jitter = random.SystemRandom()
    node.wait(jitter.random() * (len(node.job["nodes"]) - 1) / PULLS_PER_SECOND)
    for attempt in range(1, TRIES + 1):
        result = run_with_tmpdir(node, runtime.program, ["pull", name], name)
        if result.code == 0:
            return True
        if attempt == TRIES or not re.search(TRANSIENT, _output(result)):
            break
        node.wait(attempt * 10 + jitter.random() * 10)
    report_failure(node, runtime.program, "pull", name, result)
    return False


def load(node: "NodeApi", runtime: "Engine") -> None:
    """Load container.archive."""
    archive = node.host_path(node.settings["container"]["archive"])
    result = run_with_tmpdir(node, runtime.program, ["load", "--input", archive], runtime.image)
    if result.code:
        report_failure(node, runtime.program, "load", runtime.image, result)
    elif not (runtime.works() and runtime.image_is_here):
        fix = "set container.image to the name that %s load prints" % runtime.program
        node.finding("image", archive, "has no image of that name", runtime.image, fix)


def build(node: "NodeApi", runtime: "Engine", recipe: "Build") -> None:
    """Build container.build, one job of a user at a time on a node, so that the next finds the image."""
    path = os.path.join(node.settings["temp_dir"], "slurmray-build-%d" % os.geteuid())
    lock = _build_lock(node, path)
    try:
        if runtime.works() and runtime.image_is_here:
            return
        file, context = node.host_path(recipe["file"]), node.host_path(recipe["context"])
        argv = ["build", "--force-rm", "--tag", runtime.image, "--file", file, context]
        result = run_with_tmpdir(node, runtime.program, argv, runtime.image)
        if result.code:
            report_failure(node, runtime.program, "build", runtime.image, result)
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


def run_with_tmpdir(node: "NodeApi", program: str, args: "List[str]", image: str) -> "Result":
    """Run a long command of a runtime with a TMPDIR that is removed afterwards."""
    node.phase("image", "%s %s %s" % (program, args[0], image))
    scratch = job_folder.make_scratch(node)
    try:
        return node.run_long([program, *args], args[0], dict(node.env, TMPDIR=scratch))
    finally:
        job_folder.remove_tree(scratch)


def report_failure(node: "NodeApi", program: str, verb: str, image: str, result: "Result") -> None:
    """Record a finding about a command that failed."""
    why = last_line(_output(result)) or result.why
    recipe = node.settings["container"]["build"]
    file = recipe["file"] if recipe else ""
    fix = fix_for(verb, why, node.name, user_name(), program, file, node.log_path)
    node.finding("image", "%s %s" % (program, verb), why, image, fix)


def _output(result: "Result") -> str:
    return result.out + "\n" + result.err
