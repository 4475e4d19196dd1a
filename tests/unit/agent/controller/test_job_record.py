"""`scontrol show job`, as Slurm 22.05 to 26.05 print it."""

from __future__ import annotations

import pytest

from slurmray.agent import inherited
from slurmray.agent.controller import job_record, step_environment
from slurmray.agent.controller.job_record import find_record


def record(head: str, memory: str = "MinMemoryNode=1G", more: str = "", restarts: int = 0) -> str:
    """A record in Slurm's words; the name and the comment look like fields."""
    return f"""\
JobId={head} JobName=a Restarts=7 MinMemoryCPU=5M
   UserId=alice(2000) GroupId=alice(2000) MCS_label=N/A
   Priority=1 Nice=0 Account=(null) QOS=(null)
   JobState=RUNNING Reason=None Dependency=(null)
   Requeue=1 Restarts={restarts} BatchFlag=1 Reboot=0 ExitCode=0:0
   NumNodes=1 NumCPUs=2 NumTasks=1 CPUs/Task=2 ReqB:S:C:T=0:0:*:*
   MinCPUsNode=2 {memory} MinTmpDiskNode=0
   Command=/home/alice/generated.sh
   Comment=Requeue=1 Restarts=8 BatchFlag=1
{more}
"""


ARRAY = record("14 ArrayJobId=12 ArrayTaskId=1", restarts=1) + record("12 ArrayJobId=12 ArrayTaskId=3")


def test_a_job() -> None:
    job = find_record(record("7", restarts=2), "7")
    assert (job_record.read_array_task(job), job_record.read_restarts(job)) == ("", 2)


@pytest.mark.parametrize(("number", "task", "restarts"), [("12", "12_3", 0), ("14", "12_1", 1)])
def test_a_task_of_an_array(number: str, task: str, restarts: int) -> None:
    job = find_record(ARRAY, number)
    assert (job_record.read_array_task(job), job_record.read_restarts(job)) == (task, restarts)


@pytest.mark.parametrize("shown", ["", ARRAY, "slurm_load_jobs error: Invalid job id specified\n"])
def test_no_answer_about_this_job(shown: str) -> None:
    job = find_record(shown, "1")
    assert (job, job_record.read_array_task(job), job_record.read_restarts(job)) == ("", "", None)


@pytest.mark.parametrize(
    ("shown", "kept"),
    [
        (record("7"), ["MEM_PER_NODE"]),
        (record("7", "MinMemoryCPU=500M"), ["MEM_PER_CPU"]),
        (record("7", "MinMemoryNode=0", "   MemPerTres=gres/gpu:1024\n"), ["MEM_PER_GPU"]),
        (record("7", "MinMemoryNode=0"), []),
        ("", ["MEM_PER_CPU", "MEM_PER_GPU", "MEM_PER_NODE"]),  # slurmctld does not answer
    ],
)
def test_the_step_gets_the_memory_of_this_job(shown: str, kept: list[str]) -> None:
    env = {f"SLURM_{name}": "1" for name in step_environment.MEMORY}
    assert sorted(step_environment.step_environment(env, "", shown)) == [f"SLURM_{name}" for name in kept]


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ("   TRES=cpu=4,mem=16000M,node=2,billing=4\n", 16000),  # Slurm 22.05
        (
            "   ReqTRES=cpu=1,mem=1M,node=1,billing=1\n"
            "   AllocTRES=cpu=4,mem=15.63G,node=2,billing=4,gres/gpu=8\n",
            15.63 * 1024,
        ),
        ("   AllocTRES=mem=2T\n", 2 * 1024**2),
        ("   ReqTRES=cpu=1,mem=1M,node=1\n   AllocTRES=(null)\n", 0),
        ("   TRES=cpu=4,node=2,billing=4,gres/mem=8M\n", 0),
        ("", 0),
    ],
)
def test_the_memory_that_a_job_is_charged_for(lines: str, expected: float) -> None:
    assert job_record.read_charged_memory(record("7").replace("   MinCPUs", lines + "   MinCPUs")) == expected


def test_the_environment_of_a_component() -> None:
    """As sbatch of Slurm sets it, some variables without a component's ending as well."""
    env = {
        **{"SLURM_JOB_ID": "7", "SLURM_HET_SIZE": "12", "HOME": "/home/a"},
        **{f"SLURM_JOB_ID_HET_GROUP_{number}": str(7 + number) for number in range(12)},
        **{"SLURM_MEM_PER_NODE": "5", "SLURM_MEM_PER_NODE_HET_GROUP_0": "5"},
        **{"SLURM_JOB_ID_PACK_GROUP_1": "8", "SLURM_GPUS_ON_NODE_HET_GROUP_11": "2"},
    }
    rest = {"SLURM_HET_SIZE": "12", "HOME": "/home/a"}
    first, last = (step_environment.select_component(env, number) for number in (0, 11))
    assert first == {**rest, "SLURM_JOB_ID": "7", "SLURM_MEM_PER_NODE": "5"}
    assert last == {**rest, "SLURM_JOB_ID": "18", "SLURM_GPUS_ON_NODE": "2"}


def test_options_of_a_component() -> None:
    script = "#SBATCH --hint=x\n#SBATCH hetjob\n#SBATCH --gpus-per-node=8\n\nmain\n"
    env = {"SLURM_HINT": "x", "SLURM_GPUS_PER_NODE": "8"}
    environments = [step_environment.step_environment(env, script, "", number) for number in (0, 1)]
    assert environments == [{"SLURM_HINT": "x"}, {"SLURM_GPUS_PER_NODE": "8"}]


@pytest.mark.attack("GPU masks of an image or a shell", inputs=len(inherited.GPU_MASKS))
def test_the_step_gets_no_gpu_masks_and_no_other_cluster() -> None:
    """Slurm sets the masks for each task."""
    foreign = dict.fromkeys((*inherited.GPU_MASKS, "SLURM_CLUSTERS", "SRUN_EXPORT_ENV"), "0")
    kept = {"SLURM_CONF": "/etc/slurm.conf", "SQUEUE_FORMAT": "%i", "BASH_ENV": "/x"}
    assert step_environment.step_environment({**foreign, **kept}, "", "") == kept
