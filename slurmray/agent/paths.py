"""Paths of the job spec on a node, and helpers for files."""

import os
import subprocess

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import List, Mapping

    from .settings import Job


def host_path(path: str, env: "Mapping[str, str]" = os.environ) -> str:
    """Make a path of the job spec absolute. `~`: the submitter's home; relative to the submit folder."""
    if path == "~" or path.startswith("~/"):
        return env["HOME"] + path[1:]
    return os.path.join(env["SLURM_SUBMIT_DIR"], path)


def job_folder(temp_dir: str, job: "Job") -> str:
    """The private folder of an attempt on each node.

    Its name ends in random digits, so that no other user can make it beforehand.
    """
    return os.path.join(temp_dir, "ray-%s-%d-%s" % (job["id"], job["attempt"], job["mark"][:6]))


def last_lines(path: str, count: int) -> "List[str]":
    """The last lines of a file, without their newlines; none where it cannot be read."""
    try:
        with open(path, "rb") as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(0, file.tell() - 1000 * count))
            lines = file.read().decode("utf-8", "replace").splitlines()
    except OSError:
        return []
    return lines[-count:]


def commit_of(folder: str) -> str:
    """The commit of a git work tree; "" where there is none. folder: absolute."""
    argv = ["git", "-C", folder, "rev-parse", "HEAD"]
    try:
        done = subprocess.run(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.decode("utf-8", "replace").strip()


def find_program(name: str, folders: str) -> str:
    """The path of a program; "" where there is none. folders: PATH."""
    for folder in folders.split(os.pathsep):
        path = os.path.join(folder, name)
        if os.path.isfile(path) and os.access(path, os.X_OK):
            return path
    return ""


def remove_file(path: str) -> None:
    """Remove a file if it exists."""
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass
