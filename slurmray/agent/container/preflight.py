"""Preflight checks inside the container: requirements of Ray and the trainer on node and image."""

import os
import resource
import sys

from .. import inherited
from ..job_errors import JobError, Unfit
from ..trusted_folder import ALL_USERS
from . import variables
from .ray import command

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Iterator, Tuple

    from .node_context import NodeContext
    from .ray.command import Version

    Row = Tuple[str, str, str, str]  # check, found, wanted, fix

PYTHON_SINCE = (3, 8)  # required by Ray and for importlib.metadata
FILES_NEEDED = 8192  # large trainers have been seen to fail with fewer
MIB = 1024 * 1024
SHARED_MEMORY = 1000  # MiB free
# Requirements of Ray's distributed debugger (docs.ray.io, "Ray Distributed Debugger").
DEBUGGER_SINCE = (2, 39)
DEBUGPY_SINCE = (1, 8)


def require_ray(context: "NodeContext") -> "Tuple[str, Version]":
    """(text, numbers) of Ray's version. JobError where there is no Ray, or one too old for `ray.auth`.

    Without a container, nodes may differ: a missing Ray or an old Python is a finding then, with Unfit.
    """
    is_old = context.is_guarded and sys.version_info < PYTHON_SINCE
    version = None if is_old else command.ray_version()
    if version is None and context.is_guarded:
        from ..fixes import PYTHON_FIX, PYTHON_WANTED

        found = "Python %d.%d" % sys.version_info[:2] if is_old else "no Ray"
        kind = "preflight" if context.settings["container"]["runtimes"] == ["none"] else "image"
        context.send_finding(kind, sys.executable, found, PYTHON_WANTED, PYTHON_FIX)
        raise Unfit
    if version is None:
        fix = "Install ray[default] for it, or set container.python to the image's Python that has it"
        raise JobError("image", "%s has no Ray. %s" % (sys.executable, fix))
    if context.settings["ray"]["auth"] == "token" and version[1] < variables.TOKEN_SINCE:
        fix = "Use Ray 2.52 or later, or set ray.auth to auto or none"
        raise JobError("config", "ray.auth is token, and Ray %s has no tokens. %s" % (version[0], fix))
    return version


def enter_workdir(folder: str) -> None:
    """Change to the working directory of Ray and the trainer. JobError where that fails."""
    try:
        os.chdir(folder)
    except OSError as error:
        fix = "It is the trainer's working directory: mount it, create it, or set container.workdir"
        raise JobError("config", "%s: %s. %s" % (folder, error.strerror, fix)) from error


def check_node(context: "NodeContext") -> None:
    """Check limits, /dev/shm and debugger. Unfit where a finding ends the job."""
    for row in (*low_limits(context.runtime), *little_shared_memory(context)):
        context.finding("warn", *row)
    if context.settings["ray"]["debug"] == "post-mortem":
        lacking = list(missing_for_debugger(context.ray_version))
        for row in lacking:
            context.finding("preflight", *row)
        if lacking and context.is_strict:
            raise Unfit


def compare_versions(context: "NodeContext", own: str, head: str) -> None:
    """Send a finding where versions differ from the head node's. Unfit where it ends the job."""
    if own != head:
        fix = "use one image on all nodes, by digest, or one environment"
        context.finding("preflight", "versions", own, head + ", as on the head node", fix, context.name)
        if context.is_strict:
            raise Unfit


def versions(ray: str) -> str:
    """The versions that must be the same on all nodes. ray: version of Ray."""
    return "Ray %s, Python %s" % (ray, sys.version.split()[0])


def low_limits(runtime: str, users: str = "/proc/self/uid_map") -> "Iterator[Row]":
    """Findings about limits that are too low for large trainers. runtime: its name."""

    def fix(limit: str) -> str:
        # A daemon of root may raise it. Podman has only the rights of who starts it, and the container would
        # fail: "setrlimit `RLIMIT_NOFILE`: Operation not permitted".
        can_raise = False
        if runtime == "docker":
            with open(users) as file:
                can_raise = file.read().split() == ALL_USERS
        return "raise it there" + (", or container.ulimits: [%s]" % limit if can_raise else "")

    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if hard != resource.RLIM_INFINITY and hard < FILES_NEEDED:
        yield "open files", "at most %d" % hard, str(inherited.OPEN_FILES), fix("nofile=65535:65535")
    locked = resource.getrlimit(resource.RLIMIT_MEMLOCK)[1]
    if os.path.isdir("/dev/infiniband") and locked != resource.RLIM_INFINITY:
        yield "locked memory", "%d bytes" % locked, "no limit, for InfiniBand", fix("memlock=-1:-1")


def little_shared_memory(context: "NodeContext", path: str = "/dev/shm") -> "Iterator[Row]":
    """A finding where little is free for Ray's object store. Here, as most containers have their own."""
    if context.settings["container"]["shm_size"]:
        return
    try:
        disk = os.statvfs(path)
    except OSError as error:
        yield path, str(error.strerror), "a tmpfs, for Ray's object store", "mount one"
        return
    size, free = (blocks * disk.f_frsize // MIB for blocks in (disk.f_blocks, disk.f_bavail))
    wanted = max(SHARED_MEMORY, size // 10)
    if free < wanted:
        fix = "enlarge it, or set container.shm_size"
        if size >= SHARED_MEMORY:
            fix = "remove what ended jobs have left in it: ls -l " + path
        yield "/dev/shm", "%d of %d MB free" % (free, size), "%d MB, for Ray's object store" % wanted, fix


def missing_for_debugger(ray: "Version") -> "Iterator[Row]":
    """Findings about missing requirements of Ray's distributed debugger. ray: version of Ray."""
    if ray < DEBUGGER_SINCE:
        fix = "use a Ray that has it, or set ray.debug: legacy"
        yield "debugger", "Ray %d.%d" % (ray[0], ray[1]), "Ray 2.39 or later", fix
    version = command.package_version("debugpy")
    if command.version_numbers(version) < DEBUGPY_SINCE:
        fix = "install it beside Ray, or set ray.debug: none"
        yield "debugpy", version or "none", "1.8.0 or later", fix


def restore_search_path() -> None:
    """Add PYTHONPATH and the user's packages to sys.path, which -I leaves out.

    They come after the standard library, so that they cannot replace its modules, and before site-packages.
    """
    if not sys.flags.isolated:
        return
    import site

    more = [os.path.abspath(path) for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    user = site.getusersitepackages()
    # A virtual environment has no packages of the user, unless it has those of the system, too. An old Ray
    # there would pass for the one that runs, which would then run without a token.
    has_user = sys.base_prefix in site.PREFIXES and not os.environ.get("PYTHONNOUSERSITE")
    if has_user and os.path.isdir(user):
        more.append(user)
    places = [index for index, path in enumerate(sys.path) if path.endswith("-packages")]
    index = places[0] if places else len(sys.path)
    sys.path[index:index] = [path for path in more if path not in sys.path]
