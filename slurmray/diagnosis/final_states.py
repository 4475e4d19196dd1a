"""Slurm's final states. A requeued job is PENDING instead."""

from slurmray.diagnosis.entries import Explanation

# Source: man squeue, JOB STATE CODES.
STATES = {
    "BOOT_FAIL": Explanation("a node of the job could not boot", fix="Submit the job again."),
    "CANCELLED": Explanation(
        "somebody cancelled the job, or Slurm did",
        "scancel, a dependency that cannot be met, or slurmray after the loss of the head node.",
        "The end of the job's log has the reason if it was slurmray; `sacct -j JOBID` shows who it was.",
    ),
    "COMPLETED": Explanation("the job exited with 0"),
    "DEADLINE": Explanation("the job could not end by slurm.deadline", fix="Set a later one."),
    "FAILED": Explanation(
        "the job exited with another code than 0",
        "`sacct -j JOBID --format=ExitCode` shows the code.",
        "`slurmray why JOBID` shows what failed.",
    ),
    "NODE_FAIL": Explanation(
        "Slurm lost a node of the job",
        "The node's slurmd did not answer for SlurmdTimeout: the host lost power or its network.",
        "Submit the job again, without the node: sbatch --exclude=NODE generated.sh. requeue.max restarts "
        "such jobs.",
    ),
    "OUT_OF_MEMORY": Explanation(
        "a process of the job was killed because memory ran out",
        "The job used more than slurm.mem.",
        "Raise slurm.mem, or let the trainer use less.",
    ),
    "PREEMPTED": Explanation(
        "another job took the nodes",
        "The partition or QOS of the other job has precedence.",
        "Let requeue.max restart the job, and the trainer resume from its checkpoint.",
    ),
    "REVOKED": Explanation("another cluster of the federation started the job"),
    "TIMEOUT": Explanation(
        "the job reached its time limit",
        "slurm.time is too short, or the trainer hangs.",
        "Raise slurm.time. stop.lead is the time in which the trainer can write a checkpoint before that.",
    ),
}
