"""Makes the run directory of an attempt: a new folder that no other user can replace or write to."""

import json
import os
import re
import stat
import time

from .. import command_runner, job_log, paths, trusted_folder
from ..job_errors import JobError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List, Optional, Tuple

    from ..wire.settings import Job, Settings

OPEN_FOLDER = os.O_DIRECTORY | os.O_CLOEXEC
USAGE_VERSION = 1
MAX_EVENTS = 16 << 20  # bytes of an earlier attempt's events that are read
RESTART = re.compile(rb'"event": "restart", "restart": (\d{1,9})[,}]')  # in a text the quotes are escaped


def write_heartbeat(run_dir: str) -> None:
    """Change the file by which nodes that get no messages see that the controller runs.

    In place, and its time, as neither needs space. Where a file system copies on write, only the second.
    """
    descriptor = paths.own_file(os.path.join(run_dir, "heartbeat"), os.O_WRONLY | os.O_CREAT)
    with open(descriptor, "wb", 0) as file:
        try:
            file.write(b"%20.1f\n" % time.monotonic())
        finally:
            os.utime(descriptor)


def write_usage(run_dir: str, nodes: "Dict[str, Dict[str, Any]]") -> None:
    """Write the nodes' latest samples, and when the job's log last grew, for `slurmray status`."""
    usage = {"v": USAGE_VERSION, "time": round(time.time()), "nodes": nodes}
    output = os.fstat(1)
    if stat.S_ISREG(output.st_mode):
        usage["output"] = round(output.st_mtime)
    paths.replace(os.path.join(run_dir, paths.USAGE), json.dumps(usage).encode())


def write_metrics(run_dir: str, text: str) -> None:
    """Write the nodes' latest samples for Prometheus."""
    folder = os.path.join(run_dir, paths.METRICS)
    os.makedirs(folder, 0o755, exist_ok=True)
    # The name of a job may have bytes that are not UTF-8, which Prometheus requires.
    paths.replace(os.path.join(folder, "slurmray.prom"), text.encode("utf-8", "replace"))


def begin(job: "Job", settings: "Settings", log: "job_log.JobLog") -> None:
    """Make the run directory of this attempt, and set what depends on it and on those of earlier attempts."""
    run_dir = job["run_dir"]
    cluster = os.environ.get("SLURM_CLUSTER_NAME", "")
    earlier = make(job, os.environ["SLURM_SUBMIT_DIR"], cluster)
    log.open(run_dir)
    log.event(
        "start",
        job=job["name_for_commands"],
        attempt=job["attempt"],
        nodes=job["nodes"],
        spares=job["spares"],
        nodes_text=job_log.counted(len(job["nodes"]), "node"),
        components=[group["nodes"] for group in settings["groups"]],
        spares_of_components=job["spares_of_groups"],
        ray_nodes=0 if settings["only_checks"] else settings["ray"]["nodes"],
        head=job["nodes"][0],
        run_dir=run_dir,
    )
    watch = settings["watch"]
    watch["progress"] = paths.expand_in_batch("watch.progress", watch["progress"])
    if settings["checks"]["same_commit"]:
        path = paths.expand_in_batch("checks.same_commit", settings["checks"]["same_commit"])
        job["commit"] = command_runner.read_commit(paths.host_path(path))
    _count_attempts(job, settings, earlier, log)


def _count_attempts(job: "Job", settings: "Settings", earlier: "List[str]", log: "job_log.JobLog") -> None:
    """Set what depends on earlier attempts. earlier: their run directories."""
    names, requeue = [name for path in earlier for name in os.listdir(path)], settings["requeue"]
    job["restarts_before"] = sum(count_restarts(path, settings["restart"]["max"]) for path in earlier)
    prefix = "prepared-"
    job["done_before"] = sorted({name[len(prefix) :] for name in names if name.startswith(prefix)})
    if not (requeue["max"] or requeue["exit_code"]):
        return
    job["chances"] = requeue["max"] - job["attempt"] + names.count("requeue-requested")
    if job["attempt"]:
        log.event("attempt", attempt=job["attempt"], chances=job["chances"])
    if job["chances"] < 0:
        message = "Slurm has restarted the job %d times; requeue.max is %d. See the logs of earlier attempts"
        raise JobError("node_lost", message % (job["attempt"], requeue["max"]))


