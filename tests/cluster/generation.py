"""Which generation of scripts the cluster tests run: bash (the default), or with SLURMRAY_TEST_AGENT=1 the
agent.

The tests expect the bash generation's log and processes. For the agent both are translated here, so that the
whole fault matrix can be run against it before it becomes the default; then this module goes, and the tests
expect its log lines.
"""

from __future__ import annotations

import os
import re

IS_AGENT = bool(os.environ.get("SLURMRAY_TEST_AGENT"))

# Hosts of the bash generation have no Python; the agent needs one.
PACKAGES = ["python3"] if IS_AGENT else []

# The agent's log line -> the bash generation's.
_LINES = [
    (
        r"done: trainer exited with (\d+) \(128 \+ signal (\w+)\)",
        r"end: exit code \1 from trainer: its own, which stands for signal \2",
    ),
    (r"done: trainer exited with (\d+)", r"end: exit code \1 from trainer: its own"),
    (r"failed \((\d+) [a-z ]+\): ", r"end: exit code \1 from slurmray: "),
    (
        r"stopped by Slurm: scancel, preemption or the time limit",
        "end: exit code 143 from slurm: the job was ended by scancel, preemption or its time limit",
    ),
    (
        r"\] attempt (\d+) of this job; at most (\d+) more after lost nodes or preemption",
        r"] attempt: \1, and at most \2 more after losses",
    ),
    (r"Slurm has restarted the job (\d+) times; requeue", r"Slurm has restarted the job \1 times, requeue"),
    (r"\] stop: scancel, preemption", "] stop: asked to end by scancel, preemption"),
    (r"\] attach: ", "] to look in: "),
    (r"\] leftovers: removed", "] sweep: removed"),
    (r"container name: (\S+) exists, of", r"container name: \1 is there, of"),
    (r"cannot execute (\w+): ", r"failed to run command '\1': "),
    (r"\| fix /", "| mend /"),
    (r"; fix /", "; mend /"),
    (r"\] node loss: ", "] node_loss: "),
    (r"\] findings:", "] found on the nodes:"),
    (r"the trainer exited with", "the trainer ended with"),
    (r"container exited unexpectedly \(not stopped by Slurm\)", "its container has ended, and not by Slurm"),
    (r"no heartbeat for (\d+) s\. Has it lost", r"no sign of life for \1 s: has it lost"),
    (
        r"no heartbeat from the head node (\S+) for (\d+) s\. Has",
        r"no sign of life from the head \1 for \2 s: has",
    ),
    (
        r"time limit or preemption near: the trainer was stopped and exited with",
        "the time limit, or preemption, was near, the trainer was stopped and ended with",
    ),
    (
        r"time limit or preemption near: the trainer was stopped and had not started",
        "the time limit, or preemption, was near, the trainer had not started",
    ),
    (r"\] time limit or preemption near: ", "] time_limit: it, or preemption, is near: "),
    (r"cluster not ready", "the cluster is not whole"),
    (r"\] not ready: ", "] missing: "),
    (r"exited with (\d+)", r"ended with \1"),
    (
        r"(\w+) exited while Ray was starting\. The node's log has its last lines",
        r"\1 ended while Ray was starting",
    ),
]
# pgrep's pattern of a process of the bash generation -> of the agent.
_PROCESSES = {
    "^(/usr)?(/bin/)?bash -c IFS= read": "^[^ ]*python3 -I -S -c .* node$",
    "^[^ ]*python3 [^ ]*/inside/guard.py": "^[^ ]*python3 -I [^ ]*/agent guard ",
    "^[^ ]*python3 [^ ]*/node.py": "^[^ ]*python3 -I [^ ]*/agent container ",
    "^[^ ]*python3 [^ ]*/waiting_ray.py": "^[^ ]*python3 [^ ]*/agent ray ",
}


def log(text: str) -> str:
    """A job's log as the tests expect it."""
    if IS_AGENT:
        for pattern, replacement in _LINES:
            text = re.sub(pattern, replacement, text)
    return text


def process(pattern: str) -> str:
    """pgrep's pattern of a process."""
    return _PROCESSES.get(pattern, pattern) if IS_AGENT else pattern
