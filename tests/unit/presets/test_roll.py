# ruff: noqa: E501 - one line for one mistake
"""ROLL's preset, with the mappings of its examples and many that ROLL cannot place."""

from pathlib import Path
from typing import Any

import pytest

from slurmray.presets import advise
from slurmray.spec.job_spec import JobSpec

RUN = ["python", "examples/start_agentic_pipeline.py", "--config_path", "x", "--config_name", "roll"]
NODE_ENV = {
    "MASTER_ADDR": "head",
    "MASTER_PORT": "ray_port",
    "WORLD_SIZE": "nodes",
    "RANK": "rank",
    "NODE_RANK": "rank",
}
ALL_GPUS = "actor_train:\n  device_mapping: list(range(0,16))\n"


pytestmark = pytest.mark.usefixtures("current_folder")


def job(text: str, nodes: int = 2, gpus: int = 8, **fields: Any) -> JobSpec:
    """A job of ROLL on 2 nodes with 8 GPUs each. text: its YAML file."""
    Path("roll.yaml").write_text(text)
    spec = {
        "preset": {"name": "roll", "config": "roll.yaml"},
        "slurm": {"nodes": nodes, "gpus_per_node": gpus, "cpus_per_task": 64},
        "run": RUN,
    }
    return JobSpec.model_validate({**spec, **fields})


def mistakes(spec: JobSpec) -> list[str]:
    advice = advise(spec)
    return [finding.text for finding in advice.problems] + [
        str(problem) for problem in advice.config_problems
    ]


def test_ranks_are_set_and_arguments_are_unchanged() -> None:
    advice = advise(job(ALL_GPUS))
    assert (advice.run, advice.env, advice.node_env) == (RUN, {}, NODE_ENV)
    assert (advice.problems, advice.config_problems, advice.remarks, advice.resume) == ([], [], [], [])


def test_the_user_s_own_ranks_are_refused() -> None:
    assert mistakes(job(ALL_GPUS, env={"WORLD_SIZE": "2", "RANK": None})) == [
        f"{name}: slurmray sets it on each node for roll: leave it out" for name in ("WORLD_SIZE", "RANK")
    ]


def test_a_separate_ray_in_a_text_for_bash() -> None:
    run = "export ROLL_RAY_TEMP_DIR=/x; python3 examples/start_agentic_pipeline.py"
    [mistake] = mistakes(job(ALL_GPUS, run=run))
    assert mistake.startswith("ROLL_RAY_TEMP_DIR: with it ROLL starts its own Ray")


def test_a_file_that_takes_its_placement_from_another() -> None:
    assert advise(job("defaults: [base]\n")).remarks == [
        "the placement is not checked: roll.yaml has no device_mapping: "
        "copy it there from the file that `defaults` names"
    ]


def test_a_script_needs_no_note() -> None:
    run = ["bash", "examples/agentic_demo/run_agentic_pipeline_frozen_lake_multi_nodes_demo.sh"]
    advice = advise(job(ALL_GPUS, run=run))
    assert (advice.run, advice.remarks) == (run, [])


def test_without_its_file_the_placement_is_not_known() -> None:
    advice = advise(job(ALL_GPUS, preset="roll"))
    assert advice.remarks == ["the placement is not checked: set preset.config to ROLL's YAML file"]


@pytest.mark.parametrize(
    ("text", "is_noted"),
    [("", True), ("resume_from_checkpoint: false\n", True), ("resume_from_checkpoint: true\n", False)],
)
def test_resuming_is_set_in_the_yaml_file(text: str, is_noted: bool) -> None:
    advice = advise(job(text + ALL_GPUS, requeue={"max": 1}))
    note = "after a restart ROLL starts from the beginning: set resume_from_checkpoint: true in its file"
    assert (advice.remarks, advice.resume) == ([note] if is_noted else [], [])


def test_roll_must_join_the_job_s_ray() -> None:
    reason = "with it ROLL starts its own Ray instead of joining the job's: leave it out"
    spec = job(ALL_GPUS, env={"ROLL_RAY_TEMP_DIR": "/x", "ROLL_RAY_FORCE_NEW_CLUSTER": "1"})
    assert [(finding.path, finding.text) for finding in advise(spec).problems] == [
        (("env", "ROLL_RAY_TEMP_DIR"), f"ROLL_RAY_TEMP_DIR: {reason}, and use ray.temp_dir"),
        (("env", "ROLL_RAY_FORCE_NEW_CLUSTER"), f"ROLL_RAY_FORCE_NEW_CLUSTER: {reason}"),
    ]
    assert len(advise(job(ALL_GPUS, run=None, env={"ROLL_RAY_TEMP_DIR": None})).problems) == 1
    named = "system_envs:\n  ROLL_RAY_FORCE_NEW_CLUSTER: 1\n  RAY_ADDRESS: auto\n  NCCL_DEBUG: WARN\n"
    assert mistakes(job(named + ALL_GPUS)) == [
        f"roll.yaml:2:3: ROLL_RAY_FORCE_NEW_CLUSTER: {reason}",
        "roll.yaml:3:3: RAY_ADDRESS: slurmray sets it to the job's Ray, which ROLL joins: leave it out",
    ]


