"""The end of a job without its controller: the head node is lost, or this one is cut off."""

import os
import time

from .. import background_io, command_runner, job_log

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, List

    from ..wire.settings import Job

SUCCESSORS = 6  # workers that may requeue or cancel the job when the head node is lost, in this order
SUCCESSOR_WAIT = 10.0  # seconds by which each waits longer than the one before
FILE_WAIT = 10.0  # seconds, for files in the run directory and the job's log
ENDING_TIME = 60.0  # seconds in which a controller without a network ends, once it has noticed that


def end_without_head(job: "Job", name: str, seconds: int, does_head_answer: "Callable[[], object]") -> None:
    """Have one worker requeue or cancel the job, unless it has ended or its controller runs.

    name: of this node. seconds: without heartbeats. does_head_answer: whether the head node's host does.
    """
    head = job["batch_host"]
    others = [node for node in [*job["nodes"], *job["spares"]] if node != head]
    message = "%s: no heartbeat from the head node %s for %d s. Has it lost power or its network?"
    message = message % (name, head, seconds)
    line = job_log.log_line(job["started"], message).encode()
    # The file system may be one of the head node.
    background_io.call("the node's log", lambda: job_log.write_stderr(line), FILE_WAIT)
    if name not in others[:SUCCESSORS]:
        return
    heartbeats = _read_heartbeats(job)
    # The controller may notice a cut as late as after twice the timeout: see heartbeat.Monitor.
    due = time.monotonic() + 2 * seconds + job["grace"] + ENDING_TIME
    while len(set(heartbeats)) > 1:
        if time.monotonic() > due:
            return  # only this node was cut off: the controller knows what becomes of the job
        heartbeats = _read_heartbeats(job)  # it may run without a network, and cannot tell Slurm of its end
    if others.index(name):
        time.sleep(SUCCESSOR_WAIT * others.index(name))  # earlier ones may be lost, too
        heartbeats += _read_heartbeats(job)
        if len(set(heartbeats)) > 1:
            return  # the controller runs
    if not _is_job_running(job):
        return  # or this node cannot ask, as it is cut off
    if not heartbeats and does_head_answer():
        return  # the controller may run
    background_io.call("the job's log", lambda: _log_loss(job, message), FILE_WAIT)
    if job["chances"] and _slurm(["scontrol", "requeue", "Incomplete", job["name_for_commands"]]).code == 0:
        return
    if _is_job_running(job):  # another node may have requeued it
        _slurm(["scancel", job["name_for_commands"]])


def _read_heartbeats(job: "Job") -> "List[str]":
    """The controller's heartbeat in the run directory at two times: the same one if the controller has ended.

    [] where it cannot be read. A command reads it, as that can have a deadline: without the head node's host,
    a network file system may hang.
    """
    # Listing the folder makes a network file system look again.
    # Its time is the latest one once it has been opened, and changes even where its content cannot.
    script = 'cd "$1" && ls >/dev/null && cat heartbeat && stat -c %y heartbeat'
    argv = ["/bin/sh", "-c", script, "sh", job["run_dir"]]
    first = command_runner.run(argv, os.environ, FILE_WAIT, is_logged=False)
    time.sleep(SUCCESSOR_WAIT)
    second = command_runner.run(argv, os.environ, FILE_WAIT, is_logged=False)
    return [] if first.code or second.code else [first.out, second.out]


def _is_job_running(job: "Job") -> bool:
    argv = ["squeue", "--all", "--noheader", "--jobs=" + job["name_for_commands"], "--format=%T"]
    return "RUNNING" in _slurm(argv).out.split()  # a heterogeneous job has a line for each component


def _log_loss(job: "Job", message: str) -> None:
    """Write the loss to the job's log and events in place of the controller."""
    event = job_log.event_line("node_loss", {"node": job["batch_host"], "text": message})
    for path, line in (
        (job["log_file"], job_log.log_line(job["started"], message)),
        (os.path.join(job["run_dir"], "events.jsonl"), event),
    ):
        if os.access(path, os.W_OK):
            job_log.append(path, line)


def _slurm(argv: "List[str]") -> command_runner.Result:
    return command_runner.run_slurm(argv, 10, is_logged=True)
