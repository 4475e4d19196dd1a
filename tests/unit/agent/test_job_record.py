"""`scontrol show job`, as Slurm 22.05 to 26.05 print it."""

from __future__ import annotations

from pathlib import Path

import pytest

from slurmray.agent import inherited, job_record
from slurmray.agent.controller import step_environment
from slurmray.agent.job_record import find_record, parse_records


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
RECORDS = Path(__file__).parents[1] / "slurm/records"
VERSIONS = sorted(folder for folder in RECORDS.iterdir() if (folder / "scontrol-account.txt").exists())
FIELDS = {
    **{"ArrayTaskId": "3", "ArrayJobId": "99", "HetJobOffset": "1", "JobId": "99", "JobState": "FAILED"},
    **{"Restarts": "7", "ExitCode": "9:9", "MinMemoryCPU": "5M", "ReqNodeList": "x", "ExcNodeList": "x"},
    **{
        "TimeLimit": "UNLIMITED",
        "EndTime": "1",
        "Partition": "x",
        "StdOut": "/x",
        "WorkDir": "/x",
        "BatchHost": "x",
        "NodeList": "x",
        "MemPerTres": "x",
    },
}


def read(job: job_record.Record) -> tuple[object, ...]:
    functions = job_record.read_array_task, job_record.read_restarts, job_record.read_memory_variable
    return tuple(function(job) for function in functions)


def test_a_job() -> None:
    assert read(find_record(record("7", restarts=2), "7")) == ("", 2, "MEM_PER_NODE")


@pytest.mark.parametrize(("number", "task", "restarts"), [("12", "12_3", 0), ("14", "12_1", 1)])
def test_a_task_of_an_array(number: str, task: str, restarts: int) -> None:
    assert read(find_record(ARRAY, number)) == (task, restarts, "MEM_PER_NODE")


def test_tasks_that_wait_together_are_none() -> None:
    assert read(find_record(record("12 ArrayJobId=12 ArrayTaskId=3-5%2"), "12")) == ("", 0, "MEM_PER_NODE")


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
    shown = record("7").replace("   MinCPUs", lines + "   MinCPUs")
    assert job_record.read_charged_memory(find_record(shown, "7")) == expected


@pytest.mark.parametrize(
    ("limit", "end", "expected"),
    [
        ("01:00:00", "1795998000", 1795998000),
        ("UNLIMITED", "1827534000", 0),
        ("UNLIMITED", "Unknown", 0),
        ("365-00:00:00", "1827534000", 0),
        ("01:00:00", "Unknown", 0),
        ("01:00:00", "2026-11-29T12:40:29", 0),  # by a Slurm that does not know SLURM_TIME_FORMAT
        ("01:00:00", "9" * 11, 0),
    ],
)
def test_when_slurm_ends_a_job(limit: str, end: str, expected: int) -> None:
    lines = f"   RunTime=00:00:01 TimeLimit={limit} TimeMin=N/A\n   StartTime=1 EndTime={end} Deadline=N/A\n"
    shown = record("7").replace("   NumNodes", lines + "   NumNodes")
    assert job_record.read_end_time(find_record(shown, "7")) == expected
    assert job_record.read_end_time({}) == 0


@pytest.mark.parametrize("shown", ["", ARRAY, "slurm_load_jobs error: Invalid job id specified\n"])
def test_no_answer_about_this_job(shown: str) -> None:
    job = find_record(shown, "1")
    assert (job, *read(job)) == ({}, "", None, None)


@pytest.mark.attack("texts of the user in Slurm's records", inputs=2 * len(FIELDS))
@pytest.mark.parametrize("name", FIELDS)
def test_no_field_is_read_from_a_text_of_the_user(name: str) -> None:
    """Neither from a name, which reaches to the end of its line, nor from a comment."""
    fields = f"x {name}={FIELDS[name]}"
    for text in (f"JobName={fields}", f"JobName=x\n   Comment={fields}\n   UserId=a"):
        shown = record("7", restarts=2).replace("JobName=a Restarts=7 MinMemoryCPU=5M", text)
        (job,) = parse_records(shown)
        assert job == {**parse_records(record("7", restarts=2))[0], "JobName": text[8:].split("\n")[0]}
        assert read(job) == ("", 2, "MEM_PER_NODE")


@pytest.mark.attack("texts of the user in Slurm's records", inputs=3 * 2)
@pytest.mark.parametrize("folder", VERSIONS, ids=lambda folder: folder.name)
def test_names_and_accounts_that_look_like_fields(folder: Path) -> None:
    """As Slurm has printed them."""
    for name in ("name-fields", "account"):
        (job,) = parse_records((folder / f"scontrol-{name}.txt").read_text())
        assert (job["JobState"], job["Restarts"], job_record.read_array_task(job)) == ("PENDING", "0", "")
    assert job["JobName"] == "wrap"


