"""Finds and ends processes of a job on the host."""

import os
import signal
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import List

# The job's folder. Set for processes of the job that are visible on the host, by which they are found.
FOLDER_VARIABLE = "SLURMRAY_TEMP"


def end_processes(folder: str) -> bool:
    """Kill this user's processes of the job with that folder. Return whether none is left.

    Spares jobs submitted from within it: they inherited FOLDER_VARIABLE, but have another job id.
    """
    job_id = os.path.basename(folder).split("-")[1]  # ray-JOBID-...
    for _ in range(20):
        found = processes_of(folder, job_id)
        if not found:
            return True
        for pid in found:
            try:
                os.kill(pid, signal.SIGKILL)
            except OSError:
                pass
        time.sleep(0.1)
    return False


def processes_of(folder: str, job_id: str) -> "List[int]":
    """Pids of processes with that folder and job id in their environment. Zombies have no environment."""
    wanted = os.fsencode("%s=%s" % (FOLDER_VARIABLE, folder))
    job = b"SLURM_JOB_ID=" + job_id.encode()
    found = []
    for name in os.listdir("/proc"):
        if not name.isdigit() or int(name) == os.getpid():
            continue
        try:
            with open("/proc/%s/environ" % name, "rb") as file:
                entries = file.read().split(b"\0")
        except OSError:
            continue
        if wanted in entries and all(e == job for e in entries if e.startswith(b"SLURM_JOB_ID=")):
            found.append(int(name))
    return found
