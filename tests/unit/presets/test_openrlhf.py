# ruff: noqa: E501 - one line for one mistake
"""OpenRLHF's preset, with the flags before and since 0.10.2; xDAN-RL's guide has those of 0.6."""

from typing import Any

import pytest

from slurmray.plan import Advice
from slurmray.presets import advise
from slurmray.spec.job_spec import JobSpec

MAIN = ["python3", "-m", "openrlhf.cli.train_ppo_ray"]
GRPO = "--advantage_estimator group_norm --remote_rm_url http://x"
GUIDE = (
    "--ref_num_nodes 2 --ref_num_gpus_per_node 4 --actor_num_nodes 2 --actor_num_gpus_per_node 4"
    " --vllm_num_engines 2 --vllm_tensor_parallel_size 4"
)
DOTTED = {
    "colocate_actor_ref": "train.colocate_actor_ref",
    "colocate_all_models": "train.colocate_all",
    "colocate_critic_reward": "train.colocate_critic_reward",
    "vllm_num_engines": "vllm.num_engines",
    "vllm_tensor_parallel_size": "vllm.tensor_parallel_size",
    "init_kl_coef": "algo.kl.init_coef",
    "advantage_estimator": "algo.advantage.estimator",
    "remote_rm_url": "reward.remote_url",
    "agent_func_path": "train.agent_func_path",
    "async_train": "train.async_enable",
    "load_checkpoint": "ckpt.load_enable",
    **{f"{model}_num_": f"{model}.num_" for model in ("actor", "ref", "critic", "reward")},
}


def dotted(text: str) -> str:
    """Replace flags by their names since OpenRLHF 0.10.2."""
    for old, new in DOTTED.items():
        text = text.replace(f"--{old}", f"--{new}")
    return text


def job(flags: str, **fields: Any) -> JobSpec:
    """A job of OpenRLHF on 2 nodes with 8 GPUs each."""
    spec = {
        "preset": "openrlhf",
        "slurm": {"nodes": 2, "gpus_per_node": 8, "cpus_per_task": 64},
        "run": [*MAIN, *flags.split()],
    }
    return JobSpec.model_validate({**spec, **fields})


def texts(advice: Advice) -> list[str]:
    return [finding.text for finding in advice.problems]


both_forms = pytest.mark.parametrize("form", [str, dotted], ids=["underscores", "dots"])


# -- what is filled in -----------------------------------------------------------------------------


@both_forms
def test_models_that_share_all_gpus_get_all_of_them(form: Any) -> None:
    own = form(f"{GRPO} --colocate_all_models --vllm_num_engines 4 --vllm_tensor_parallel_size=4")
    filled = form(
        "--actor_num_nodes 2 --actor_num_gpus_per_node 8 --ref_num_nodes 2 --ref_num_gpus_per_node 8"
    )
    assert advise(job(own)) == Advice([*MAIN, *own.split(), *filled.split()])
    assert advise(job(f"{own} {filled}")) == Advice([*MAIN, *own.split(), *filled.split()])


def test_values_are_filled_in_for_every_model() -> None:
    own = "--colocate_all_models --init_kl_coef 0"
    models = ("actor", "critic", "reward")
    filled = " ".join(f"--{model}_num_nodes 2 --{model}_num_gpus_per_node 8" for model in models)
    assert advise(job(own)).run == [*MAIN, *own.split(), *filled.split()]


def test_user_s_values_for_the_actor_are_kept() -> None:
    own = f"{GRPO} --colocate_all_models --actor_num_nodes 1 --actor_num_gpus_per_node 8"
    advice = advise(job(own))
    assert (advice.run, advice.problems) == ([*MAIN, *own.split()], [])
    assert advice.remarks == ["actor 1 x 8 (8) = 8 GPUs, the job has 2 nodes x 8 = 16: 8 idle"]


def test_missing_values_for_the_actor_are_filled_in() -> None:
    own = f"{GRPO} --colocate_all_models --actor_num_nodes 1"
    filled = "--actor_num_gpus_per_node 8 --ref_num_gpus_per_node 8"
    assert advise(job(own)).run == [*MAIN, *own.split(), *filled.split()]


