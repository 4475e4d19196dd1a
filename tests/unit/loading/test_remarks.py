"""Remarks on valid job specs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from slurmray.loading.remarks import remarks
from slurmray.spec.job_spec import JobSpec
from tests.plans import plan_of


def list_remarks(run: Any, nodes: int = 2, **fields: Any) -> list[str]:
    return remarks(plan_of(JobSpec.model_validate({"slurm": {"nodes": nodes}, "run": run, **fields})))


@pytest.mark.parametrize(
    ("run", "remark"),
    [
        (["torchrun", "--nnodes", "2", "x.py"], "run: `torchrun`: starts processes on the head node only"),
        ("cd x && exec /opt/bin/torchrun x.py", "run: `torchrun`: starts"),
        ("accelerate launch x.py", "run: `accelerate launch`: starts"),
        ("for i in 1; do\n  srun hostname; done", "run: `srun`: starts"),
        ("ray start --head; python x.py", "run: `ray start`: the job's Ray cluster runs already"),
        (["ray", "job", "submit", "--", "python", "x.py"], "run: `ray job submit`: set launch: ray-job"),
    ],
)
def test_commands_that_do_something_else(run: Any, remark: str) -> None:
    (line,) = list_remarks(run)
    assert line.startswith(remark)


@pytest.mark.parametrize(
    "run",
    [
        *(["python", "torchrun.py"], ["echo", "torchrun"], "# torchrun\npython x.py", "./my-srun x"),
        *("python x.py --launcher torchrun", ["python3"], None, ["bash", "-c", "ray status"]),
    ],
)
def test_commands_that_do_what_they_say(run: Any) -> None:
    assert list_remarks(run) == []


VERL = ["python3", "-m", "verl.trainer.main_ppo"]


@pytest.mark.parametrize(
    ("preset", "run", "other"),
    [
        ("openrlhf", VERL, "verl"),
        ("verl", ["python3", "-m", "openrlhf.cli.train_ppo_ray"], "openrlhf"),
        ("verl", VERL, ""),
        ("verl", [*VERL, "retriever.url=x"], ""),
        ("search-r1", VERL, ""),
        ("verl", ["bash", "mine.sh"], ""),
    ],
)
def test_the_command_of_another_preset_s_trainer(preset: str, run: list[str], other: str) -> None:
    lines = list_remarks(run, preset=preset, ray={"gpus_per_node": 8})
    text = f"preset: `run` is a command of {other}, not of {preset}: set preset: {other}"
    assert [line for line in lines if line.startswith("preset: ")] == ([text] if other else [])


def test_one_node() -> None:
    assert list_remarks(["torchrun", "x.py"], nodes=1) == []
    assert len(list_remarks("ray stop", nodes=1)) == 1


def test_secrets_by_value() -> None:
    env = {
        "WANDB_API_KEY": "x",
        "HF_TOKEN": None,
        "TOKENIZERS_PARALLELISM": "1",
        "db_password": "y",
        "KEY": "",
    }
    lines = list_remarks(None, env=env)
    assert [line.partition(":")[0] for line in lines] == ["env.WANDB_API_KEY", "env.db_password"]
    assert "--env WANDB_API_KEY), and it is taken from your environment" in lines[0]


def test_variables_of_slurm_that_a_container_lacks() -> None:
    run = "x $SLURM_NNODES ${SLURM_NTASKS} $SLURM_NNODES $SLURM_JOB_ID ${SLURM_ARRAY_TASK_ID:-0} $SLURM_A"
    run += " $SLURM_B"
    fields: dict[str, Any] = {"env": {"SLURM_A": "1"}, "node_env": "export SLURM_B=2"}
    assert list_remarks(run, **fields) == [
        "run: $SLURM_NNODES is not set in the container; use $NNODES",
        "run: $SLURM_NTASKS is not set in the container; pass it on with env: {SLURM_NTASKS: null}",
    ]
    others = {
        "SLURM_PROCID": "NODE_RANK",
        "SLURM_JOB_END_TIME": "SLURMRAY_END_TIME",
        "SLURM_RESTART_COUNT": "SLURMRAY_ATTEMPT",
    }
    for name, own in others.items():
        lines = list_remarks(["bash", "-c", f"x ${name}"])
        assert lines == [f"run: ${name} is not set in the container; use ${own}"]
    for runtime in ("none", "pyxis"):
        assert list_remarks(run, container={"runtime": runtime}) == []
    assert list_remarks("SLURM_NTASKS=4; echo $SLURM_NTASKS") == []


def test_variables_of_slurm_in_other_commands() -> None:
    service = {"run": "x ${SLURMD_NODENAME}"}
    services = [{"name": "web", **service}, {"name": "daemon", "host": True, **service}]
    prepare = [{"name": "data", "run": ["bash", "-c", "x $SLURM_NTASKS"]}]
    assert list_remarks(None, prepare=prepare, services=services) == [
        "prepare: data: $SLURM_NTASKS is not set in the container; pass it on with env: {SLURM_NTASKS: null}",
        "services: web: $SLURMD_NODENAME is not set in the container; "
        "pass it on with node_env: export NODE_S=$SLURMD_NODENAME",
    ]


def test_a_variable_of_a_node_is_not_the_submitter_s() -> None:
    env = {"SLURM_NODEID": None, "SLURM_NTASKS": None, "SLURM_PROCID": "0"}
    assert list_remarks(None, env=env) == [
        "env.SLURM_NODEID: every node would have the batch host's value; NODE_RANK has the node's number"
    ]


def test_a_folder_of_the_log_that_does_not_exist(current_folder: Path) -> None:
    (current_folder / "logs").mkdir()

    def of(**slurm: str) -> list[str]:
        return remarks(plan_of(JobSpec(slurm={"nodes": 2, **slurm})))

    assert of(output="logs/%j.out", error="%j.err") == of(output="%N/%j.out") == of(output="%x-%j.out") == []
    text = "there is no folder my logs, so the job would have no log: mkdir -p 'my logs'"
    assert of(output="my logs/%j.out") == [f"slurm.output: {text}"]
    assert of(output=f"{'x' * 300}/%j.out")[0].startswith("slurm.output: there is no folder xxx")
    assert of(error="~/%j.err") == ["slurm.error: Slurm does not expand ~; write the path of the home folder"]


def test_a_name_with_a_slash_in_the_path_of_the_log(current_folder: Path) -> None:
    slurm = {"output": "%x-%j.out"}
    (line,) = list_remarks(None, name="Qwen/Qwen2.5-7B", slurm=slurm)
    assert line.startswith("slurm.output: there is no folder Qwen, as %x is the name Qwen/Qwen2.5-7B, so")
    assert line.endswith(": mkdir -p Qwen")
    (current_folder / "Qwen").mkdir()
    assert list_remarks(None, name="Qwen/Qwen2.5-7B", slurm=slurm) == []


@pytest.mark.parametrize("path", ["$HOME/%j.out", "logs/${USER}.out"])
def test_variables_in_the_path_of_the_log(path: str) -> None:
    variable = "$HOME" if "HOME" in path else "${USER}"
    text = f"slurm.output: Slurm does not expand {variable}; write the path itself"
    assert list_remarks(None, slurm={"output": path}) == [text]


@pytest.mark.parametrize(
    ("slurm", "text"),
    [
        ({"mem": "2000", "gpus_per_node": "8"}, "mem: 2000 is 2000 MB; 2000 GB are 2000G"),
        ({"mem": "64"}, "mem: 64 is 64 MB; 64 GB are 64G"),
        ({"mem_per_gpu": "100", "gpus_per_node": "8"}, "mem_per_gpu: 100 is 100 MB; 100 GB are 100G"),
        ({"mem": "0", "gpus_per_node": "8"}, ""),
        ({"mem": "1G", "gpus_per_node": "8"}, ""),
        ({"mem": "2000"}, ""),
    ],
)
def test_megabytes_that_may_be_meant_as_gigabytes(slurm: dict[str, str], text: str) -> None:
    assert list_remarks(None, slurm=slurm) == ([f"slurm.{text}"] if text else [])


def test_minutes_that_may_be_meant_as_hours() -> None:
    def of(time: str) -> list[str]:
        return remarks(plan_of(JobSpec(slurm={"nodes": 2, "time": time})))

    assert of("24:00") == ["slurm.time: 24:00 is 24 minutes; 24 hours are 24:00:00"]
    assert of("24:00:00") == of("30") == of("1-0") == []