@pytest.mark.attack("texts of the user in Slurm's records", inputs=3 * 5)
@pytest.mark.parametrize("folder", VERSIONS, ids=lambda folder: folder.name)
def test_lines_of_the_user_that_look_like_records(folder: Path) -> None:
    """Slurm prints line breaks as they are: no text can then be trusted, so nothing is known."""
    for name in ("name-lines", "comment-lines", "folder-lines", "command-lines", "network-lines"):
        shown = (folder / f"scontrol-{name}.txt").read_text()
        assert parse_records(shown) == [], name
        assert find_record(shown, "99") == {}


@pytest.mark.attack("texts of the user in Slurm's records", inputs=3)
@pytest.mark.parametrize(
    "text",
    [
        *("a\nb", "a\n\nb=c", "a\nJobState=FAILED\n  xJobState=FAILED\n\t JobState=FAILED"),
        "a\x85   JobState=FAILED\u2028   Restarts=9\v   x",
    ],
)
def test_line_breaks_that_look_like_nothing(text: str) -> None:
    shown = record("7", restarts=2).replace("a Restarts=7", text, 1).replace("Comment=", f"Comment={text} ")
    (job,) = parse_records(shown)
    assert (job["JobState"], *read(job)) == ("RUNNING", "", 2, "MEM_PER_NODE")


@pytest.mark.attack("texts of the user in Slurm's records", inputs=3)
@pytest.mark.parametrize(
    "shown",
    [
        record("7") + record("8"),
        ARRAY + record("12 ArrayJobId=12 ArrayTaskId=4"),
        record("7 HetJobId=7 HetJobOffset=0") + record("8 HetJobId=9 HetJobOffset=1"),
    ],
)
def test_records_that_are_not_of_one_job(shown: str) -> None:
    assert parse_records(shown) == []


@pytest.mark.attack("texts of the user in Slurm's records", inputs=9)
@pytest.mark.parametrize(
    ("field", "value"),
    [
        *[("Restarts=0", f"Restarts={value}") for value in ("x", "-1", "", "99999999999", "٣")],
        ("ExitCode=0:0", "ExitCode="),
        ("JobState=RUNNING", "JobState=\x1b[2J"),
        ("ArrayTaskId=3", "ArrayTaskId=99999999999"),
        ("ArrayTaskId=3", "ArrayTaskId=x"),
    ],
)
def test_a_value_of_a_wrong_type(field: str, value: str) -> None:
    shown = record("12 ArrayJobId=12 ArrayTaskId=3")
    assert field in shown
    assert find_record(shown.replace(field, value), "12") == {}


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
    job = find_record(shown, "7")
    assert sorted(step_environment.step_environment(env, "", job)) == [f"SLURM_{name}" for name in kept]


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
    environments = [step_environment.step_environment(env, script, {}, number) for number in (0, 1)]
    assert environments == [{"SLURM_HINT": "x"}, {"SLURM_GPUS_PER_NODE": "8"}]


@pytest.mark.attack("GPU masks of an image or a shell", inputs=len(inherited.GPU_MASKS))
def test_the_step_gets_no_gpu_masks_and_no_other_cluster() -> None:
    """Slurm sets the masks for each task."""
    foreign = dict.fromkeys((*inherited.GPU_MASKS, "SLURM_CLUSTERS", "SRUN_EXPORT_ENV"), "0")
    kept = {"SLURM_CONF": "/etc/slurm.conf", "SQUEUE_FORMAT": "%i", "BASH_ENV": "/x"}
    assert step_environment.step_environment({**foreign, **kept}, "", {}) == kept


def test_fields_of_other_readers() -> None:
    """A requeue asks for partition and nodes, a report for times; no field is taken from another line."""
    (job,) = parse_records((VERSIONS[0] / "scontrol-output.txt").read_text())
    wanted = "Partition", "ReqNodeList", "ExcNodeList", "NodeList", "BatchHost", "Reason", "Dependency"
    nodes = ["batch", "(null)", "(null)", "gpu-0", "gpu-0", "None", "(null)"]
    assert [job[name] for name in wanted] == nodes
    for name in ("SubmitTime", "EligibleTime", "StartTime", "EndTime"):
        assert job[name].startswith(("2026-11-29T", "2027-11-29T", "Unknown")), name
    assert not {"Account", "Network", "Comment", "UserId"} & job.keys()


def test_nothing_reads_gpus_per_task() -> None:
    """Slurm 24.11 and later do not set SLURM_GPUS_PER_TASK; it is only removed from srun's environment."""
    root = Path(__file__).parents[3]
    files = [*root.glob("slurmray/**/*.py"), *root.glob("templates/**/*.j2")]
    names = {
        file.name
        for file in files
        if "GPUS_PER_TASK" in file.read_text() and not {"messages", "importing"} & {*file.parts}
    }
    assert names == {"step_environment.py"}
    foreign = {"SLURM_GPUS_PER_TASK": "3", "SLURM_TRES_PER_TASK": "cpu=2", "HOME": "/"}
    assert step_environment.step_environment(foreign, "", {}) == {"HOME": "/"}