def test_hostile_arguments_are_unchanged() -> None:
    own = ["--prompt_data", "a b", "--input_template", "{} $HOME\n'", "--colocate_actor_ref", "", "--x=${y}"]
    advice = advise(job("", run=[*MAIN, *own, *GRPO.split(), *GUIDE.split()]))
    assert advice == Advice([*MAIN, *own, *GRPO.split(), *GUIDE.split()])


def test_a_text_for_bash_gets_a_note_with_the_arguments() -> None:
    text = "python3 -m openrlhf.cli.train_ppo_ray --colocate_all_models " + GRPO
    assert advise(job("", run=text)).remarks == [
        'run is a text without "$@", so nothing is added to it: write "$@" behind the trainer\'s arguments, or pass'
        " --actor_num_nodes $NNODES --actor_num_gpus_per_node $GPUS_PER_NODE"
        " --ref_num_nodes $NNODES --ref_num_gpus_per_node $GPUS_PER_NODE"
    ]


def test_other_commands_are_unchanged() -> None:
    for run in (
        ["deepspeed", "--module", "openrlhf.cli.train_sft", "--max_len", "2048"],
        ["bash", "examples/scripts/train_ppo_ray_70b.sh"],
    ):
        assert advise(job("", run=run, requeue={"max": 1})) == Advice(run)


@both_forms
def test_resuming(form: Any) -> None:
    flags = form(f"{GRPO} {GUIDE} --colocate_actor_ref")
    assert advise(job(flags)).resume == []
    assert advise(job(flags, requeue={"max": 1})).resume == [form("--load_checkpoint")]
    assert advise(job(f"{flags} {form('--load_checkpoint')}", requeue={"max": 1})).resume == []


# -- placements ------------------------------------------------------------------------------------


@both_forms
@pytest.mark.parametrize(
    "flags",
    [
        f"{GRPO} {GUIDE} --colocate_actor_ref",
        f"{GRPO} --colocate_all_models --vllm_num_engines 16",
        f"{GRPO} --colocate_all_models --vllm_num_engines 2 --vllm_tensor_parallel_size 8",
        "--colocate_all_models --vllm_num_engines 8 --vllm_tensor_parallel_size 2",
        "--actor_num_gpus_per_node 4 --ref_num_gpus_per_node 4 --critic_num_gpus_per_node 4 --reward_num_gpus_per_node 4",
        "--colocate_actor_ref --colocate_critic_reward",
        f"{GRPO} --async_train --colocate_all_models --actor_num_nodes 1 --ref_num_nodes 1 --vllm_num_engines 8",
        f"{GRPO} --init_kl_coef 0 --vllm_num_engines 8",
        "--advantage_estimator reinforce --agent_func_path a.py --init_kl_coef 0.0 --actor_num_nodes 2",
        f"{GRPO} --actor_num_nodes $N --ref_num_nodes 2",
        f"{GRPO} --init_kl_coef $K --actor_num_nodes 2 --ref_num_nodes 2",
        "--advantage_estimator $E --actor_num_nodes 2 --ref_num_nodes 2",
    ],
)
def test_right_placements(flags: str, form: Any) -> None:
    advice = advise(job(form(flags)))
    assert (advice.problems, advice.remarks) == ([], [])


JOB = "the job has 2 nodes x 8 = 16"


