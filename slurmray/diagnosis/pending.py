"""Why a job is pending, and what to do if that does not pass by itself."""

import re

from slurmray.diagnosis.entries import Message, first


def _reason(example: str, cause: str, fix: str = "") -> Message:
    """A reason. Many begin with what is before a bar in the example."""
    begin, bar, _ = example.partition("|")
    pattern = f"^{begin}" if bar else rf"^{begin}\b"
    return Message("", example.replace("|", ""), "man squeue, JOB REASON CODES", pattern, cause, fix)


NEVER = "DependencyNeverSatisfied"
PENDING = (
    _reason("Assoc|GrpGRES", "a limit of your account is reached"),
    _reason("BadConstraints", "no node has what it asks for", "correct slurm.constraint, or request less"),
    _reason("BeginTime", "it is not to start yet: slurm.begin, or Slurm's two minutes after a requeue"),
    _reason("Dependency", "waits for another job: slurm.dependency"),
    _reason("JobArrayTaskLimit", "waits for other tasks of the array"),
    _reason("JobHeldAdmin", "held by an administrator", "ask why"),
    _reason("JobHeldUser", "held by you", "scontrol release lets it start"),
    _reason("Licenses", "waits for a license"),
    _reason("MaxJobs|PerAccount", "a limit on your running jobs is reached"),
    _reason("Nodes_required|_for_job_are_DOWN", "nodes that it needs are down, drained or reserved"),
    _reason("PartitionDown", "the partition starts no jobs now"),
    _reason("PartitionInactive", "the partition starts no jobs now"),
    _reason("PartitionNodeLimit", "more nodes than the partition allows", "lower slurm.nodes"),
    _reason("PartitionTimeLimit", "longer than the partition allows", "lower slurm.time"),
    _reason("Priority", "waits behind jobs with a higher priority"),
    _reason("QOS|MaxJobsPerUserLimit", "a limit of the QOS is reached"),
    _reason("ReqNodeNotAvail", "nodes that it needs are down, drained or reserved"),
    _reason("Reservation", "waits for its reservation"),
    _reason("Resources", "waits for free nodes"),
)


def explain(state: str, reason: str, dependency: str) -> str:
    """Return why a job waits, or why it never started, in words; "" for another job.

    state, reason, dependency: as Slurm prints them. Slurm's own name of a reason that is not known here.
    """
    if reason == NEVER and state in ("PENDING", "CANCELLED"):
        failed = re.findall(r"\b(after\w*):([0-9_*+]+)\(failed\)", dependency)
        jobs = " and ".join(f"{job} ({kind})" for kind, job in failed)
        cause = f"the job that it waited for{jobs and ', '}{jobs}{jobs and ','} ended otherwise"
        return f"never starts, as {cause}: cancel it" if state == "PENDING" else cause
    if state != "PENDING":
        return ""
    if reason.partition(",")[0] in ("", "None"):
        return "Slurm has not looked at it yet"
    known = first(PENDING, reason)
    return f"{': '.join(filter(None, (known.cause, known.fix)))} ({reason})" if known else reason
