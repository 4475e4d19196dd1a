"""Another start of Ray and trainer in the allocation, once a start has ended."""

import os

from .. import command_runner, heartbeat
from . import requeue, run_directory
from .job_run import JobRun
from .roster import Roster

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ..wire.settings import Job, Settings
    from .outcome import Outcome

SLURMCTLD_WAIT = 600.0  # seconds until a restart is tried without an answer of slurmctld
# Seconds in which it must have answered again. An srun in its first 5 s waits two minutes (22.05.8).
SLURMCTLD_BEGINS = 10.0


def run_as_often_as_wanted(run: JobRun, settings: "Settings") -> "Outcome":
    """Run the first start and those after it; return the last outcome. settings: of the script.

    Then Slurm is asked for another attempt, if the job spec wants that.
    """
    roster, ran = Roster(settings, run.job), 0.0
    while True:
        outcome = run.run()
        ran += run.clock.now()
        if not roster.restart(run.controller, outcome, ran):
            break
        job = next_start(run, roster, outcome)
        _await_slurmctld(run)
        run = JobRun(run.text, job, run.components, run.log, run.files, run.requests, run.loop)
    if roster.refusal:
        run.log.write("not started again: " + roster.refusal)
    record = run.components[0].record
    requeue.requeue_if_wanted(run.controller, outcome, record, roster.allocated, roster.bad)
    return outcome


def next_start(run: JobRun, roster: Roster, outcome: "Outcome") -> "Job":
    """The description of the next start in this allocation, after `run`."""
    run.log.event(
        "restart",
        restart=roster.restarts,
        nodes=roster.nodes,
        spares=roster.spares,
        failed=roster.failed,
        text=roster.describe(run.controller, outcome, run.job["nodes"]),
    )
    return {
        **run.job,
        "nodes": roster.nodes,
        "spares": roster.spares,
        "spares_of_groups": roster.spares_of_groups,
        "restart": roster.restarts,
        "token": os.urandom(32).hex(),
    }


def _await_slurmctld(run: JobRun) -> None:
    """Wait until slurmctld can start a step: srun tries for seconds only, and a job that runs has time.

    Without heartbeats a worker that was cut off would end the job meanwhile.
    """
    clock, due = heartbeat.Clock(), 0.0

    def is_end_requested() -> bool:
        clock.now()  # a ping may take as long as what it takes for a suspension
        return run.requests.is_end_requested

    while clock.now() < SLURMCTLD_WAIT:
        code = command_runner.run_slurm(["scontrol", "ping"], 10, is_interrupted=is_end_requested).code
        if is_end_requested() or not (code or clock.now() < due):
            return
        if code and not due:
            run.log.write("slurmctld does not answer; the next start waits for it")
        due = clock.now() + SLURMCTLD_BEGINS if code else due
        run.files.submit(lambda: run_directory.write_heartbeat(run.job["run_dir"]))
        run.loop.turn(1.0)
