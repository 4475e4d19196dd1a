"""Slurm: limits, steps, signals, lost nodes."""

from slurmray.diagnosis.entries import Message

MESSAGES: tuple[Message, ...] = (
    Message(
        "slurm-oom-kill",
        "slurmstepd: error: Detected 1 oom_kill event in StepId=7.0. Some of the step tasks have been OOM Killed.",
        "Slurm: src/slurmd/slurmstepd/mgr.c, and srun",
        r"Detected \d+ oom.kill events? in StepId=|task \d+: Out Of Memory",
        "The job used more memory than slurm.mem, and the kernel killed a process.",
        "Raise slurm.mem, or let the trainer use less.",
    ),
)
