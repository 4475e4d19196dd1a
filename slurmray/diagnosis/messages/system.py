"""Loader, libc, kernel: memory, threads, files, disks."""

from slurmray.diagnosis.entries import Message

MESSAGES: tuple[Message, ...] = (
    Message(
        "disk-full",
        "OSError: [Errno 28] No space left on device: '/ckpt/global_step_100'",
        "Python: errno 28",
        r"No space left on device|\[Errno 28\]",
        "A disk was full: often that of checkpoints, or /tmp.",
        "The line names the file. Free space there, or write to another file system.",
        "disk",
    ),
    Message(
        "quota-exceeded",
        "OSError: [Errno 122] Disk quota exceeded: '/home/alice/x'",
        "Python: errno 122",
        r"Disk quota exceeded",
        "Your quota on a file system is used up.",
        "The line names the file. Free space there, or write to another file system.",
    ),
    Message(
        "too-many-open-files",
        "OSError: [Errno 24] Too many open files: '/proc/1/stat'",
        "Python: errno 24",
        r"Too many open files",
        "A process reached its limit of open files.",
        "Raise it in `run`, before the command: ulimit -n $(ulimit -Hn). That hard limit comes from "
        "container.ulimits with Podman and Docker, else from slurmd's LimitNOFILE.",
    ),
    Message(
        "address-in-use",
        "OSError: [Errno 98] Address already in use",
        "Python: errno 98",
        r"Address already in use|EADDRINUSE",
        "A port that the trainer or a service fixes is taken by another program on the node.",
        "Let it choose a free port, or request whole nodes with slurm.exclusive.",
    ),
)
