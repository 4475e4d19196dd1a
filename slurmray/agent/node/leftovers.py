"""Removes leftovers of this user's ended jobs from the node, e.g. after a power failure or SIGKILL."""

import os
import re
import time

from .. import job_log
from . import facts, job_folder

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, List, Optional, Set, Tuple

    from .agent_interface import NodeApi
    from .runtime_interface import Runtime

    Attempt = Tuple[str, str]  # job id, attempt

REMOVE_TIMEOUT = 60.0  # seconds
END_WAIT = 20.0  # seconds
CONTAINER = re.compile(r"slurmray-([0-9]+)-([0-9]+)-.")
# paths.job_folder() and job_folder.make_scratch(), which had no random digits in older versions.
FOLDER = re.compile(r"(slurm)?ray-([0-9]+)-([0-9]+)-(.+)", re.DOTALL)


def remove(node: "NodeApi", runtime: "Runtime") -> None:
    """Remove containers and folders of ended jobs. Asks slurmctld only if there are any.

    Records a finding where the name of this node's container is taken.
    """
    # Both are listed before asking Slurm, so that they have nothing of a job that starts meanwhile.
    folders = _folders(node)
    containers = _containers(node, runtime.program) if runtime.is_engine else []
    user = facts.user_name()
    attempts = set(folders.values())
    for _, name, labels in containers:
        match = CONTAINER.match(name)
        if match and _label(labels, "user") == user:
            attempts.add((match.group(1), match.group(2)))
    ended = _ended_attempts(node, runtime, attempts)
    for container in containers:
        _remove_container(node, runtime, container, user, ended)
    removed = 0
    for path, attempt in folders.items():
        if attempt in ended and job_folder.end_processes(path):
            job_folder.remove_tree(path)
            removed += not os.path.exists(path)
    if removed:
        found = job_log.counted(removed, "folder")
        node.phase("leftovers", "removed %s of ended jobs from %s" % (found, node.name))


def _folders(node: "NodeApi") -> "Dict[str, Attempt]":
    """Folders of this user's jobs. Not those of others, and no symbolic links, which others may have made."""
    attempts = {}
    for folder in (node.settings["temp_dir"], job_folder.scratch_parent(node)):
        try:
            names = os.listdir(folder)
        except OSError:
            continue
        for name in names:
            match, path = FOLDER.match(name), os.path.join(folder, name)
            if not match:
                continue
            is_scratch, rest = bool(match.group(1)), match.group(4)
            wanted = re.escape(node.name) + "(-[0-9a-f]{8})?" if is_scratch else "[0-9a-f]{6}"
            if not re.fullmatch(wanted, rest):
                continue
            if job_folder.is_own_folder(path) and (is_scratch or os.path.isdir(os.path.join(path, "inside"))):
                attempts[path] = (match.group(2), match.group(3))
    return attempts


def _containers(node: "NodeApi", program: str) -> "List[Tuple[str, str, str]]":
    """(id, name, labels) of the containers of slurmray; none if the runtime fails."""
    template = "{{.ID}} {{.Names}} {{.Labels}}"
    argv = [program, "ps", "--all", "--no-trunc", "--filter", "name=slurmray-", "--format", template]
    result = node.run(argv)
    rows = [line.split(" ", 2) for line in result.out.splitlines()]
    return [] if result.code else [(row[0], row[1], "".join(row[2:])) for row in rows if len(row) > 1]


def _remove_container(
    node: "NodeApi",
    runtime: "Runtime",
    container: "Tuple[str, str, str]",
    user: str,
    ended: "Set[Attempt]",
) -> None:
    container_id, name, labels = container
    match, owner = CONTAINER.match(name), _label(labels, "user")
    is_own = bool(match) and owner == user
    if name == node.container_name or name.startswith(node.container_name + "-"):
        # Of an earlier job with the same id. Removed only if it does not run and, as several nodes may be on
        # one host, if the label has this node's name.
        force, is_leftover = [], is_own and _label(labels, "node") in ("", node.name)
    else:
        force, is_leftover = ["--force"], bool(is_own and match and match.groups() in ended)
    is_removed = is_leftover and remove_container(node, runtime.program, container_id, *force)
    if is_leftover and not (is_removed or force):
        is_removed = _await_end(node, runtime.program, container_id)
    if is_removed:
        node.phase("leftovers", "removed %s of an ended job from %s" % (name, node.name))
    elif name == node.container_name:
        found = "%s exists, owner %s" % (name, owner or "unknown")
        fix = "%s rm %s, if it is yours to remove" % (runtime.program, name)
        node.finding("preflight", "container name", found, "no container of that name", fix)


def remove_container(node: "NodeApi", program: str, container: str, *options: str) -> bool:
    """Remove a container by its id; return whether that worked. options: --force: also one that runs.

    A command for each: if one of several ids is gone, Podman 4.3 removes none, and exits with 0.
    """
    argv = [program, "rm", *options, "--volumes", container]
    return node.run(argv, timeout=REMOVE_TIMEOUT).code == 0


def _await_end(node: "NodeApi", program: str, container: str) -> bool:
    """Remove a container with this node's name that ends soon, as that of a start whose agent was killed."""
    until = time.monotonic() + END_WAIT
    while time.monotonic() < until:
        time.sleep(0.5)
        if not any(row[0] == container for row in _containers(node, program)):
            return True  # it has removed itself
        if remove_container(node, program, container):
            return True
    return False


def _label(labels: str, name: str) -> str:
    """The value of a label. labels: `a=b,c=d` or `map[a:b c:d]`, depending on the runtime's version."""
    match = re.search(r"slurmray\.%s[:=]([^], ]+)" % name, labels)
    return match.group(1) if match else ""


def _ended_attempts(node: "NodeApi", runtime: "Runtime", attempts: "Set[Attempt]") -> "Set[Attempt]":
    """Attempts that have ended: of jobs that are not on this node any more, and earlier ones of this job."""
    own = node.job["id"], str(node.job["attempt"])
    foreign = {job for job, _ in attempts if job != own[0]}
    active = _active_jobs(node, runtime, foreign) if foreign else set()
    if active is None:  # unknown: keep all
        active = foreign
    return {attempt for attempt in attempts if attempt != own and attempt[0] not in active}


def _active_jobs(node: "NodeApi", runtime: "Runtime", jobs: "Set[str]") -> "Optional[Set[str]]":
    """Jobs that may still use a node; None if Slurm does not answer. jobs: their ids."""
    if not runtime.has_slurm:
        return jobs - node.mail.ended_jobs(jobs)
    from .. import command_runner, inherited

    env = inherited.drop_command_options(node.env)
    return command_runner.active_jobs(jobs, lambda argv: node.run(argv, env=env))
