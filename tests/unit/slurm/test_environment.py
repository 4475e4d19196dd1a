import pytest

from slurmray.agent import inherited
from slurmray.slurm.host import clean_environment

USERS = {"PATH": "/bin", "SLURMRAY_ACCELERATOR": "none", "SLURM": "x", "PMIX": "y", "WANDB_API_KEY": "z"}
CLUSTERS = {"SLURM_CONF": "/etc/other.conf", "SLURM_CONF_SERVER": "ctl:6817", "SLURM_JWT": "token"}
JOBS = {
    "SLURM_JOB_ID": "7",
    "SLURM_MEM_PER_CPU": "100",
    "SLURMD_NODENAME": "node1",
    "SBATCH_MEM_BIND": "none",
    "SBATCH_ACCOUNT": "rl",
    "SRUN_DEBUG": "3",
    "PMI_RANK": "0",
    "PMI2_FD": "5",
    "PMIX_RANK": "0",
    "SLURMRAY_ATTEMPT": "0",
    "SLURMRAY_RESTART": "1",
    "SLURMRAY_RUN_DIR": "/shared/slurmray-runs/7-0",
    "SLURMRAY_END_TIME": "1795998000",
    "SLURMRAY_TEMP": "/tmp/ray-7-0-4c81e9",
}


def test_variables_of_the_outer_job_are_removed() -> None:
    assert clean_environment(USERS | CLUSTERS | JOBS) == USERS | CLUSTERS


def test_outside_of_a_job_options_of_sbatch_stay() -> None:
    login = {**USERS, **CLUSTERS, "SBATCH_ACCOUNT": "rl", "SLURM_TIME_FORMAT": "relative"}
    assert clean_environment(login) == login


@pytest.mark.attack("the submitter's environment", inputs=1)
@pytest.mark.parametrize("name", ["SQUEUE_STATES", "SQUEUE_PARTITION", "SCANCEL_INTERACTIVE", "SCONTROL_ALL"])
def test_options_of_slurm_s_commands_are_removed(name: str) -> None:
    """On the login host, and on nodes, where the program of a wrapper's BASH_ENV would print."""
    assert clean_environment({**USERS, name: "1"}) == USERS
    foreign = {name: "1", "BASH_ENV": "x", "SLURM_CLUSTERS": "other", "SLURM_TIME_FORMAT": "relative"}
    assert inherited.drop_command_options({**USERS, **CLUSTERS, **foreign}) == USERS | CLUSTERS


def test_temp_folder_of_the_outer_job_is_removed() -> None:
    assert clean_environment(JOBS | {"TMPDIR": "/tmp/ray-7-0-4c81e9/inside/tmp"}) == {}
    assert clean_environment(JOBS | {"TMPDIR": "/tmp/ray-7-01"}) == {"TMPDIR": "/tmp/ray-7-01"}
