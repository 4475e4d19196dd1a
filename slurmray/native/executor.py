"""RayExecutor: a submitit executor for functions that drive a Ray cluster."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any, Literal

from submitit import DebugExecutor, LocalExecutor
from submitit.core import core, utils

from slurmray.native.on_slurm import RaySlurmExecutor, make_folder
from slurmray.native.parameters import TIMEOUT_MIN, make_job_data

Cluster = Literal["slurm", "local", "debug"]


class RayExecutor(core.Executor):
    """Runs functions with Ray over all nodes of a Slurm job, or on this machine.

    folder: for pickles, logs and results, on a file system that all nodes share; `%j` in it is the job id.
    cluster: `slurm`; `local`, a process on this machine; `debug`, the calling process; None: slurm if sbatch
    is in PATH, else local. max_num_timeout: how often a function with a checkpoint may reach its time limit.

    `submit`, `map_array`, `batch` and the jobs they return work as in submitit. A function runs once, on the
    first node, where `ray.init()` connects to the cluster of its job. With local and debug, `ray.init()`
    starts a new Ray, and the parameters for nodes, containers and Ray have no effect.
    """

    def __init__(self, folder: Path | str, cluster: Cluster | None = None, max_num_timeout: int = 3):
        self.cluster: Cluster = cluster or ("slurm" if shutil.which("sbatch") else "local")
        self._executor: core.Executor
        if self.cluster == "slurm":
            self._executor = RaySlurmExecutor(folder, max_num_timeout)
        elif self.cluster == "local":
            self._executor = LocalExecutor(folder, max_num_timeout)
        elif self.cluster == "debug":
            self._executor = DebugExecutor(folder)
        else:
            raise ValueError(f"cluster: expected slurm, local, debug or None, got {cluster!r}")
        super().__init__(self._executor.folder)

    def _internal_update_parameters(self, **kwargs: Any) -> None:
        """Set parameters; None removes one. SpecError, without setting any, if one is unknown or wrong.

        Parameters of submitit: name, nodes, gpus_per_node, cpus_per_task, mem_gb (GiB per node), timeout_min
        (minutes), stderr_to_stdout, slurm_setup, slurm_signal_delay_s (seconds), slurm_array_parallelism,
        slurm_additional_parameters, and `slurm_` with an sbatch option, e.g. slurm_partition. Fields of the
        job spec: container, env, ray, network, checks, preflight, prepare, services, stop, on_node_loss,
        spares, restart, requeue. Without container, the job uses the Ray of this Python.
        """
        # Here, because the user's modules import this one in images that may lack pydantic.
        from slurmray.spec.job_spec import JobSpec

        merged = {**self.parameters, **kwargs}
        parameters = {name: value for name, value in merged.items() if value is not None}
        spec = JobSpec(**make_job_data(parameters, self.folder))
        self.parameters.clear()
        self.parameters.update(parameters)
        if self.cluster == "slurm":
            self._executor.parameters = self.parameters
        elif self.cluster == "local":
            self._executor.parameters = {
                "timeout_min": parameters.get("timeout_min", TIMEOUT_MIN),
                "gpus_per_node": spec.gpus,
                "signal_delay_s": spec.stop.lead,
                "stderr_to_stdout": parameters.get("stderr_to_stdout", False),
            }

    def _internal_process_submissions(
        self, delayed_submissions: list[utils.DelayedSubmission]
    ) -> list[core.Job[Any]]:
        if self.cluster == "local":
            make_folder(utils.JobPaths.get_first_id_independent_folder(self.folder))
        return self._executor._internal_process_submissions(list(delayed_submissions))
