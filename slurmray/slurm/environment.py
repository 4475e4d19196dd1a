"""The environment that a job is submitted with."""

from __future__ import annotations

from collections.abc import Mapping

# Facts of the job around us and of its step, from Slurm and from the libraries of PMI. sbatch and srun take
# many of the same names for options, and sbatch hands all of them on to the new job.
_OF_A_JOB = ("SLURM_", "SLURMD_", "SBATCH_", "SRUN_", "PMI_", "PMI2_", "PMIX_")
# Facts of the job around us, from its script; by SLURMRAY_TEMP it knows what it has to kill at its end.
_OF_ITS_SCRIPT = ("SLURMRAY_ATTEMPT", "SLURMRAY_TEMP")
# How Slurm is reached, and who asks.
_OF_THE_CLUSTER = ("SLURM_CONF", "SLURM_CONF_SERVER", "SLURM_JWT")


def clean_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Return what of an environment a new job is submitted with.

    Within a job: all but the variables of that job, for a new one would take its number of tasks, its memory
    or its step for its own, and a TMPDIR that ends with it. Elsewhere: all of it; there SBATCH_ACCOUNT and
    the like are the user's choice.
    """
    if "SLURM_JOB_ID" not in environment:
        return dict(environment)
    kept = {
        name: value
        for name, value in environment.items()
        if name in _OF_THE_CLUSTER or not (name.startswith(_OF_A_JOB) or name in _OF_ITS_SCRIPT)
    }
    temp = environment.get("SLURMRAY_TEMP")
    if temp and kept.get("TMPDIR", "").startswith(f"{temp}/"):
        del kept["TMPDIR"]
    return kept
