"""The environment in which Slurm's commands run."""

from __future__ import annotations

from collections.abc import Mapping

from slurmray.agent.inherited import COMMAND_OPTIONS

# Prefixes of variables of a surrounding job and its step, from Slurm and PMI libraries. sbatch and srun use
# many of the same names for options, and sbatch passes all of them to the new job.
_JOB_PREFIXES = ("SLURM_", "SLURMD_", "SBATCH_", "SRUN_", "PMI_", "PMI2_", "PMIX_")
# Variables of a surrounding job from its script, which finds its processes by SLURMRAY_TEMP to kill them.
_SCRIPT_VARIABLES = ("SLURMRAY_ATTEMPT", "SLURMRAY_RESTART", "SLURMRAY_RUN_DIR", "SLURMRAY_TEMP")
# How to reach Slurm, and as which user.
_CLUSTER_VARIABLES = ("SLURM_CONF", "SLURM_CONF_SERVER", "SLURM_JWT")


def clean_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment for submitting a new job: inside a job, without the variables of that job.

    The new job would otherwise use that job's number of tasks, memory and step, and a TMPDIR that is removed
    when that job ends. Outside a job SBATCH_ACCOUNT and the like are the user's. COMMAND_OPTIONS are removed
    everywhere: SQUEUE_PARTITION would hide jobs.
    """
    environment = {name: environment[name] for name in environment if not name.startswith(COMMAND_OPTIONS)}
    if "SLURM_JOB_ID" not in environment:
        return environment
    kept = {
        name: value
        for name, value in environment.items()
        if name in _CLUSTER_VARIABLES or not (name.startswith(_JOB_PREFIXES) or name in _SCRIPT_VARIABLES)
    }
    temp = environment.get("SLURMRAY_TEMP")
    if temp and kept.get("TMPDIR", "").startswith(f"{temp}/"):
        del kept["TMPDIR"]
    return kept