@both_forms
@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        # 16 GPUs according to xDAN-RL's guide
        (f"{GRPO} {GUIDE}", f"actor 2 x 4 (8) + ref 2 x 4 (8) + vllm 2 engines x 4 (8) = 24 GPUs, {JOB}: make them smaller, let some share by --colocate_actor_ref or --colocate_all_models, or set slurm.nodes: 3"),
        (GUIDE, f"actor 2 x 4 (8) + ref 2 x 4 (8) + critic 1 x 8 (8) + reward 1 x 8 (8) + vllm 2 engines x 4 (8) = 40 GPUs, {JOB}: make them smaller, let some share by --colocate_actor_ref or --colocate_all_models, or set slurm.nodes: 5"),
        ("--actor_num_nodes 2", f"actor 2 x 8 (16) + ref 1 x 8 (8) + critic 1 x 8 (8) + reward 1 x 8 (8) = 40 GPUs, {JOB}: make them smaller, let some share by --colocate_actor_ref or --colocate_all_models, or set slurm.nodes: 5"),
        ("--colocate_actor_ref --colocate_critic_reward --vllm_num_engines 4", f"actor 1 x 8 (8) + critic 1 x 8 (8) + vllm 4 engines x 1 (4) = 20 GPUs, {JOB}: make them smaller, let some share by --colocate_actor_ref or --colocate_all_models, or set slurm.nodes: 3"),
        (f"{GRPO} --async_train --colocate_all_models --actor_num_nodes 2 --ref_num_nodes 2 --vllm_num_engines 2", f"actor 2 x 8 (16) + vllm 2 engines x 1 (2) = 18 GPUs, {JOB}: make them smaller, let some share by --colocate_actor_ref or --colocate_all_models, or set slurm.nodes: 3"),
        ("--colocate_all_models --colocate_critic_reward --actor_num_nodes 2 --ref_num_nodes 2", f"actor 2 x 8 (16) + critic 1 x 8 (8) = 24 GPUs, {JOB}: make them smaller, let some share by --colocate_actor_ref or --colocate_all_models, or set slurm.nodes: 3"),
        # more than there is
        (f"{GRPO} --actor_num_nodes 4", f"--actor_num_nodes 4, {JOB}: write 2 or less, or set slurm.nodes: 4"),
        (f"{GRPO} --ref_num_gpus_per_node=16", f"--ref_num_gpus_per_node 16, {JOB}: write 8 or less, or set slurm.gpus_per_node: 16"),
        # no numbers
        (f"{GRPO} --ref_num_nodes two", "--ref_num_nodes 'two': expected a number of GPUs or nodes"),
        (f"{GRPO} --ref_num_nodes=-1", "--ref_num_nodes '-1': expected a number of GPUs or nodes"),
        (f"{GRPO} --vllm_num_engines 99999999999", "--vllm_num_engines '99999999999': too large, expected a number of GPUs or nodes"),
        # engines
        (f"{GRPO} --colocate_all_models --vllm_num_engines 2 --vllm_tensor_parallel_size 4", "vllm 2 engines x 4 (8) and actor 2 x 8 (16): the engines use the actor's GPUs because of --colocate_all_models: write --vllm_num_engines 4"),
        (f"{GRPO} --colocate_all_models --actor_num_gpus_per_node 3 --ref_num_gpus_per_node 3 --vllm_num_engines 2 --vllm_tensor_parallel_size 4", "vllm 2 engines x 4 (8) and actor 2 x 3 (6): the engines use the actor's GPUs because of --colocate_all_models: choose another size of engine"),
        # who shares
        (f"{GRPO} --colocate_actor_ref --actor_num_nodes 2", "actor 2 x 8 (16) and ref 1 x 8 (8): they share GPUs because of --colocate_actor_ref: give both the same numbers"),
        (f"{GRPO} --colocate_all_models --actor_num_nodes 2 --actor_num_gpus_per_node 8", "actor 2 x 8 (16) and ref 1 x 8 (8): they share GPUs because of --colocate_all_models: give both the same numbers"),
        ("--colocate_actor_ref --colocate_critic_reward --critic_num_gpus_per_node 4", "critic 1 x 4 (4) and reward 1 x 8 (8): they share GPUs because of --colocate_critic_reward: give both the same numbers"),
        ("--remote_rm_url http://x --colocate_actor_ref --colocate_critic_reward --critic_num_gpus_per_node 4", "critic 1 x 4 (4) and reward 1 x 8 (8): they share GPUs because of --colocate_critic_reward: give both the same numbers"),
        (f"{GRPO} --advantage_estimator gae --colocate_all_models --actor_num_nodes 1 --actor_num_gpus_per_node 4 --ref_num_gpus_per_node 4", "critic 1 x 8 (8) shares the GPUs of actor 1 x 4 (4) because of --colocate_all_models: give it no more than the actor"),
    ],
)  # fmt: skip
def test_wrong_placements(flags: str, expected: str, form: Any) -> None:
    assert texts(advise(job(form(flags)))) == [form(expected)]