@pytest.mark.parametrize(
    ("more", "arguments", "uses_bf16"),
    [
        ("", (), False),
        ("  model_args: {dtype: fp16}\n", ("--bf16=false",), False),
        ("  model_args: {dtype: bf16}\n", (), True),
        ("  list: [{bf16: true}]\n", (), True),
        ("  strategy: {bf16: {enabled: true}}\n", (), True),
        ("  strategy: {bf16: {enabled: false}}\n", (), False),
        ("  bf16: false\n", ("x.dtype=bfloat16",), True),
        ("", ("--bf16",), True),
        ("", ("--param_dtype", "bf16"), True),
        ("", ("+actor.bf16=True",), True),
    ],
)
def test_use_of_bf16(more: str, arguments: tuple[str, ...], uses_bf16: bool) -> None:
    assert advise(job(ALL_GPUS + more, run=[*RUN, *arguments])).bf16 == uses_bf16


def workers(**mappings: str) -> str:
    return "".join(f"{name}:\n  device_mapping: {value}\n" for name, value in mappings.items())


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # right
        (workers(actor_train="list(range(0,16))", actor_infer="list(range(0,16))"), None),
        (workers(actor_train="list(range(0,8))", actor_infer='"[8, 9, 10, 11]+list(range(12,16))"'), None),
        (workers(actor_train="list([0,1,2,3,8,9,10,11])", reference="range(16)"), None),
        (workers(actor_train="list(range(0, 16, 2))", reference="list(range(1,16,2))"), None),
        (workers(actor_train="list(range(16))", critic="null", reward='"[]"'), None),
        (workers(actor_train="list(range(0,${n}))"), None),
        (workers(actor_train="my_gpus()"), None),
        (workers(actor_train="__import__('os').abort()"), None),
        (workers(actor_train="list(range(10**12))"), None),
        (workers(actor_train="list(range(0, 99999999999999999999999))"), "2:3: actor_train: device_mapping 'list(range(0, 99999999999999999999999))': more than 1000000 GPUs: write the numbers of the job's GPUs"),
        (workers(actor_train="list(range(-2000000, 1))"), "2:3: actor_train: device_mapping 'list(range(-2000000, 1))': more than 1000000 GPUs: write the numbers of the job's GPUs"),
        (workers(actor_train="list(range(-600000, 600000))"), "2:3: actor_train: device_mapping 'list(range(-600000, 600000))': more than 1000000 GPUs: write the numbers of the job's GPUs"),
        ("rewards:\n  math:\n    device_mapping: list(range(0,16))\n", None),
        ("actor_train.device_mapping: list(range(0,16))\n", None),
        ("num_gpus_per_node: 8\n" + ALL_GPUS, None),
        # beyond the job
        (workers(actor_train="list(range(0,32))"), "2:3: actor_train 0-31 (32) = 32 GPUs, the job has 2 nodes x 8 = 16: set slurm.nodes: 4, or place them on GPUs 0 to 15"),
        (workers(actor_train="list(range(0,16))", actor_infer="list(range(16,24))"), "4:3: actor_train 0-15 (16) + actor_infer 16-23 (8) = 24 GPUs, the job has 2 nodes x 8 = 16: set slurm.nodes: 3, or place them on GPUs 0 to 15"),
        (workers(actor_train="list(range(0,16))", reward='"[16]"', reference="list(range(0,16))"), "4:3: actor_train 0-15 (16), reward 16 (1), reference 0-15 (16) reach GPU 16, the job has 2 nodes x 8 = 16: set slurm.nodes: 3, or place them on GPUs 0 to 15"),
        ("rewards:\n  math:\n    device_mapping: list(range(8,17))\n", "3:5: rewards.math 8-16 (9) reach GPU 16, the job has 2 nodes x 8 = 16: set slurm.nodes: 3, or place them on GPUs 0 to 15"),
        ("actor_train.device_mapping: list(range(0,17))\n", "1:1: actor_train 0-16 (17) = 17 GPUs, the job has 2 nodes x 8 = 16: set slurm.nodes: 3, or place them on GPUs 0 to 15"),
        # no list of GPUs
        (workers(actor_train='"[0, 1, 1, 2]"'), "2:3: actor_train: device_mapping [0, 1, 1, 2] has 1 twice; list each GPU once"),
        (workers(actor_train="list(range(0,8))+list(range(4,16))"), "2:3: actor_train: device_mapping list(range(0,8))+list(range(4,16)) has 4-7 twice; list each GPU once"),
        (workers(actor_train='"[-1, 0]"'), "2:3: actor_train: device_mapping [-1, 0]: the first GPU is 0"),
        (workers(actor_train="[0, 1]"), "2:3: actor_train: device_mapping must be a text, which ROLL evaluates: quote the list"),
        (workers(actor_train="list(range(0,16)"), "2:3: actor_train: device_mapping 'list(range(0,16)' is not a list; write e.g. list(range(0,8)) or [0, 1]"),
        (workers(actor_train="0-15"), "2:3: actor_train: device_mapping '0-15' is not a list; write e.g. list(range(0,8)) or [0, 1]"),
        (workers(actor_train="8"), "2:3: actor_train: device_mapping '8' is not a list; write e.g. list(range(0,8)) or [0, 1]"),
        (workers(actor_train="-" * 99999 + "1"), "2:3: actor_train: device_mapping '" + "-" * 57 + "...' is not a list; write e.g. list(range(0,8)) or [0, 1]"),
        # what does not come out even
        (ALL_GPUS + "  num_gpus_per_worker: 3\n", "3:3: actor_train: processes of 3 GPUs do not divide its 16 GPUs: change one of the two"),
        (ALL_GPUS + "  strategy_args:\n    strategy_config: {tensor_model_parallel_size: 4, pipeline_model_parallel_size: 3}\n", "2:3: actor_train: tensor_model_parallel_size 4 x pipeline_model_parallel_size 3 = 12 does not divide its 16 GPUs: change one of the two"),
        ("num_gpus_per_node: 2\n" + ALL_GPUS, "1:1: num_gpus_per_node is 2, the job has 2 nodes x 8 = 16: write 8, or set slurm.gpus_per_node: 2"),
    ],
)  # fmt: skip
def test_placements(text: str, expected: str | None) -> None:
    assert mistakes(job(text)) == ([f"roll.yaml:{expected}"] if expected else [])


