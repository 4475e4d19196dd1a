"""What a node is checked for in its container: findings for the table in the log of the job."""

import importlib.metadata
import os
import platform
import re
import resource
import sys

import ray_environment
import ray_start
from give_up import GiveUp

FILES_WANTED = 65535  # open files; Ray opens several for each worker process
FILES_NEEDED = 8192  # with fewer, large trainers have been seen to fail
# What the distributed debugger of Ray needs (docs.ray.io, "Ray Distributed Debugger"; Ray has it since 2.39).
DEBUGGER_SINCE = (2, 39)
DEBUGPY_SINCE = (1, 8)


def version_of_ray(auth):
    """(text, (major, minor)); GiveUp where there is none, or one too old for `ray.auth` of the spec."""
    version = ray_start.ray_version()
    if version is None:
        raise GiveUp("image", f"{sys.executable} has no Ray: install ray[default] for it")
    if auth == "token" and version[1] < ray_environment.TOKEN_SINCE:
        remedy = "take 2.52 or later, or set ray.auth to auto or none"
        raise GiveUp("config", f"ray.auth: Ray {version[0]} has no tokens; {remedy}")
    return version


def enter_workdir(folder):
    """Ray, its workers and the trainer begin in the working directory of the spec."""
    try:
        os.chdir(folder)
    except OSError as error:
        remedy = "mount it, make it there, or set container.workdir"
        text = f"{error.filename}: {error.strerror} where the trainer runs; {remedy}"
        raise GiveUp("config", text) from error


def is_fit(member):
    """Finds what this node lacks for Ray and trainer; False where it is to go no further."""
    raise_limits()
    for row in limits():
        member.find("warn", *row)
    lacks = list(debugger(member.version)) if member.one("debug") == "post-mortem" else []
    for row in lacks:
        member.find_fault(*row)
    return not (lacks and member.is_strict())


def compare_versions(member, wanted):
    """Finds other versions than those of the head."""
    mine = versions(member.version_text)
    if mine != wanted:
        remedy = "use one image on all nodes, by digest, or one environment"
        member.find_fault("versions", mine, f"{wanted}, as on the head", remedy)


def raise_limits():
    """Sets the soft limit of open files to what Ray may need, as far as the hard limit goes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = FILES_WANTED if hard == resource.RLIM_INFINITY else min(hard, FILES_WANTED)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def limits():
    """Rows (check, found, wanted, remedy) for limits that are lower than a trainer may need."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if hard != resource.RLIM_INFINITY and hard < FILES_NEEDED:
        remedy = "raise it there, or container.ulimits: [nofile=65535:65535]"
        yield "open files", f"at most {hard}", FILES_WANTED, remedy
    locked = resource.getrlimit(resource.RLIMIT_MEMLOCK)[1]
    if os.path.isdir("/dev/infiniband") and locked != resource.RLIM_INFINITY:
        remedy = "raise it there, or container.ulimits: [memlock=-1:-1]"
        yield "locked memory", f"{locked} bytes", "no limit, for InfiniBand", remedy


def debugger(ray):
    """Rows for what the distributed debugger of Ray lacks here. ray: its version as numbers."""
    if ray < DEBUGGER_SINCE:
        remedy = "take one with it, or set ray.debug: legacy"
        yield "debugger", f"Ray {ray[0]}.{ray[1]}", "Ray 2.39 or later", remedy
    try:
        found = importlib.metadata.version("debugpy")
    except importlib.metadata.PackageNotFoundError:
        found = "none"
    if tuple(int(number) for number in re.findall(r"\d+", found)[:2]) < DEBUGPY_SINCE:
        yield "debugpy", found, "1.8.0 or later", "install it beside Ray, or set ray.debug: none"


def versions(ray):
    """What must be the same on all nodes. ray: its version as a text."""
    return f"Ray {ray}, Python {platform.python_version()}"
