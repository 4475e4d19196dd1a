"""The controller's process in the batch script, on the head node: from the allocation to the exit code."""

import os
import re
import signal
import subprocess

from .. import (
    background_io,
    command_runner,
    heartbeat,
    inherited,
    job_errors,
    job_log,
    loop,
    parts,
    script_parts,
    signals,
)
from . import allocation, run_directory
from .job_run import JobRun
from .outcome import Outcome
from .state import Requests

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List, Optional

    from ..job_record import Record
    from ..wire.settings import Job, Settings
    from .notices import Webhook
    from .roster import Roster

SLURMCTLD_WAIT = 600.0  # seconds until a restart is tried without an answer of slurmctld
# Seconds in which it must have answered again. An srun in its first 5 s waits two minutes (22.05.8).
SLURMCTLD_BEGINS = 10.0


def run_controller(text: str, nodes: "List[str]", started: float) -> int:
    """Run the job to its end and return its exit code.

    text: the script. nodes: their names, the head node first. started: time.time() when the batch script
    began.
    """
    inherited.add_account(os.environ)
    inherited.raise_soft_limits()
    settings = script_parts.read_settings(text)
    log = job_log.JobLog(started)
    background_io.errors.write = log.write
    files = background_io.CallQueue("the run directory")
    requests = Requests()
    turns = _catch_signals(requests)
    job: "Optional[Job]" = None
    webhook: "Optional[Webhook]" = None
    try:
        _require_parts(text, settings)
        webhook = _open_webhook(settings, log)
        components = allocation.find_components(settings, nodes)
        job = allocation.make_job(settings, components, started, log)
        run_directory.begin(job, settings, log)
        roster, ran = _make_roster(settings, job), 0.0
        while True:
            run = JobRun(text, job, components, log, files, requests, turns)
            outcome = run.run()
            ran += run.clock.now()
            if not (roster and roster.restart(run.controller, outcome, ran)):
                break
            job = _next_start(job, roster, run, outcome, log)
            _await_slurmctld(requests, turns, log, files, job["run_dir"])
        if roster:
            _requeue_if_wanted(roster, run, outcome, components[0].record)
    except job_errors.JobError as error:
        outcome = _make_outcome(error, requests)
    except Exception as error:
        kind, what = job_log.describe(error)  # whether or not the log can be written
        what += ". Please report it with the lines above" if kind == "internal" else ""
        outcome = _make_outcome(job_errors.JobError(kind, what), requests)
    end: "Dict[str, Any]" = {
        "exit_code": outcome.code,
        "source": outcome.source,
        "kind": outcome.kind,
        "node": outcome.node,
        "text": outcome.text,
    }
    is_stopping = requests.is_stopping  # then Slurm kills this process soon, and the record comes first
    if webhook and not is_stopping:
        webhook.finish(end)  # before the log's last line: it may write one
    background_io.errors.write = lambda _: None  # the end is the log's last line
    log.event("end", **end)
    files.finish(job_log.FLUSH_SECONDS)
    log.finish()
    if webhook and is_stopping:
        webhook.finish(end)
    if job and script_parts.has_function(text, "site_epilogue"):
        argv = script_parts.story_command(text, "site_epilogue", job["run_dir"], str(outcome.code))
        _run_epilogue(argv, job["run_dir"])
    signals.ignore()
    return outcome.code


def _require_parts(text: str, settings: "Settings") -> None:
    """Raise a JobError where the script, whose settings somebody has edited, lacks parts of the agent."""
    carried = re.findall("^# slurmray-agent ([a-z_]+): ", text, re.MULTILINE)
    counts = [0, *map(int, settings.get("fewer_nodes", {}))]
    starts = [script_parts.read_start_settings(text, count) for count in counts]
    missing = sorted({name for start in starts for name in parts.needed_parts(start)} - {*carried})
    if missing:
        message = (
            "the settings were edited, and need what this script does not have (%s): render it again: %s"
        )
        raise job_errors.JobError("config", message % (", ".join(missing), settings["render_again"]))


def _make_roster(settings: "Settings", job: "Job") -> "Optional[Roster]":
    if not parts.is_needed("restart", settings):
        return None
    from .roster import Roster

    return Roster(settings, job)


def _requeue_if_wanted(roster: "Roster", run: JobRun, outcome: Outcome, record: "Record") -> None:
    """Have Slurm start the job again, if the job spec asks for that. record: of the job."""
    from . import requeue

    if roster.refusal:
        run.log.write("not started again: " + roster.refusal)
    state, nodes, bad = run.controller.state, roster.allocated, roster.bad
    requeue.requeue_if_wanted(state, run.settings, run.job, outcome, record, nodes, bad, run.log)


def _open_webhook(settings: "Settings", log: job_log.JobLog) -> "Optional[Webhook]":
    if not settings["notify"]:
        return None
    from . import notices

    return notices.open_webhook(settings["notify"], settings["env_from_submitter"], os.environ, log)


def _await_slurmctld(
    requests: Requests, turns: loop.Loop, log: job_log.JobLog, files: background_io.CallQueue, run_dir: str
) -> None:
    """Wait until slurmctld can start a step: srun tries for seconds only, and a job that runs has time.

    Without heartbeats a worker that was cut off would end the job meanwhile.
    """
    clock, due = heartbeat.Clock(), 0.0

    def is_end_requested() -> bool:
        clock.now()  # a ping may take as long as what it takes for a suspension
        return requests.is_end_requested

    while clock.now() < SLURMCTLD_WAIT:
        code = command_runner.run_slurm(["scontrol", "ping"], 10, is_interrupted=is_end_requested).code
        if is_end_requested() or not (code or clock.now() < due):
            return
        if code and not due:
            log.write("slurmctld does not answer; the next start waits for it")
        due = clock.now() + SLURMCTLD_BEGINS if code else due
        files.submit(lambda: run_directory.write_heartbeat(run_dir))
        turns.turn(1.0)


def _run_epilogue(argv: "List[str]", run_dir: str) -> None:
    """Run the site's commands, with heartbeats as in _await_slurmctld."""
    files = background_io.CallQueue("the run directory")
    process = subprocess.Popen(argv, stdin=subprocess.DEVNULL)
    while process.poll() is None:
        files.submit(lambda: run_directory.write_heartbeat(run_dir))
        try:
            process.wait(heartbeat.INTERVAL)
        except subprocess.TimeoutExpired:
            pass


def _next_start(job: "Job", roster: "Roster", run: JobRun, outcome: Outcome, log: job_log.JobLog) -> "Job":
    """The description of the next start in this allocation, after `run`."""
    log.event(
        "restart",
        restart=roster.restarts,
        nodes=roster.nodes,
        spares=roster.spares,
        failed=roster.failed,
        text=roster.describe(run.controller, outcome, job["nodes"]),
    )
    return {
        **job,
        "nodes": roster.nodes,
        "spares": roster.spares,
        "spares_of_groups": roster.spares_of_groups,
        "restart": roster.restarts,
        "token": os.urandom(32).hex(),
    }


def _catch_signals(requests: Requests) -> loop.Loop:
    """Make the loop of this process, in which Slurm's signals are requests."""
    turns = loop.Loop(requests.signals.append)
    turns.catch(signal.SIGTERM, lambda: setattr(requests, "is_stopping", True))
    turns.catch(signals.WARNING, lambda: setattr(requests, "is_time_up", True))
    return turns


def _make_outcome(error: job_errors.JobError, requests: Requests) -> Outcome:
    if requests.is_stopping:  # it failed because Slurm is ending the job
        return Outcome.stopped()
    return Outcome.failed(error.kind, "", error.message)