@both_forms
@pytest.mark.parametrize(
    ("engines", "size", "gpus", "services"),
    [(1, 16, 8, ""), (3, 4, 6, " (services use 2 of 8 on each node: reward 2)")],
)
def test_engines_across_nodes(engines: int, size: int, gpus: int, services: str, form: Any) -> None:
    flags = f"{GRPO} --init_kl_coef 0 --colocate_all_models"
    service = [{"name": "reward", "run": "x", "gpus": 2}] if services else []
    text = form(f"{flags} --vllm_num_engines {engines} --vllm_tensor_parallel_size {size}")
    advice = advise(job(text, services=service))
    lies = f"engines of {size} lie across nodes of {gpus} GPUs{services}, which is slow"
    remark = form(f"--vllm_tensor_parallel_size {size}: {lies}: a divisor of {gpus} does not")
    assert (advice.problems, advice.remarks) == ([], [remark])


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ("--actor_num_gpus_per_node 8", "--actor_num_gpus_per_node 8, the job has 2 nodes x 6 = 12 (services use 2 of 8 on each node: reward 2): write 6 or less, or set slurm.gpus_per_node: 10, 8 and those of services"),
    ],
)  # fmt: skip
def test_gpus_of_services(flags: str, expected: str) -> None:
    service = {"name": "reward", "run": "x", "gpus": 2}
    assert texts(advise(job(flags, services=[service]))) == [expected]


@pytest.mark.parametrize(
    ("flags", "version", "expected"),
    [
        ("--ref_num_nodes 1", "0.11.2", "--ref_num_nodes: OpenRLHF 0.11.2 calls it --ref.num_nodes"),
        ("--colocate_all_models", "0.10.2", "--colocate_all_models: OpenRLHF 0.10.2 calls it --train.colocate_all"),
        ("--pretrain x", "0.11.2", "--pretrain: OpenRLHF 0.11.2 calls it --actor.model_name_or_path"),
        ("--reward_pretrain x", "0.11.2", "--reward_pretrain: OpenRLHF 0.11.2 calls it --reward.model_name_or_path"),
        ("--critic_pretrain x", "0.11.2", "--critic_pretrain: OpenRLHF 0.11.2 calls it --critic.model_name_or_path"),
        ("--n_samples_per_prompt x", "0.11.2", "--n_samples_per_prompt: OpenRLHF 0.11.2 calls it --rollout.n_samples_per_prompt"),
        ("--ckpt_path x", "0.11.2", "--ckpt_path: OpenRLHF 0.11.2 calls it --ckpt.path"),
        ("--ref.num_nodes 1", "0.6.4", "--ref.num_nodes: OpenRLHF 0.6.4 calls it --ref_num_nodes"),
        ("--ref.num_nodes=1", "0.10.1.post2", "--ref.num_nodes: OpenRLHF 0.10.1.post2 calls it --ref_num_nodes"),
        ("--ds.zero_stage 3 --ref_num_nodes 1", None, "--ref_num_nodes: the OpenRLHF of your other flags calls it --ref.num_nodes"),
        ("--ref_num_nodes 1", "0.6.4", None),
        ("--ref.num_nodes 1", "v0.11", None),
    ],
)  # fmt: skip
def test_flags_of_another_version(flags: str, version: str | None, expected: str | None) -> None:
    advice = advise(
        job(
            flags,
            preset={"name": "openrlhf", "version": version},
            slurm={"nodes": 8, "gpus_per_node": 8, "cpus_per_task": 64},
        )
    )
    assert texts(advice) == ([expected] if expected else [])


def test_a_problem_has_the_place_of_its_flag() -> None:
    assert [finding.path for finding in advise(job(f"{GRPO} --actor_num_nodes 4")).problems] == [("run", 7)]
    assert [finding.path for finding in advise(job("")).problems] == [("run",)]
