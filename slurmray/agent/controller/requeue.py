"""Another attempt of the job: whether Slurm is to start it again, and without which nodes."""

import os
import signal

from .. import background_io, command_runner, paths
from .decisions import UNFIT
from .host_list import and_names, host_list
from .outcome import failure_of
from .roster import OF_NODES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import List

    from ..job_record import Record
    from .decisions import Controller
    from .outcome import Outcome

# Of `sinfo`: name and state of each node, and what jobs may ask of it.
NODES_FORMAT = "--format=%N %t %c %m %G %f"
# Its short states, without marks like ~ of a node that Slurm can boot. One that does not answer has a *.
USABLE = ("idle", "alloc", "mix", "comp", "plnd", "resv")
FILE_WAIT = 20.0  # seconds, for a file in the run directory


def is_requested(controller: "Controller") -> bool:
    """Whether the trainer requested another attempt by its exit code."""
    state, wanted = controller.state, controller.settings["requeue"]["exit_code"]
    is_ending = state.failure or state.requests.is_stopping
    return bool(wanted) and state.trainer_code == wanted and not is_ending


def find_reason(controller: "Controller", outcome: "Outcome", excluded: "List[str]") -> str:
    """The reason to requeue the job; "" to leave it ended. excluded: as in choose_excluded."""
    if is_requested(controller):
        return "requested by the trainer with exit code %d" % controller.settings["requeue"]["exit_code"]
    failure, job = failure_of(controller.state), controller.job
    # Without the nodes that a finding is about, the next attempt may succeed.
    is_of_nodes = outcome.kind == "node_lost" or (outcome.kind in UNFIT and excluded)
    # The nodes were fit when the job started.
    is_late = job["restart"] > 0 and outcome.kind in OF_NODES
    is_wanted = is_late or (failure and is_of_nodes)
    return str(failure or outcome.text) if is_wanted and job["chances"] > 0 else ""


def choose_excluded(
    shown: str, record: "Record", before: "List[str]", bad: "List[str]", wanted: int
) -> "List[str]":
    """The bad nodes if enough others can take their place, else none: Slurm would hold the job for good.

    shown: what sinfo prints of the job's partition with NODES_FORMAT. record: of this job. before: nodes
    that the job leaves out already. wanted: nodes of the job.
    """
    kinds, usable = {}, []
    for line in shown.splitlines():
        name, state, kind = [*line.split(" ", 2), "", ""][:3]
        kinds[name] = kind
        if state.rstrip("-+~#") in USABLE and name not in bad + before:
            usable.append(name)
    wished = {kinds.get(node) for node in bad}
    has_list = record.get("ReqNodeList") != "(null)"
    return [] if has_list or len([n for n in usable if kinds[n] in wished]) < wanted else bad


def requeue_if_wanted(
    controller: "Controller", outcome: "Outcome", record: "Record", allocated: int, bad: "List[str]"
) -> None:
    """Requeue the job if another attempt is to follow; Slurm then ends this process.

    record: of this job. allocated: nodes of the job. bad: those that were lost, or failed.
    """
    state, job, log = controller.state, controller.job, controller.log
    is_by_trainer = is_requested(controller)
    if state.requests.is_stopping or not (is_by_trainer or job["chances"] > 0):
        return
    # With several groups each component has nodes and a record of its own.
    is_alike = len(controller.settings["groups"]) == 1
    # What is wrong on all nodes is likely so on others, too.
    is_mistake = outcome.kind == "preflight" and len(bad) == allocated
    excluded = _find_excluded(record, bad, allocated) if bad and is_alike and not is_mistake else []
    reason = find_reason(controller, outcome, excluded)
    if not reason:
        return
    if is_by_trainer:
        path = os.path.join(job["run_dir"], "requeue-requested")
        written: "List[str]" = []

        def write() -> None:
            open(path, "w", opener=paths.own_file).close()
            written.append(path)

        background_io.call("the run directory", write, FILE_WAIT)
        if not written:
            log.write("cannot write to %s: the next attempt counts against requeue.max" % job["run_dir"])
    if state.requests.is_stopping:  # meanwhile
        return
    log.event("requeue", reason=reason, attempt=job["attempt"] + 1, without=excluded)
    if excluded:
        log.write("the next attempt leaves out " + and_names(excluded))
    number = job["name_for_commands"]
    requests = [["requeue", "Incomplete", number]]  # not what scancel has ended meanwhile
    if excluded:  # Slurm changes this only of a job that waits
        nodes = ",".join(filter(None, [_excluded_before(record), host_list(excluded)]))
        requests.append(["update", "JobId=" + number, "ExcNodeList=" + nodes])
    # Slurm sends SIGTERM at once, to child processes too: they inherit that it is ignored.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    for request in requests:
        done = command_runner.run_slurm(["scontrol", *request], 20)
        if done.code:
            why = done.err.strip() or done.why
            log.write("scontrol %s exited with %d: %s" % (request[0], done.code, why))
            return


def _excluded_before(record: "Record") -> str:
    """The nodes that the job leaves out, as a host list."""
    return record.get("ExcNodeList", "").replace("(null)", "")


def _find_excluded(record: "Record", bad: "List[str]", wanted: int) -> "List[str]":
    if "Partition" not in record:
        return []
    argv = ["sinfo", "--noheader", "--Node", "--partition=" + record["Partition"], NODES_FORMAT]
    before = _excluded_before(record)
    names = command_runner.run_slurm(["scontrol", "show", "hostnames", before], 20).out if before else ""
    shown = command_runner.run_slurm(argv, 20).out
    return choose_excluded(shown, record, names.split(), bad, wanted)
