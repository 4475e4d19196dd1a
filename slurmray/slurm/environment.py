"""The environment in which sbatch runs."""

from __future__ import annotations

from collections.abc import Mapping

# Prefixes of variables of a surrounding job and its step, from Slurm and PMI libraries. sbatch and srun use
# many of the same names for options, and sbatch passes all of them to the new job.
_JOB_PREFIXES = ("SLURM_", "SLURMD_", "SBATCH_", "SRUN_", "PMI_", "PMI2_", "PMIX_")
# Variables of a surrounding job from its script, which finds its processes by SLURMRAY_TEMP to kill them.
_SCRIPT_VARIABLES = ("SLURMRAY_ATTEMPT", "SLURMRAY_TEMP")
# How to reach Slurm, and as which user.
_CLUSTER_VARIABLES = ("SLURM_CONF", "SLURM_CONF_SERVER", "SLURM_JWT")


def clean_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment for submitting a new job: inside a job, without the variables of that job.

    The new job would otherwise use that job's number of tasks, memory and step, and a TMPDIR that is removed
    when that job ends. Outside a job nothing is removed: there SBATCH_ACCOUNT and the like are the user's.
    """
    if "SLURM_JOB_ID" not in environment:
        return dict(environment)
    kept = {
        name: value
        for name, value in environment.items()
        if name in _CLUSTER_VARIABLES or not (name.startswith(_JOB_PREFIXES) or name in _SCRIPT_VARIABLES)
    }
    temp = environment.get("SLURMRAY_TEMP")
    if temp and kept.get("TMPDIR", "").startswith(f"{temp}/"):
        del kept["TMPDIR"]
    return kept