def count_restarts(path: str, most: int) -> int:
    """How often the trainer was started again in an earlier attempt; 0 where its events cannot be read.

    path: its run directory. most: restart.max.
    """
    try:
        events, _ = _read_own(path, "events.jsonl", MAX_EVENTS)
    except OSError:
        return 0
    return max((number for number in map(int, RESTART.findall(events)) if number <= most), default=0)


def make(job: "Job", submit_dir: str, cluster: str) -> "List[str]":
    """Make job["run_dir"] with `logs` and `mark`; return the run directories of the job's earlier attempts.

    cluster: name of the cluster; "": unknown. JobError where it is not possible, or where another user could
    change it.
    """
    run_dir = job["run_dir"]
    place, name = os.path.split(run_dir)
    try:
        folder = trusted_folder.open_folder(place, submit_dir)
        earlier = _set_others_aside(folder, place, job, cluster)
        os.mkdir(name, 0o755, dir_fd=folder)
        new = os.open(name, OPEN_FOLDER | os.O_NOFOLLOW, dir_fd=folder)
    except FileExistsError:
        owner = paths.user_name(os.lstat(run_dir).st_uid)
        raise _unusable("%s exists already, and belongs to %s" % (run_dir, owner)) from None
    except OSError as error:
        raise _unusable("cannot make the run directory %s: %s" % (run_dir, error.strerror)) from error
    try:
        os.mkdir("logs", 0o755, dir_fd=new)
        # 0600: who knows the mark could make a folder on another node that seems to be this one.
        mark = "%s\n%s\n" % (job["mark"], cluster)
        for entry, mode, content in (("mark", 0o600, mark), (paths.CANCEL_NOW, 0o644, "")):
            with open(os.open(entry, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode, dir_fd=new), "w") as file:
                file.write(content)
    except OSError as error:
        message = "cannot write to the run directory %s: %s. Free space, or set run_dir"
        raise JobError("preflight", message % (run_dir, error.strerror)) from error
    finally:
        os.close(new)
        os.close(folder)
    return earlier


def _set_others_aside(folder: int, place: str, job: "Job", cluster: str) -> "List[str]":
    """Rename run directories of another job with the same id; return those of this job's earlier attempts.

    Ids begin again after a reset of slurmctld, and each cluster has its own. The new name is none of an
    attempt. JobError where a job of another cluster may still run.
    """
    earlier = []
    try:
        names = os.listdir(place)
    except PermissionError:  # others may only enter it
        names = []
    for name in names:
        number, _, attempt = name.partition("-")
        if number != job["name_for_commands"] or not attempt.isdigit():
            continue
        path, known = os.path.join(place, name), _read_cluster(folder, name)
        if known and cluster and known != cluster and not _has_ended(path):
            message = "%s is of a job of the cluster %s, which has not recorded its end"
            raise _unusable(message % (path, known))
        if int(attempt) < job["attempt"] and known == cluster:
            earlier.append(path)
            continue
        try:
            os.rename(name, time.strftime(name + ".%Y%m%d-%H%M%S"), src_dir_fd=folder, dst_dir_fd=folder)
        except OSError:  # another user's: it is in the way only if it has the name of this attempt
            pass
    return earlier


def _read_cluster(folder: int, name: str) -> "Optional[str]":
    """The cluster of the job whose run directory that is; None: it is not of a job of this user."""
    try:
        mark, owner = _read_own(name, "mark", 4096, folder)
        is_own = owner in (os.geteuid(), paths.probe_owner(folder))
        return mark.decode("utf-8", "replace").split("\n")[1] if is_own else None
    except (OSError, IndexError):
        return None


def _read_own(run_dir: str, name: str, size: int, place: "Optional[int]" = None) -> "Tuple[bytes, int]":
    """The first bytes of a file in a run directory, and the owner of that one. OSError.

    None unless it is a regular file of the same owner. place: an open folder, in which run_dir begins.
    """
    run = os.open(run_dir, OPEN_FOLDER | os.O_NOFOLLOW, dir_fd=place)
    try:
        data, status = paths.read_begin(name, size, run)
        owner = os.fstat(run).st_uid
        return (data if status.st_uid == owner else b""), owner
    finally:
        os.close(run)


def _has_ended(path: str) -> bool:
    """Whether the last event in a run directory is the end of its job."""
    lines = paths.last_lines(os.path.join(path, "events.jsonl"), 4)  # 4: an event may have many bytes
    return bool(lines) and '"event": "end"' in lines[-1]


def _unusable(what: str) -> JobError:
    return JobError("config", what + ". Set run_dir")
