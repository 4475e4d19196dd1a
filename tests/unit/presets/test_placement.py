"""Whether what each trainer asks of Ray fits: the fewest CPUs of a node, by the trainer's own code."""

from __future__ import annotations

from typing import Any

import pytest

from slurmray.presets import advise
from slurmray.presets.packer import Bundle, Group, place
from slurmray.spec.job_spec import JobSpec

OPENRLHF = ["python3", "-m", "openrlhf.cli.train_ppo_ray", "--advantage_estimator", "group_norm"]
OPENRLHF += ["--remote_rm_url", "http://x", "--colocate_all_models"]
ENGINES = ["--vllm_num_engines", "8", "--vllm_tensor_parallel_size", "2"]
SKYRL = ["python3", "-m", "skyrl.train.entrypoints.main_base", "generator.inference_engine.num_engines=16"]
SLIME = ["python3", "train.py", "--colocate"]
NEMO = "policy.generation.colocated"


def problems(preset: str, run: list[str], slurm: dict[str, Any], **fields: Any) -> list[str]:
    spec = JobSpec.model_validate({"preset": preset, "slurm": slurm, "run": run, **fields})
    advice = advise(spec)
    return [finding.text for finding in advice.problems]


@pytest.mark.parametrize(
    ("preset", "run", "least"),
    [
        ("openrlhf", [*OPENRLHF, *ENGINES], 8),
        ("search-r1", ["python3", "-m", "verl.trainer.main_ppo"], 8),
        ("slime", SLIME, 9),  # RolloutManager and Lock hold one each
        ("slime", [*SLIME, "--use-distributed-post"], 10),
        ("skyrl", SKYRL, 9),  # a quarter of a CPU on each node, at each checkpoint
        ("nemo-rl", ["python3", "run_grpo.py"], 17),  # one on each node builds virtual environments
        ("nemo-rl", ["python3", "run_grpo.py", "policy.generation.backend=megatron"], 9),
        ("nemo-rl", ["python3", "run_grpo.py", f"{NEMO}.enabled=false", f"{NEMO}.resources.num_nodes=1"], 9),
        ("nemo-rl", ["python3", "run_sft.py"], 9),
        ("nemo-rl", ["python3", "run_ppo.py"], 25),
        ("nemo-rl", ["python3", "run_ppo.py", f"{NEMO}.enabled=false", f"{NEMO}.resources.num_nodes=1"], 17),
        ("nemo-rl", ["python3", "run_distillation.py"], 25),
        ("roll", ["python3", "start_rlvr_pipeline.py", "--config_name", "x"], 3),
    ],
)
def test_the_fewest_cpus(preset: str, run: list[str], least: int) -> None:
    slurm = {"nodes": 2, "gpus_per_node": 8}
    assert problems(preset, run, slurm | {"cpus_per_task": least}) == []
    (problem,) = problems(preset, run, slurm | {"cpus_per_task": least - 1})
    assert f": set it to {least} or more" in problem, problem


def test_nemo_rl_s_own_file_may_need_less() -> None:
    slurm = {"nodes": 2, "gpus_per_node": 8, "cpus_per_task": 16}
    run = ["python3", "run_grpo.py", "--config", "x.yaml"]
    advice = advise(JobSpec.model_validate({"preset": "nemo-rl", "slurm": slurm, "run": run}))
    assert advice.problems == []
    assert advice.remarks[0].endswith("says which")
    assert "set it to 17 or more" in advice.remarks[0]


def test_slime_on_one_node() -> None:
    slurm = {"nodes": 1, "gpus_per_node": 8}
    assert problems("slime", SLIME, slurm | {"cpus_per_task": 10}) == []
    assert len(problems("slime", SLIME, slurm | {"cpus_per_task": 9})) == 1


@pytest.mark.parametrize(
    ("preset", "run"),
    [
        ("rlinf", ["python3", "examples/reasoning/main_grpo.py", "--config-name", "x"]),
        ("roll", ["python3", "start_rlvr_pipeline.py", "--config_name", "x"]),
        ("verl", ["python3", "-m", "verl.trainer.main_ppo"]),
    ],
)
def test_a_head_node_without_cpus(preset: str, run: list[str]) -> None:
    slurm = {"nodes": 2, "gpus_per_node": 8, "cpus_per_task": 64}
    (problem,) = problems(preset, run, slurm, ray={"head": {"cpus": 0}})
    assert problem.startswith("ray.head.cpus is 0, and ")


def test_an_engine_of_slime_that_would_begin_within_a_node() -> None:
    slurm = {"nodes": 2, "gpus_per_node": 8, "cpus_per_task": 64}
    sizes = ["--actor-num-nodes", "1", "--actor-num-gpus-per-node", "4", "--rollout-num-gpus", "8"]
    run = ["python3", "train.py", *sizes, "--rollout-num-gpus-per-engine", "8"]
    (problem,) = problems("slime", run, slurm)
    assert "rollout's engines begin at GPU 4, in the middle of a node of 8" in problem


def test_skyrl_s_critic_gets_the_numbers_of_the_policy() -> None:
    spec = {"preset": "skyrl", "slurm": {"nodes": 2, "gpus_per_node": 8, "cpus_per_task": 16}}
    advice = advise(JobSpec.model_validate({**spec, "run": [*SKYRL, "trainer.critic.model.path=x"]}))
    assert isinstance(advice.run, list)
    critic = ["trainer.placement.critic_num_nodes=2", "trainer.placement.critic_num_gpus_per_node=8"]
    assert advice.run[-2:] == critic


def test_groups_of_nodes_and_services() -> None:
    groups = [
        {"name": "head", "nodes": 1, "cpus_per_task": 4},
        {"name": "gpu", "nodes": 2, "cpus_per_task": 16, "gpus_per_node": 8},
    ]
    run = ["python3", "-m", "verl.trainer.main_ppo", "trainer.use_v1=False"]
    (problem,) = problems("verl", run, {"groups": groups})
    assert "verl asks Ray for 24 CPUs on a node" in problem
    groups[1]["cpus_per_task"] = 24
    assert problems("verl", run, {"groups": groups}) == []


def test_a_job_of_a_thousand_nodes() -> None:
    """Nodes that are alike are counted, not searched."""
    pool = [Group("trainer", [Bundle(3, 1)] * 8, "STRICT_PACK")] * 1000
    assert place(pool, [Bundle(24, 8)] * 1000).waiting is None
    assert place(pool, [Bundle(24, 8)] * 999).waiting is pool[-1]
