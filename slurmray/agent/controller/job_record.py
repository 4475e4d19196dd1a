"""Parses `scontrol show job`: restarts, array task and memory of this job.

The environment is no evidence: sbatch passes on the variables of another job in which it runs, and
Slurm does not set SLURM_RESTART_COUNT in a first attempt.
"""

import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Optional


def find_record(shown: str, number: str) -> str:
    """The record of one job; "" for none. shown: by an array's id, the records of all of its tasks."""
    records = re.split(r"^(?=JobId=)", shown, flags=re.MULTILINE)
    matches = [record for record in records if record.startswith("JobId=%s " % number)]
    return matches[0] if matches else ""


def read_array_task(record: str) -> str:
    """ARRAY_TASK for a task of an array, whose id may mean all tasks to Slurm's commands; else ""."""
    match = re.match(r"JobId=\S+ ArrayJobId=(\d+) ArrayTaskId=(\d+) ", record)
    return "%s_%s" % match.groups() if match else ""


def read_restarts(record: str) -> "Optional[int]":
    """How many times Slurm has restarted the job; None: unknown."""
    match = re.search(r"^ +Requeue=\d+ Restarts=(\d+) ", record, re.MULTILINE)
    return int(match.group(1)) if match else None


def read_charged_memory(record: str) -> float:
    """Memory that Slurm charges the job for, on all its nodes, in MiB; 0: unknown."""
    # Before Slurm 23 it is TRES=. Numbers are e.g. 16000M, 15.63G.
    tres = r"^ +(?:Alloc)?TRES=(?:\S*,)?mem=(\d{1,15}(?:\.\d+)?)([KMGTP])(?:,|$)"
    match = re.search(tres, record, re.MULTILINE)
    return float(match.group(1)) * 1024.0 ** ("KMGTP".index(match.group(2)) - 1) if match else 0.0


def read_memory_variable(record: str) -> "Optional[str]":
    """The variable of the job's memory, without SLURM_: MEM_PER_NODE, _CPU or _GPU, by the site's default.

    "": there is no limit. None: unknown.
    """
    if re.search("^ +MemPerTres=", record, re.MULTILINE):
        return "MEM_PER_GPU"
    match = re.search(r"^ .*\bMinMemory(CPU|Node)=(\S+)", record, re.MULTILINE)
    if not match:
        return None
    return "" if match.group(2) == "0" else "MEM_PER_" + match.group(1).upper()
