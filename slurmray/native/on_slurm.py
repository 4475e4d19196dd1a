"""Executor and job of RayExecutor on a Slurm cluster, and the states of many jobs by one request."""

from __future__ import annotations

import os
import shlex
import stat
import time
import uuid
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from submitit.core import core, utils
from submitit.core.logger import get_logger

from slurmray.agent import paths
from slurmray.errors import SlurmError, UsageError
from slurmray.native.bundle import pack
from slurmray.native.driver import RUN_DIR
from slurmray.native.parameters import TIMEOUT_MIN, add_driver, make_job_data
from slurmray.slurm import slurm_commands
from slurmray.slurm.run_directories import last_attempt, read_events
from slurmray.slurm.states import FINAL, is_last_attempt_over

# State of a job that Slurm no longer knows. submitit waits forever for UNKNOWN ones.
FORGOTTEN = "FORGOTTEN"

_Info = dict[str, str]


class Watcher(core.InfoWatcher):
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


def make_folder(folder: Path) -> None:
    """Make an executor's folder, unless it is there.

    UsageError where it belongs to another user but root, or every user may write to it.
    """
    folder.mkdir(mode=0o755, parents=True, exist_ok=True)
    descriptor = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        status = os.fstat(descriptor)
        owner = status.st_uid
        is_own = owner in (0, os.geteuid()) or owner == paths.probe_owner(descriptor)
    finally:
        os.close(descriptor)
    if not is_own:
        text = f"belongs to {paths.user_name(owner)}, whose pickles would run code as you"
        raise UsageError(f"{folder}: {text}; choose another folder")
    if status.st_mode & stat.S_IWOTH:
        text = "every user may write to it, and pickles of others would run code as you"
        raise UsageError(f"{folder}: {text}; choose another folder, or chmod o-w {shlex.quote(str(folder))}")


class RayJob(core.Job[core.R]):
    """A submitit job. It has one task, the driver. Its state is also known without Slurm's accounting."""

    _cancel_command = "scancel"
    watcher = Watcher()

    def __init__(self, folder: Path | str, job_id: str, tasks: Sequence[int] = (0,)) -> None:
        super().__init__(folder, job_id, tasks)
        self._folder = folder

    def done(self, force_check: bool = False) -> bool:
        """Whether the job has ended, even while Slurm waits (SlurmdTimeout) for a lost host."""
        if super().done(force_check):
            return True
        if self.watcher.get_state(self.job_id, mode="cache") != "COMPLETING":
            return False
        runs = utils.JobPaths.get_first_id_independent_folder(self._folder) / RUN_DIR
        try:
            events = read_events(runs / f"{self.job_id}-{last_attempt(runs, self.job_id)}")
        except UsageError:  # not readable here
            return False
        return is_last_attempt_over(events)

    def _interrupt(self, timeout: bool = False) -> None:  # noqa: ARG002 - submitit's
        """Do what preemption and the time limit do, for tests: the driver makes a checkpoint and exits."""
        argv = ["scancel", "--batch", "--signal=USR2", self.job_id]
        done = slurm_commands.call(argv)
        if done.returncode:
            raise slurm_commands.failure(argv, done.stderr)


class RaySlurmExecutor(core.Executor):
    """Submits functions as drivers of scripts that slurmray renders; several at once as an array."""

    def __init__(self, folder: Path | str, max_num_timeout: int):
        super().__init__(folder)
        self.max_num_timeout = max_num_timeout
        self.home = utils.JobPaths.get_first_id_independent_folder(self.folder)

    def _internal_process_submissions(
        self, delayed_submissions: list[utils.DelayedSubmission]
    ) -> list[core.Job[Any]]:
        """Submit the functions; on an error, pickles and script are removed."""
        make_folder(self.home)
        stem = self.home / f".{uuid.uuid4().hex}"
        pickles = [Path(f"{stem}_{index}.pkl") for index in range(len(delayed_submissions))]
        script = stem.with_suffix(".sh")
        try:
            for delayed, path in zip(delayed_submissions, pickles, strict=True):
                delayed.set_timeout(self.parameters.get("timeout_min", TIMEOUT_MIN), self.max_num_timeout)
                delayed.dump(path)
            array = len(pickles) if len(pickles) > 1 else 0
            script.touch(0o600)  # it may have secrets
            script.write_text(self.script(array))
            submitted = self._sbatch(script, array)
        except BaseException:
            for path in (*pickles, script):
                path.unlink(missing_ok=True)
            raise
        number = str(submitted.number)
        ids = [f"{number}_{index}" for index in range(array)] if array else [number]
        jobs: list[core.Job[Any]] = [RayJob(self.folder, job_id) for job_id in ids]
        try:
            for job, path in zip(jobs, pickles, strict=True):
                job.paths.move_temporary_file(path, "submitted_pickle")
            jobs[0].paths.move_temporary_file(script, "submission_file")
        except BaseException:
            slurm_commands.call(["scancel", number])  # without its pickle the job would fail
            raise
        if submitted.message:
            warnings.warn(f"job {number}: {submitted.message}", stacklevel=2)
        return jobs

    def script(self, array: int = 0) -> str:
        """Return the script. array: number of jobs in the array; 0: a single job."""
        from slurmray import api
        from slurmray.spec.job_spec import JobSpec

        data = make_job_data(self.parameters, self.folder, "%A_%a" if array else "%j")
        add_driver(data, self.folder, self.home, pack(self.home), bool(array))
        plan = api.make_plan(JobSpec(**data))
        for remark in api.remarks(plan):
            warnings.warn(remark, stacklevel=2)
        return api.render_plan(plan)

    def _sbatch(self, script: Path, array: int) -> slurm_commands.Submitted:
        """Submit the script to the cluster that is asked for the states of jobs."""
        options = []
        if array:
            most = min(array, self.parameters.get("slurm_array_parallelism", array))
            options.append(f"--array=0-{array - 1}%{most}")
        submitted = slurm_commands.sbatch(*options, str(script))
        if submitted.cluster:
            slurm_commands.call(["scancel", f"--clusters={submitted.cluster}", str(submitted.number)])
            text = f"the job went to cluster {submitted.cluster}, and was cancelled: RayExecutor works with "
            raise SlurmError(f"{text}the default cluster only: unset --clusters and SBATCH_CLUSTERS")
        return submitted
