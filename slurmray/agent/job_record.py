"""Reads the records of `scontrol show job`, as Slurm 21.08 to 26.05 print them.

A record, {field: text}, has each field from where Slurm writes it. The agent reads restarts, array task,
memory and end of this job, for which the environment is no evidence: sbatch passes on the variables of
another job in which it runs, and Slurm does not set SLURM_RESTART_COUNT in a first attempt.
"""

import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, List, Optional

    Record = Dict[str, str]

# Lines with values of Slurm, by their first fields. Not Priority and OverSubscribe, which have Account and
# Network: these are what the user wants, where no accounting checks it.
OWN = """
AllocTRES BatchFeatures BatchHost JobState MinCPUsNode NodeList Partition ReqNodeList ReqTRES Requeue
RunTime StartTime SubmitTime TRES
""".split()  # noqa: SIM905 - one name a line would hide the rest
# Lines with one field. What users choose Slurm prints as it is, with blanks and line breaks in it.
TEXTS = ("Command", "MemPerTres", "StdErr", "StdOut", "SubmitLine", "WorkDir")
NUMBER = "[0-9]{1,10}"
# The second: of a job without --time in a partition without a limit.
NO_LIMIT = ("UNLIMITED", "365-00:00:00")
FORMS = {
    "ArrayJobId": NUMBER,
    "ArrayTaskId": NUMBER + r"(?:[^0-9]\S*)?",  # of several tasks that wait: 3-5%2
    "BatchHost": "[A-Za-z0-9._-]+",
    "ExitCode": "[0-9]{1,3}:[0-9]{1,3}",
    "HetJobOffset": NUMBER,
    "JobId": NUMBER,
    "JobState": "[A-Z_]{1,40}",
    "Restarts": NUMBER,
}


def parse_records(shown: str) -> "List[Record]":
    """The records of a job, of an array's tasks, or of a heterogeneous job's components.

    []: none, or not known, as a text of the user has lines like those of Slurm.
    """
    records = [_parse(text) for text in ("\n" + shown).split("\nJobId=")[1:]]
    if not all(records):
        return []
    arrays = {record.get("ArrayJobId") or record.get("HetJobId") for record in records}
    is_of_several = len(arrays) == 1 and None not in arrays
    are_different = len({record["JobId"] for record in records}) == len(records)
    return records if len(records) == 1 or (is_of_several and are_different) else []


def _parse(text: str) -> "Record":
    """The fields of a record without the beginning `JobId=`; {} if it is not as Slurm writes it."""
    first, *lines = text.split("\n")  # not splitlines(), which breaks at other characters as well
    head, _, name = first.partition(" JobName=")  # the name reaches to the end of the line
    record = dict(_pairs("JobId=" + head), JobName=name)
    found = set()
    for line in lines:
        field, _, value = line[3:].partition("=")
        if line[:3] != "   " or (field not in OWN and field not in TEXTS):
            continue
        if field in found:
            return {}
        found.add(field)
        record.update({field: value} if field in TEXTS else _pairs(line))
    is_sound = all(name not in record or re.fullmatch(form, record[name]) for name, form in FORMS.items())
    return record if is_sound else {}


def _pairs(line: str) -> "Record":
    return dict(part.split("=", 1) for part in line.split() if "=" in part)


def find_record(shown: str, number: str) -> "Record":
    """The record of one job; {}: not known. shown: by an array's id, the records of all of its tasks."""
    return next((record for record in parse_records(shown) if record["JobId"] == number), {})


def read_array_task(record: "Record") -> str:
    """ARRAY_TASK for a task of an array, whose id may mean all tasks to Slurm's commands; else ""."""
    task = record.get("ArrayTaskId", "")
    return "%s_%s" % (record["ArrayJobId"], task) if task.isdigit() else ""


def read_restarts(record: "Record") -> "Optional[int]":
    """How many times Slurm has restarted the job; None: unknown."""
    return int(record["Restarts"]) if "Restarts" in record else None


def read_end_time(record: "Record") -> int:
    """When Slurm ends the job, in seconds since 1970; 0: it has no time limit, or unknown.

    record: as run_slurm() has it printed. Without a limit, Slurm prints a time a year ahead, or Unknown.
    """
    is_known = re.fullmatch(NUMBER, record.get("EndTime", "")) and record.get("TimeLimit") not in NO_LIMIT
    return int(record["EndTime"]) if is_known else 0


def read_charged_memory(record: "Record") -> float:
    """Memory that Slurm charges the job for, on all its nodes, in MiB; 0: unknown."""
    tres = record.get("AllocTRES") or record.get("TRES", "")  # the latter before Slurm 23
    match = re.match(r"(?:\S*,)?mem=(\d{1,15}(?:\.\d+)?)([KMGTP])(?:,|$)", tres)  # e.g. 16000M, 15.63G
    return float(match.group(1)) * 1024.0 ** ("KMGTP".index(match.group(2)) - 1) if match else 0.0


def read_memory_variable(record: "Record") -> "Optional[str]":
    """The variable of the job's memory, without SLURM_: MEM_PER_NODE, _CPU or _GPU, by the site's default.

    "": there is no limit. None: unknown.
    """
    if "MemPerTres" in record:
        return "MEM_PER_GPU"
    for kind in ("CPU", "Node"):
        if "MinMemory" + kind in record:
            return "" if record["MinMemory" + kind] == "0" else "MEM_PER_" + kind.upper()
    return None
