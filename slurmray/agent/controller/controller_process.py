"""The controller's process in the batch script, on the head node: from the allocation to the exit code."""

import os
import re
import signal
import subprocess

from .. import (
    background_io,
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

    from ..wire.settings import Job, Settings
    from .notices import Webhook


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
        if settings["notify"]:
            from . import notices

            used = settings["env_from_submitter"]
            webhook = notices.open_webhook(settings["notify"], used, os.environ, log)
        components = allocation.find_components(settings, nodes)
        job = allocation.make_job(settings, components, started, log)
        run_directory.begin(job, settings, log)
        run = JobRun(text, job, components, log, files, requests, turns)
        if parts.is_needed("restart", settings):
            from . import restarts

            outcome = restarts.run_as_often_as_wanted(run, settings)
        else:
            outcome = run.run()
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


def _run_epilogue(argv: "List[str]", run_dir: str) -> None:
    """Run the site's commands, with heartbeats as in restarts.py."""
    files = background_io.CallQueue("the run directory")
    process = subprocess.Popen(argv, stdin=subprocess.DEVNULL)
    while process.poll() is None:
        files.submit(lambda: run_directory.write_heartbeat(run_dir))
        try:
            process.wait(heartbeat.LONGEST)
        except subprocess.TimeoutExpired:
            pass


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