def test_the_guides_two_v100_on_each_of_two_nodes() -> None:
    guide = "num_gpus_per_node: 2\n" + workers(
        **dict.fromkeys(("actor_train", "actor_infer", "reference"), "list(range(0,4))")
    )
    assert mistakes(job(guide, gpus=2)) == []
    assert mistakes(job(guide, nodes=1, gpus=2)) == [
        "roll.yaml:3:3: actor_train 0-3 (4), actor_infer 0-3 (4), reference 0-3 (4) reach GPU 3, the job has 1 node x 2 = 2: set slurm.nodes: 2, or place them on GPUs 0 to 1"
    ]


def test_num_gpus_per_node_is_not_read_since_0_2() -> None:
    preset = {"name": "roll", "config": "roll.yaml", "version": "0.3.0"}
    assert mistakes(job("num_gpus_per_node: 2\n" + ALL_GPUS, preset=preset)) == []


def test_idle_gpus_are_worth_a_note() -> None:
    advice = advise(job(workers(actor_train="list(range(0,8))", reward='"[12]"')))
    assert advice.remarks == [
        "actor_train 0-7 (8), reward 12 (1), the job has 2 nodes x 8 = 16: 7 GPUs idle, 8-11, 13-15"
    ]


@pytest.mark.parametrize("text", ["", "actor_train: 3", "actor_train: {device_mapping: {a: b}}"])
def test_a_file_of_another_kind(text: str) -> None:
    assert len(mistakes(job(text))) == ("a: b" in text)


def test_numbers_that_no_job_has() -> None:
    much = "9" * 5000
    text = f"num_gpus_per_node: {much}\n{ALL_GPUS}  num_gpus_per_worker: {much}\n"
    why = f"'{'9' * 57}...': too large, expected a number of GPUs or nodes"
    assert mistakes(job(text)) == [
        f"roll.yaml:1:1: num_gpus_per_node {why}",
        f"roll.yaml:4:3: num_gpus_per_worker {why}",
    ]


def test_gpus_of_services() -> None:
    service = {"name": "retriever", "run": "x", "gpus": 2}
    assert mistakes(job("num_gpus_per_node: 8\n", services=[service])) == [
        "roll.yaml:1:1: num_gpus_per_node is 8, the job has 2 nodes x 6 = 12 (services use 2 of 8 on each node: retriever 2): write 6, or set slurm.gpus_per_node: 10, 8 and those of services"
    ]
