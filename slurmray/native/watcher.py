"""States of many jobs by one request to Slurm, in the form that submitit needs."""

from __future__ import annotations

import time

from submitit.core.core import InfoWatcher
from submitit.core.logger import get_logger

from slurmray.errors import SlurmError
from slurmray.slurm import slurm_commands
from slurmray.slurm.states import FINAL

# State of a job that Slurm no longer knows. submitit waits forever for UNKNOWN ones.
FORGOTTEN = "FORGOTTEN"

_Info = dict[str, str]


class Watcher(InfoWatcher):
    """Asks slurmctld, and the accounting, which many clusters lack, only for jobs that it has forgotten."""

    def __init__(self) -> None:
        super().__init__(delay_s=60)  # ended jobs are forgotten after MinJobAge, 300 s by default

    def get_state(self, job_id: str, mode: str = "standard") -> str:
        """Slurm's name of the state; UNKNOWN until Slurm has answered. mode: see submitit's InfoWatcher."""
        return self.get_info(job_id, mode=mode).get("State", "UNKNOWN")

    def is_done(self, job_id: str, mode: str = "standard") -> bool:
        """Whether the job has ended; one that waits for another attempt has not."""
        return self.get_state(job_id, mode=mode) in (*FINAL, FORGOTTEN)

    def update(self) -> None:
        """Request the states of all jobs that have not ended."""
        jobs = sorted(self._registered - self._finished)
        if not jobs:
            return
        self._num_calls += 1
        self._last_status_check = time.time()
        try:
            argv = ["squeue", "--noheader", "--array", "--states=all", "--format=%i|%T", _option(jobs)]
            infos = _parse(slurm_commands.output(argv, may_be_unknown=True))  # when it knows none of them
            if forgotten := [job for job in jobs if job not in infos]:
                infos |= {job: {"JobID": job, "State": FORGOTTEN} for job in forgotten}
                infos |= _parse(slurm_commands.sacct("JobID,State", _option(forgotten)))  # may be empty
        except SlurmError as error:
            get_logger().warning(f"the states of jobs are unknown: {error}")
            return
        self._info_dict.update(infos)
        self._finished.update(job for job in jobs if self.is_done(job, mode="cache"))


def _option(jobs: list[str]) -> str:
    """The option for jobs, of tasks for their whole array: an argument has at most 128 KB."""
    return f"--jobs={','.join(dict.fromkeys(job.partition('_')[0] for job in jobs))}"


def _parse(output: str) -> dict[str, _Info]:
    """Lines of `ID|STATE`. sacct adds a name: `CANCELLED by 1001`."""
    pairs = (line.strip().partition("|")[::2] for line in output.splitlines())
    return {job: {"JobID": job, "State": state.split()[0]} for job, state in pairs if state}
