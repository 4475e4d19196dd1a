"""The end of a job without its controller: the head node is lost, or this one is cut off."""

import os
import time

from .. import command_runner, job_log

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, List

    from ..wire.settings import Job

SUCCESSORS = 6  # workers that may requeue or cancel the job when the head node is lost, in this order
SUCCESSOR_WAIT = 10.0  # seconds by which each waits longer than the one before


def end_without_head(job: "Job", name: str, seconds: int, does_head_answer: "Callable[[], object]") -> None:
    """Have one worker requeue or cancel the job, unless it has ended.

    name: of this node. seconds: without heartbeats. does_head_answer: whether the head node's host does.
    """
    head = job["batch_host"]
    others = [node for node in [*job["nodes"], *job["spares"]] if node != head]
    message = "%s: no heartbeat from the head node %s for %d s. Has it lost power or its network?"
    message = message % (name, head, seconds)
    job_log.write_stderr(job_log.log_line(job["started"], message).encode("utf-8", "surrogateescape"))
    if name not in others[:SUCCESSORS]:
        return
    time.sleep(SUCCESSOR_WAIT * others.index(name))  # earlier ones may be lost, too
    if not _is_job_running(job):
        return  # or this node cannot ask, as it is cut off
    if does_head_answer() and _is_controller_running(job):
        return  # only this node was cut off: the controller knows what becomes of the job
    _report(job, message)
    if job["chances"] and _slurm(["scontrol", "requeue", job["name_for_commands"]]).code == 0:
        return
    if _is_job_running(job):  # another node may have requeued it
        _slurm(["scancel", job["name_for_commands"]])


def _is_controller_running(job: "Job") -> bool:
    """Whether the controller still writes heartbeats into the run directory."""
    path = os.path.join(job["run_dir"], "heartbeat")
    seen = []
    for _ in range(2):
        time.sleep(SUCCESSOR_WAIT)
        os.listdir(job["run_dir"])  # makes a network file system look again
        with open(path) as file:
            seen.append(file.read())
    return seen[0] != seen[1]


def _is_job_running(job: "Job") -> bool:
    argv = ["squeue", "--all", "--noheader", "--jobs=" + job["name_for_commands"], "--format=%T"]
    return _slurm(argv).out.strip() == "RUNNING"


def _report(job: "Job", message: str) -> None:
    """Write the loss to the job's log and events in place of the controller."""
    for path in (job["log_file"], os.path.join(job["run_dir"], "events.jsonl")):
        if not os.access(path, os.W_OK):
            continue
        if path.endswith(".jsonl"):
            fields = {"node": job["batch_host"], "text": message}
            job_log.append(path, job_log.event_line("node_loss", fields))
        else:
            job_log.append(path, job_log.log_line(job["started"], message))


def _slurm(argv: "List[str]") -> command_runner.Result:
    return command_runner.run_slurm(argv, 10, is_logged=True)
