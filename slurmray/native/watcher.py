"""The states of many jobs with one question to Slurm, as submitit asks for them."""

from __future__ import annotations

import time

from submitit.core.core import InfoWatcher
from submitit.core.logger import get_logger

from slurmray import slurm_commands
from slurmray.errors import SlurmError
from slurmray.job_states import FINAL

# Of a job that ended so long ago that Slurm does not know it; submitit waits for UNKNOWN ones for ever.
FORGOTTEN = "FORGOTTEN"


class Watcher(InfoWatcher):
    """Asks slurmctld, and the accounting only for what that has forgotten: many clusters have none."""

    def __init__(self) -> None:
        super().__init__(
            delay_s=60
        )  # below MinJobAge, 300 s by default, after which ended jobs are forgotten

    def get_state(self, job_id: str, mode: str = "standard") -> str:
        """Slurm's word; UNKNOWN until Slurm has answered. mode: see submitit's InfoWatcher."""
        return self.get_info(job_id, mode=mode).get("State", "UNKNOWN")

    def is_done(self, job_id: str, mode: str = "standard") -> bool:
        """Whether it has ended; a job that waits for another attempt has not."""
        return self.get_state(job_id, mode=mode) in (*FINAL, FORGOTTEN)

    def update(self) -> None:
        """Ask for all jobs that have not ended."""
        jobs = sorted(self._registered - self._finished)
        if not jobs:
            return
        self._num_calls += 1
        self._last_status_check = time.time()
        try:
            states = _ask_squeue(jobs)
            if forgotten := [job for job in jobs if job not in states]:
                states |= dict.fromkeys(forgotten, FORGOTTEN) | _ask_sacct(forgotten)
        except SlurmError as error:
            get_logger().warning(f"the states of jobs are not known: {error}")
            return
        self._info_dict.update({job: {"JobID": job, "State": state} for job, state in states.items()})
        self._finished.update(job for job in jobs if self.is_done(job, mode="cache"))


def _ask_squeue(jobs: list[str]) -> dict[str, str]:
    words = ["squeue", "--noheader", "--array", "--states=all", "--format=%i|%T", f"--jobs={','.join(jobs)}"]
    done = slurm_commands.call(words)
    if done.returncode and "Invalid job id" not in done.stderr:  # what it says when it knows none of them
        raise slurm_commands.refusal(words, done.stderr)
    return _parse(done.stdout)


def _ask_sacct(jobs: list[str]) -> dict[str, str]:
    """Empty where there is no accounting."""
    words = ["sacct", "--allocations", "--noheader", "--parsable2", "--format=JobID,State"]
    return _parse(slurm_commands.call([*words, f"--jobs={','.join(jobs)}"]).stdout)


def _parse(text: str) -> dict[str, str]:
    """Lines of `ID|STATE`; sacct says who: `CANCELLED by 1001`."""
    pairs = (line.strip().split("|") for line in text.splitlines() if "|" in line)
    return {job: state.split()[0] for job, state in pairs}
