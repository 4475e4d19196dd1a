"""The executor and the job of RayExecutor where there is a Slurm."""

from __future__ import annotations

import subprocess
import uuid
import warnings
from pathlib import Path
from typing import Any

from submitit.core import core, utils

from slurmray import slurm_commands
from slurmray.errors import SlurmError
from slurmray.native.luggage import pack
from slurmray.native.parameters import TIMEOUT_MIN, give_driver, job_data
from slurmray.native.watcher import Watcher


class RayJob(core.Job[core.R]):
    """A job of submitit's. It has one task, the driver, and a state without Slurm's accounting, too."""

    _cancel_command = "scancel"
    watcher = Watcher()

    def done(self, force_check: bool = False) -> bool:
        """Whether the job has ended, also where Slurm waits (SlurmdTimeout) for a host that is lost."""
        if super().done(force_check):
            return True
        if self.watcher.get_state(self.job_id, mode="cache") != "COMPLETING":
            return False
        log = self.stderr() or self.stdout() or ""
        attempt = log[log.rfind("] start: job ") :]
        return "] end: exit code " in attempt and "] requeue: " not in attempt

    def _interrupt(self, timeout: bool = False) -> None:  # noqa: ARG002 - submitit's
        """What preemption and the time limit do, for tests: the driver makes a checkpoint and ends."""
        subprocess.check_call(["scancel", "--batch", "--signal=USR2", self.job_id])


class RaySlurmExecutor(core.Executor):
    """Submits functions as the drivers of scripts that slurmray renders; several at once as an array."""

    def __init__(self, folder: Path | str, max_num_timeout: int):
        super().__init__(folder)
        self.max_num_timeout = max_num_timeout
        self.home = utils.JobPaths.get_first_id_independent_folder(self.folder)

    def _internal_process_submissions(
        self, delayed_submissions: list[utils.DelayedSubmission]
    ) -> list[core.Job[Any]]:
        """No pickle and no script is left of what could not be pickled or was refused."""
        self.home.mkdir(parents=True, exist_ok=True)
        stem = self.home / f".{uuid.uuid4().hex}"
        pickles = [Path(f"{stem}_{index}.pkl") for index in range(len(delayed_submissions))]
        script = stem.with_suffix(".sh")
        try:
            for delayed, path in zip(delayed_submissions, pickles, strict=True):
                delayed.set_timeout(self.parameters.get("timeout_min", TIMEOUT_MIN), self.max_num_timeout)
                delayed.dump(path)
            array = len(pickles) if len(pickles) > 1 else 0
            script.write_text(self.script(array))
            done = self._sbatch(script, array)
        except BaseException:
            for path in (*pickles, script):
                path.unlink(missing_ok=True)
            raise
        number = str(done.number)
        ids = [f"{number}_{index}" for index in range(array)] if array else [number]
        jobs: list[core.Job[Any]] = [RayJob(self.folder, job_id) for job_id in ids]
        try:
            for job, path in zip(jobs, pickles, strict=True):
                job.paths.move_temporary_file(path, "submitted_pickle")
            jobs[0].paths.move_temporary_file(script, "submission_file")
        except BaseException:
            slurm_commands.call(["scancel", number])  # without its pickle a job is of no use
            raise
        if done.said:
            warnings.warn(f"job {number}: {done.said}", stacklevel=2)
        return jobs

    def script(self, array: int = 0) -> str:
        """Return what is submitted. array: how many jobs it is for, as an array; 0: one, as none."""
        from slurmray import api
        from slurmray.spec import JobSpec

        data = job_data(self.parameters, self.folder, "%A_%a" if array else "%j")
        for note in api.remarks(JobSpec(**data)):
            warnings.warn(note, stacklevel=2)
        give_driver(data, self.folder, self.home, pack(self.home), bool(array))
        return api.render(JobSpec(**data))

    def _sbatch(self, script: Path, array: int) -> slurm_commands.Submitted:
        """Submit it, to the cluster whose jobs are asked after."""
        words = []
        if array:
            most = min(array, self.parameters.get("slurm_array_parallelism", array))
            words.append(f"--array=0-{array - 1}%{most}")
        done = slurm_commands.sbatch(*words, str(script))
        if done.cluster:
            slurm_commands.call(["scancel", f"--clusters={done.cluster}", str(done.number)])
            text = f"the job went to the cluster {done.cluster}, and was cancelled: RayExecutor asks after "
            raise SlurmError(f"{text}those of the default one: take --clusters and SBATCH_CLUSTERS back")
        return done
