"""Why a job is pending, and what to do if that does not pass by itself."""

from slurmray.diagnosis.entries import Message, first


def _reason(example: str, cause: str, fix: str = "", *, pattern: str = "") -> Message:
    """A reason. pattern: of its begin; "": the example, as a whole word."""
    source = "man squeue, JOB REASON CODES"
    return Message(example, source, "^" + (pattern or rf"{example}\b"), cause, fix)


PENDING = (
    _reason("BadConstraints", "no node has what it asks for", "correct slurm.constraint, or request less"),
    _reason("BeginTime", "it is not to start yet: slurm.begin, or Slurm's two minutes after a requeue"),
    _reason("Dependency", "waits for another job: slurm.dependency"),
    _reason(
        "DependencyNeverSatisfied",
        "will never start, as the job that it waits for ended otherwise",
        "cancel it",
    ),
    _reason("JobArrayTaskLimit", "waits for other tasks of the array"),
    _reason("JobHeldAdmin", "held by an administrator", "ask why"),
    _reason("JobHeldUser", "held by you", "scontrol release lets it start"),
    _reason("Licenses", "waits for a license"),
    _reason("PartitionDown", "the partition starts no jobs now", pattern=r"Partition(Down|Inactive)\b"),
    _reason("PartitionNodeLimit", "more nodes than the partition allows", "lower slurm.nodes"),
    _reason("PartitionTimeLimit", "longer than the partition allows", "lower slurm.time"),
    _reason("Priority", "waits behind jobs with a higher priority"),
    _reason(
        "ReqNodeNotAvail",
        "nodes that it needs are down, drained or reserved",
        pattern=r"(ReqNodeNotAvail\b|Nodes_required)",
    ),
    _reason("Reservation", "waits for its reservation"),
    _reason("Resources", "waits for free nodes"),
    # Their names are many.
    _reason("AssocGrpGRES", "a limit of your account is reached", pattern="Assoc"),
    _reason("MaxJobsPerAccount", "a limit on your running jobs is reached", pattern="MaxJobs"),
    _reason("QOSMaxJobsPerUserLimit", "a limit of the QOS is reached", pattern="QOS"),
)


def in_words(reason: str) -> str:
    """Return why a job is pending, in words; Slurm's own name of the reason if it is not known here."""
    if reason.partition(",")[0] in ("", "None"):
        return "Slurm has not looked at it yet"
    known = first(PENDING, reason)
    return f"{': '.join(filter(None, (known.cause, known.fix)))} ({reason})" if known else reason
