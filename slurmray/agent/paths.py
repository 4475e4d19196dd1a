"""Paths of the job spec on a node, and helpers for files."""

import os
import stat

from .job_errors import JobError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import List, Mapping, Match, Optional, Tuple

    from .wire.settings import Job

# Of ray.temp_dir, in characters: the path of a socket has at most 107, and slurmray and Ray add folders.
TEMP_DIR_MAX = 18
TEMP_DIR_PATTERN = "[A-Za-z0-9_./-]+"
# Set to the job's folder for processes of the job that are visible on the host, by which they are found.
FOLDER_VARIABLE = "SLURMRAY_TEMP"
MARKS = (FOLDER_VARIABLE, "SLURM_JOB_ID")  # of the job's processes, by which clean-up finds them
# In the run directory. The job makes this file, and its grace period ends once `slurmray cancel --now` has
# written into it.
CANCEL_NOW = "cancel-now"
# In the run directory: what the nodes use, by their latest samples.
USAGE = "usage.json"
# In the run directory, with container.stage: the id of the image that the nodes use.
IMAGE_ID = "image-id"
# Beside the run directories: a folder with archives of images, ID.tar.
IMAGES = "images"
# In the run directory, with ray.metrics: a folder with what Prometheus reads.
METRICS = "metrics"
# Among the logs: ends the name of the file with a node's samples.
SAMPLES = ".samples.jsonl"
# In the job's folder, for the trainer: when Slurm ends the job, as in SLURMRAY_END_TIME.
END_TIME = "end_time"
# In the job's folder: before the name of a service whose output is copied from this FIFO to its log.
SERVICE_FIFO = "log-"
# In a path: $NAME, ${NAME}, or $$ for a dollar sign.
VARIABLE = r"\$(?:\$|([A-Za-z_][A-Za-z0-9_]*)|\{([A-Za-z_][A-Za-z0-9_]*)\})"


class UnsetError(Exception):
    """A variable in a path is not set, or empty, which would lead elsewhere. The message is its name."""


def expand(path: str, env: "Mapping[str, str]") -> str:
    """Replace $NAME and ${NAME} in a path by variables, and $$ by a dollar sign. Raises UnsetError."""
    if "$" not in path:
        return path
    import re

    def value(match: "Match[str]") -> str:
        name = match.group(1) or match.group(2)
        if name and not env.get(name):
            raise UnsetError("$" + name)
        return env[name] if name else "$"

    return re.sub(VARIABLE, value, path)


def expand_in_batch(field: str, path: str) -> str:
    """The same with the variables of the batch script. JobError where one is not set."""
    try:
        return expand(path, os.environ)
    except UnsetError as error:
        message = "%s: %s is not set in the batch script. Set it where you run sbatch, or write the path"
        raise JobError("config", message % (field, error)) from None


def host_path(path: str, env: "Mapping[str, str]" = os.environ) -> str:
    """Make a path of the job spec absolute. `~`: the submitter's home; relative to the submit folder.

    Variables in it are already expanded.
    """
    if path == "~" or path.startswith("~/"):
        return env["HOME"] + path[1:]
    return os.path.join(env["SLURM_SUBMIT_DIR"], path)


def container_name(job: str, attempt: int, node: str) -> str:
    """The name of a node's container. job: its id."""
    return "slurmray-%s-%d-%s" % (job, attempt, node)


def job_folder(temp_dir: str, job: "Job") -> str:
    """The private folder of an attempt on each node.

    Its name ends in random digits, so that no other user can make it beforehand.
    """
    return os.path.join(temp_dir, "ray-%s-%d-%s" % (job["id"], job["attempt"], job["mark"][:6]))


def service_log(service: str, node: str) -> str:
    """Name of the log of a service on a node, without its ending. Neither name has an @."""
    return "service-%s@%s" % (service, node)


def last_lines(path: str, count: int, begin: int = 0) -> "List[str]":
    """The last lines of a file, without their newlines; none where it cannot be read. begin: in bytes."""
    try:
        with open(path, "rb") as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(begin, file.tell() - 1000 * count))
            lines = file.read().decode("utf-8", "replace").splitlines()
    except OSError:
        return []
    return lines[-count:]


def read_begin(path: str, size: int, folder: "Optional[int]" = None) -> "Tuple[bytes, os.stat_result]":
    """The first bytes of a file, none unless it is a regular one, and its status. OSError, also for a link.

    Others may have made it, so this waits for no FIFO. folder: an open one, in which the path begins.
    """
    file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    try:
        status = os.fstat(file)
        return os.read(file, size) if stat.S_ISREG(status.st_mode) else b"", status
    finally:
        os.close(file)


def find_program(name: str, folders: str) -> str:
    """The path of a program; "" where there is none. folders: PATH."""
    for folder in folders.split(os.pathsep):
        path = os.path.join(folder, name)
        if os.path.isfile(path) and os.access(path, os.X_OK):
            return path
    return ""


def is_missing(error: OSError, name: str, folders: str) -> bool:
    """Whether a program did not start since there is none of that name. folders: PATH.

    With a folder in PATH that the user may not enter, execvp(3) says EACCES for it.
    """
    places = [name] if "/" in name else [os.path.join(folder, name) for folder in folders.split(os.pathsep)]
    return isinstance(error, FileNotFoundError) or not any(map(os.path.exists, places))


def own_file(path: str, flags: int) -> int:
    """Opener of files in the run directory: never writable for others, and readable if the umask permits."""
    return os.open(path, flags | os.O_NOFOLLOW, 0o644)


def replace(path: str, data: bytes) -> None:
    """Write a file in one step, so that nobody reads a part of it. OSError."""
    with open(path + ".new", "wb", opener=own_file) as file:
        file.write(data)
    os.rename(path + ".new", path)


def private_file(path: str, flags: int) -> int:
    """Opener of files in the run directory that only the submitter can read."""
    return os.open(path, flags | os.O_NOFOLLOW, 0o600)


def probe_owner(folder: int) -> int:
    """The owner of a file that this user makes in an open folder; -1: unknown.

    It is another user for root with root_squash, and on mounts with fixed owners, e.g. CIFS or sshfs.
    """
    name = ".slurmray-" + os.urandom(8).hex()
    try:
        file = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600, dir_fd=folder)
        os.unlink(name, dir_fd=folder)
    except OSError:
        return -1
    owner = os.fstat(file).st_uid
    os.close(file)
    return owner


def user_name(uid: int) -> str:
    """The name of a user, or the uid if it has none."""
    import pwd

    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
