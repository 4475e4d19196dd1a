# ruff: noqa: E501 - one line for one mistake
"""verl's preset. Refusals of verl's Hydra configuration were tried with verl 0.9.1."""

import subprocess
from pathlib import Path
from typing import Any

import pytest

from slurmray.errors import ExitCode, SpecError
from slurmray.loading.load import load_plan
from slurmray.plan import Advice
from slurmray.presets import advise
from slurmray.rendering.job_settings import make_settings
from slurmray.spec.job_spec import JobSpec
from tests.plans import plan_of

MAIN = ["python3", "-m", "verl.trainer.main_ppo"]
FULLY_ASYNC_MAIN = ["python3", "-m", "verl.experimental.fully_async_policy.fully_async_main"]
FILLED_IN = ["trainer.nnodes=2", "trainer.n_gpus_per_node=8"]
TP = "actor_rollout_ref.rollout.tensor_model_parallel_size"
PP = "actor_rollout_ref.rollout.pipeline_model_parallel_size"
ROLLOUT = "actor_rollout_ref.rollout"
# The mode in which rollouts have a pool of their own, with what it asserts; verl's batch sizes pass.
SEPARATE = ["trainer.v1.trainer_mode=separate_async", f"{ROLLOUT}.checkpoint_engine.backend=nccl"]
FULLY_ASYNC = ["actor_rollout_ref.hybrid_engine=False", "data.train_batch_size=0"]

# Overrides like in verl's guide for several nodes, with characters that a shell or Hydra may misread.
HOSTILE = [
    "trainer.logger=['console','wandb']",
    "+trainer.x=1",
    "++trainer.y={a: [1, 2], b: 'c d'}",
    "~trainer.z",
    "data.train_files=${oc.env:DATA}/train.parquet",
    "trainer.project_name='it''s $HOME'",
    "data.x=a=b",
    "",
    "line\nbreak",
]


def job(*overrides: str, **fields: Any) -> JobSpec:
    """A job of verl on 2 nodes with 8 GPUs each."""
    slurm = {"nodes": 2, "gpus_per_node": "h100:8", "cpus_per_task": 64}
    main = FULLY_ASYNC_MAIN if FULLY_ASYNC[0] in overrides else MAIN
    spec = {"preset": "verl", "slurm": slurm, "run": [*main, *overrides]}
    return JobSpec.model_validate({**spec, **fields})


def texts(advice: Advice) -> list[str]:
    return [finding.text for finding in advice.problems]


# -- what is filled in -----------------------------------------------------------------------------


def test_nodes_and_gpus_are_filled_in_and_other_arguments_are_unchanged() -> None:
    advice = advise(job(*HOSTILE))
    assert advice == Advice([*MAIN, *HOSTILE, *FILLED_IN])


@pytest.mark.parametrize("prefix", ["", "++"])
def test_the_user_s_own_values_are_not_repeated(prefix: str) -> None:
    own = [f"{prefix}trainer.nnodes=2", f"{prefix}trainer.n_gpus_per_node=8"]
    assert advise(job(*own)) == Advice([*MAIN, *own])
    assert advise(job(own[1])).run == [*MAIN, own[1], FILLED_IN[0]]


@pytest.mark.parametrize("value", ["$N", "${oc.env:N}", "null"])
def test_a_value_known_only_at_run_time_is_not_checked(value: str) -> None:
    own = f"trainer.nnodes={value}"
    assert advise(job(own)) == Advice([*MAIN, own, FILLED_IN[1]])


def test_without_a_preset_nothing_is_done() -> None:
    assert advise(job("trainer.nnodes=7", preset=None)) == Advice([*MAIN, "trainer.nnodes=7"])


def test_the_built_in_check_needs_nothing() -> None:
    assert advise(job(run=None, requeue={"max": 1})) == Advice(None)


@pytest.mark.parametrize(
    "run",
    [
        "set -e\npython3 -m verl.trainer.main_ppo a=1 \\\n  b=2 2>&1 | tee log",
        ["bash", "-c", "python3 -m verl.trainer.main_ppo"],
        ["bash", "run.sh"],
    ],
)
def test_a_text_or_a_script_is_unchanged(run: list[str] | str) -> None:
    advice = advise(job(run=run, requeue={"max": 1}))
    argv = ["bash", "-c", run, "slurmray"] if isinstance(run, str) else run
    assert (advice.run, advice.resume, advice.problems) == (argv, [], [])
    what, where = "a script", ""
    if isinstance(run, str):
        what, where = 'a text without "$@"', 'write "$@" behind the trainer\'s arguments, or '
    assert advice.remarks == [
        f"run is {what}, so nothing is added to it: {where}pass trainer.nnodes=$NNODES"
        " trainer.n_gpus_per_node=$GPUS_PER_NODE",
        f"run is {what}: after a restart, if SLURMRAY_ATTEMPT is not 0, pass trainer.resume_mode=auto",
    ]


def test_a_complete_text_needs_no_note() -> None:
    text = "python3 -m verl.trainer.main_ppo trainer.nnodes=$NNODES trainer.n_gpus_per_node=$GPUS_PER_NODE"
    assert advise(job(run=text)) == Advice(["bash", "-c", text, "slurmray"])


@pytest.mark.parametrize(
    "form", ['{} "$@"', "{} $* | tee x", 'preset_args=("$@"); set --\n{} "${{preset_args[@]}}"']
)
def test_a_text_takes_the_arguments(form: str) -> None:
    """bash runs it with those of the first start and, after them, those for resuming."""
    advice = advise(job(run=form.format("python3 -m verl.trainer.main_ppo a=1"), requeue={"max": 1}))
    assert (advice.resume, advice.remarks) == (["trainer.resume_mode=auto"], [])
    assert advice.run
    argv = [item.replace("python3", "echo python3").replace("| tee x", "") for item in advice.run]
    done = subprocess.run([*argv, *advice.resume], capture_output=True, text=True, check=True)
    assert done.stdout.split() == [*MAIN, "a=1", *FILLED_IN, "trainer.resume_mode=auto"]


def test_arguments_of_a_text_are_bash_s() -> None:
    """Whatever they have in them, and without becoming $0."""
    run = advise(job(run='printf "<%s>" "$0" "$@"')).run
    assert run
    done = subprocess.run([*run, "a b", "$x", "'"], capture_output=True, text=True, check=True)
    assert done.stdout.endswith("<a b><$x><'>")
    assert done.stdout.startswith("<slurmray>")


@pytest.mark.parametrize(
    ("lines", "word", "value"),
    [
        ("N=7", "$N", "7"),
        ("N=7", "${N}", "7"),
        ("A=(\n  a=b\n  trainer.nnodes=7 # seven\n)", '"${A[@]}"', "7"),
        ("L=(uv run python)\nM=7", "$M", "7"),
        ("N=7\nN=8", "$N", None),
        ("if x; then\n  N=7\nfi", "$N", None),
        ("N=7\nfor N in 1; do :; done", "$N", None),
        ("N=$(date)", "$N", None),
    ],
)
def test_values_that_are_certain_are_checked(lines: str, word: str, value: str | None) -> None:
    word = word if "A[" in word else f"trainer.nnodes={word}"
    start = '"${L[@]}"' if "L=" in lines else "python3"
    advice = advise(job(run=f"{lines}\n{start} -m verl.trainer.main_ppo {word} trainer.n_gpus_per_node=8"))
    found = [finding.text for finding in advice.problems]
    assert any("trainer.nnodes" in text and "7" in text for text in found) is (value is not None)


def test_a_text_that_is_not_checked_has_a_remark() -> None:
    remarks = advise(job(run='"$(which python3)" -m verl.trainer.main_ppo "$@"')).remarks
    assert [remark.partition(":")[0] for remark in remarks] == ["run is not checked"]


@pytest.mark.parametrize(
    ("max_requeues", "own", "expected"),
    [
        (0, [], []),
        (2, [], ["trainer.resume_mode=auto"]),
        (2, ["trainer.resume_mode=disable"], []),
        (2, ["trainer.resume_mode=resume_path"], []),
    ],
)
def test_resuming(max_requeues: int, own: list[str], expected: list[str]) -> None:
    advice = advise(job(*own, requeue={"max": max_requeues}))
    assert advice.resume == expected
    assert advice.run == [*MAIN, *own, *FILLED_IN]


@pytest.mark.parametrize(
    "fields",
    [
        {"spares": 1, "on_node_loss": "restart"},
        {"restart": {"exit_codes": [85]}},
        {"requeue": {"exit_code": 85}},
        {"watch": {"action": "restart"}},
    ],
)
def test_resuming_after_what_starts_the_trainer_again(fields: dict[str, Any]) -> None:
    assert advise(job(**fields)).resume == ["trainer.resume_mode=auto"]


def test_settings_have_the_arguments() -> None:
    trainer = make_settings(plan_of(job("a=${b}", requeue={"max": 1})), "again")["trainer"]
    assert trainer["command"] == [*MAIN, "a=${b}", *FILLED_IN]
    assert trainer["resume"] == ["trainer.resume_mode=auto"]


# -- what is refused -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        (["trainer.nnodes=4"], "trainer.nnodes=4: 4 nodes x 8 = 32 GPUs, the job has 2 nodes x 8 = 16: leave trainer.nnodes out, then it is 2, or set slurm.nodes: 4"),
        (["trainer.nnodes=1"], "trainer.nnodes=1: 1 node x 8 = 8 GPUs, the job has 2 nodes x 8 = 16: leave trainer.nnodes out, then it is 2, or set slurm.nodes: 1"),
        (["trainer.nnodes=0"], "trainer.nnodes=0: 0 nodes x 8 = 0 GPUs, the job has 2 nodes x 8 = 16: leave trainer.nnodes out, then it is 2, or set slurm.nodes: 0"),
        (["trainer.n_gpus_per_node=4"], "trainer.n_gpus_per_node=4: 2 nodes x 4 = 8 GPUs, the job has 2 nodes x 8 = 16: leave trainer.n_gpus_per_node out, then it is 8, or set slurm.gpus_per_node: 4"),
        (["++trainer.n_gpus_per_node=16"], "trainer.n_gpus_per_node=16: 2 nodes x 16 = 32 GPUs, the job has 2 nodes x 8 = 16: leave trainer.n_gpus_per_node out, then it is 8, or set slurm.gpus_per_node: 16"),
        (["trainer.nnodes=2", "trainer.nnodes=3"], "trainer.nnodes=3: 3 nodes x 8 = 24 GPUs, the job has 2 nodes x 8 = 16: leave trainer.nnodes out, then it is 2, or set slurm.nodes: 3"),
        (["+trainer.nnodes=2"], "+trainer.nnodes: the trainer's configuration already has this key, and Hydra adds only new ones: leave the + out"),
        ([f"{TP}=3"], "rollout.tensor_model_parallel_size=3: engines of 3 do not divide 2 nodes x 8 = 16 GPUs: choose a divisor of 8"),
        ([f"{TP}=32"], "rollout.tensor_model_parallel_size=32: engines of 32 do not divide 2 nodes x 8 = 16 GPUs: choose a divisor of 8"),
        ([f"{TP}=4", f"{PP}=3"], "rollout.tensor_model_parallel_size=4 x pipeline_model_parallel_size=3: engines of 12 do not divide 2 nodes x 8 = 16 GPUs: choose a divisor of 8"),
        ([f"{TP}=8", f"{ROLLOUT}.data_parallel_size=0"], "rollout.data_parallel_size=0: expected 1 or more"),
        ([f"{TP}=0"], "rollout.tensor_model_parallel_size=0: expected 1 or more"),
        ([*SEPARATE, f"{ROLLOUT}.nnodes=1"], "actor_rollout_ref.rollout has its own GPUs: set trainer.nnodes and trainer.n_gpus_per_node to what the trainer uses"),
        ([*SEPARATE, f"{ROLLOUT}.nnodes=1", *FILLED_IN], "trainer 2 x 8 + actor_rollout_ref.rollout 1 x 8 = 24 GPUs, the job has 2 nodes x 8 = 16: make a pool smaller, or set slurm.nodes: 3"),
        ([*SEPARATE, f"{ROLLOUT}.nnodes=1", f"{ROLLOUT}.n_gpus_per_node=16", "trainer.nnodes=1", FILLED_IN[1]], "trainer 1 x 8 + actor_rollout_ref.rollout 1 x 16: a node of the job has 8 GPUs: set actor_rollout_ref.rollout.n_gpus_per_node to 8 or less"),
        (["reward_model.enable_resource_pool=True", "reward_model.nnodes=1", "reward_model.n_gpus_per_node=4", *FILLED_IN], "trainer 2 x 8 + reward_model 1 x 4 = 20 GPUs, the job has 2 nodes x 8 = 16: make a pool smaller, or set slurm.nodes: 3"),
    ],
)  # fmt: skip
def test_wrong_placements(overrides: list[str], expected: str) -> None:
    assert texts(advise(job(*overrides))) == [expected]


@pytest.mark.parametrize(
    ("override", "gpus", "expected"),
    [
        ("trainer.n_gpus_per_node=8", 2, "trainer.n_gpus_per_node=8: 2 nodes x 8 = 16 GPUs, the job has 2 nodes x 6 = 12 (services use 2 of 8 on each node: retriever 2): leave trainer.n_gpus_per_node out, then it is 6, or set slurm.gpus_per_node: 10, 8 and those of services"),
        (f"{TP}=8", 2, "rollout.tensor_model_parallel_size=8: engines of 8 do not divide 2 nodes x 6 = 12 GPUs (services use 2 of 8 on each node: retriever 2): choose a divisor of 6"),
        (f"{TP}=4", 2, "rollout.tensor_model_parallel_size=4: an engine of 4 would lie across nodes of 6 GPUs (services use 2 of 8 on each node: retriever 2): choose a divisor of 6"),
        ("trainer.n_gpus_per_node=8", 8, "verl needs GPUs, and services use all 8 of each node, retriever 8: give them fewer, or request more with slurm.gpus_per_node"),
    ],
)  # fmt: skip
def test_gpus_of_services(override: str, gpus: int, expected: str) -> None:
    service = {"name": "retriever", "run": "x", "gpus": gpus, "where": "all"}
    advice = advise(job(override, services=[service, {"name": "other", "run": "x"}]))
    assert texts(advice) == [expected]


def test_a_head_node_that_offers_no_gpus() -> None:
    fields: dict[str, Any] = {
        "slurm": {"nodes": 3, "gpus_per_node": 8, "cpus_per_task": 64},
        "ray": {"head": {"gpus": 0}},
    }
    assert advise(job(**fields)).run == [*MAIN, *FILLED_IN]
    text = "trainer.nnodes=3: 3 nodes x 8 = 24 GPUs, the job has 2 nodes x 8 = 16 without the head node"
    fix = "leave trainer.nnodes out, then it is 2, or set slurm.nodes: 4"
    assert texts(advise(job("trainer.nnodes=3", **fields))) == [f"{text}: {fix}"]
    pools = [*SEPARATE, f"{ROLLOUT}.nnodes=1", *FILLED_IN]
    (problem,) = texts(advise(job(*pools, **fields)))
    assert problem.endswith("make a pool smaller, or set slurm.nodes: 4")


NO_NUMBER = "expected a number of GPUs or nodes"


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        (["trainer.nnodes=two"], f"trainer.nnodes 'two': {NO_NUMBER}"),
        (["trainer.nnodes='2'"], f"trainer.nnodes \"'2'\": {NO_NUMBER}"),
        (["trainer.nnodes="], f"trainer.nnodes '': {NO_NUMBER}"),
        (["trainer.n_gpus_per_node=-1"], f"trainer.n_gpus_per_node '-1': {NO_NUMBER}"),
        (["trainer.nnodes=99999999999"], "trainer.nnodes '99999999999': too large, expected a number of GPUs or nodes"),
        ([*SEPARATE, f"{ROLLOUT}.nnodes=one", *FILLED_IN], f"{ROLLOUT}.nnodes 'one': {NO_NUMBER}"),
        ([*SEPARATE, f"{ROLLOUT}.nnodes=1", "trainer.nnodes=one", FILLED_IN[1]], f"trainer.nnodes 'one': {NO_NUMBER}"),
        ([f"{TP}=all"], f"{TP} 'all': {NO_NUMBER}"),
    ],
)  # fmt: skip
def test_values_that_are_not_numbers(overrides: list[str], expected: str) -> None:
    assert texts(advise(job(*overrides))) == [expected]


REWARD, DISTILLATION = "reward.reward_model", "distillation"
REWARD_ON, DISTILLATION_ON = f"{REWARD}.enable_resource_pool=True", f"{DISTILLATION}.enabled=true"


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        ([REWARD_ON, f"{REWARD}.nnodes=1"], f"trainer 1 x 4 + {REWARD} 1 x 8: a node of the job has 4 GPUs: set {REWARD}.n_gpus_per_node to 4 or less"),
        ([DISTILLATION_ON, f"{DISTILLATION}.nnodes=1"], f"trainer 1 x 4 + {DISTILLATION} 1 x 8: a node of the job has 4 GPUs: set {DISTILLATION}.n_gpus_per_node to 4 or less"),
        ([*FULLY_ASYNC, "rollout.nnodes=1"], "trainer 1 x 4 + rollout 1 x 8: a node of the job has 4 GPUs: set rollout.n_gpus_per_node to 4 or less"),
        ([REWARD_ON], f"trainer 1 x 4 + {REWARD} 0 x 8: a pool without GPUs: set {REWARD}.nnodes to 1 or more"),
        ([DISTILLATION_ON, f"{DISTILLATION}.nnodes=1", f"{DISTILLATION}.n_gpus_per_node=0"], f"trainer 1 x 4 + {DISTILLATION} 1 x 0: a pool without GPUs: set {DISTILLATION}.n_gpus_per_node to 1 or more"),
        ([*SEPARATE, f"{ROLLOUT}.nnodes=1"], None),
        ([*SEPARATE, f"{ROLLOUT}.nnodes=1", f"{TP}=8"], "rollout.tensor_model_parallel_size=8: engines of 8 do not divide 1 node x 4 = 4 GPUs: choose a divisor of 4"),
        ([*SEPARATE, f"{ROLLOUT}.nnodes=$N", f"{TP}=8"], None),
        ([REWARD_ON, f"{REWARD}.nnodes=1", f"{REWARD}.n_gpus_per_node=$N"], None),
    ],
)  # fmt: skip
def test_default_size_of_a_pool(overrides: list[str], expected: str | None) -> None:
    own = ["trainer.nnodes=1", "trainer.n_gpus_per_node=4"]
    advice = advise(job(*own, *overrides, slurm={"nodes": 2, "gpus_per_node": 4, "cpus_per_task": 64}))
    assert (texts(advice), advice.remarks) == ([expected] if expected else [], [])


def test_the_rollouts_pool_has_as_many_gpus_of_a_node_as_the_trainer() -> None:
    own = [*SEPARATE, "trainer.nnodes=1", "trainer.n_gpus_per_node=4", f"{ROLLOUT}.nnodes=1"]
    advice = advise(job(*own, slurm={"nodes": 1, "gpus_per_node": 8, "cpus_per_task": 64}))
    assert (texts(advice), advice.remarks) == ([], [])


def test_an_engine_across_nodes() -> None:
    advice = advise(job(f"{TP}=6", slurm={"nodes": 3, "gpus_per_node": 8}))
    assert texts(advice) == [
        "rollout.tensor_model_parallel_size=6: an engine of 6 would lie across nodes of 8 GPUs: choose a divisor of 8"
    ]


@pytest.mark.parametrize(
    "overrides",
    [
        [f"{TP}=1"],
        [f"{TP}=+1", "trainer.nnodes=+2"],
        [f"{TP}=8"],
        [f"{TP}=16"],
        [f"{TP}=4", f"{PP}=2"],
        [f"{TP}=3", f"{PP}=$P"],
        [f"{TP}=$T"],
        [f"{ROLLOUT}.nnodes=0"],
        [*SEPARATE, f"{ROLLOUT}.nnodes=1", "trainer.nnodes=1", FILLED_IN[1]],
        [*SEPARATE, f"{ROLLOUT}.nnodes=2", f"{ROLLOUT}.n_gpus_per_node=2", "trainer.nnodes=2", "trainer.n_gpus_per_node=6", f"{TP}=2"],
        ["reward_model.nnodes=1"],
        ["reward_model.enable_resource_pool=False", "reward_model.nnodes=1"],
    ],
)  # fmt: skip
def test_right_placements(overrides: list[str]) -> None:
    advice = advise(job(*overrides))
    assert (advice.problems, advice.remarks) == ([], [])


def test_an_idle_pool_is_worth_a_note() -> None:
    advice = advise(job(*SEPARATE, f"{ROLLOUT}.nnodes=1", "trainer.nnodes=1", "trainer.n_gpus_per_node=4"))
    assert advice.remarks == [
        "trainer 1 x 4 + actor_rollout_ref.rollout 1 x 4 = 8 GPUs, the job has 2 nodes x 8 = 16: 8 idle"
    ]


@pytest.mark.parametrize(
    ("override", "version", "expected"),
    [
        ("critic.model.fsdp_config.param_offload=False", "0.9.1", "critic.model.fsdp_config.param_offload: verl 0.9.1 has no such key: write critic.fsdp.param_offload"),
        ("critic.model.fsdp_config.param_offload=False", "0.8.0", "critic.model.fsdp_config.param_offload: verl 0.8.0 has no such key: write critic.fsdp.param_offload"),
        ("critic.model.fsdp_config.param_offload=False", "0.7.1", None),
        ("critic.model.fsdp_config.param_offload=False", "0.4.1", None),
        ("critic.model.fsdp_config.param_offload=False", None, None),
        ("critic.model.fsdp_config.grad_offload=False", "0.4.1", "critic.model.fsdp_config.grad_offload: verl 0.4.1 has no such key: leave it out"),
        ("actor_rollout_ref.actor.fsdp_config.grad_offload=False", "0.3", "actor_rollout_ref.actor.fsdp_config.grad_offload: verl 0.3 has no such key: leave it out"),
        ("+trainer.val_only=false", "0.9.1", "+trainer.val_only: the trainer's configuration already has this key, and Hydra adds only new ones: leave the + out"),
        ("+trainer.val_only=false", "0.4.0", None),
        ("+trainer.val_before_train=false", "0.4.0", "+trainer.val_before_train: the trainer's configuration already has this key, and Hydra adds only new ones: leave the + out"),
        ("++trainer.val_only=false", "0.9.1", None),
        ("critic.fsdp.param_offload=False", "0.9.1", None),
        ("ray_kwargs.ray_init.num_cpus=32", None, "ray_kwargs.ray_init.num_cpus: refused by a Ray that runs already: leave it out, Ray has what the job requests"),
        ("+ray_init.num_gpus=8", "0.4.0", "ray_init.num_gpus: refused by a Ray that runs already: leave it out, Ray has what the job requests"),
        ("ray_kwargs.ray_init.num_cpus=null", None, None),
        ("+trainer.val_only=false", "0." + "9" * 5000, "+trainer.val_only: the trainer's configuration already has this key, and Hydra adds only new ones: leave the + out"),
    ],
)  # fmt: skip
def test_keys_of_another_version(override: str, version: str | None, expected: str | None) -> None:
    advice = advise(job(override, preset={"name": "verl", "version": version}))
    assert texts(advice) == ([expected] if expected else [])


def test_a_text_is_checked_if_it_can_be_read() -> None:
    main = "python3 -m verl.trainer.main_ppo"
    for text, count in {
        f"{main} trainer.nnodes=4": 1,
        f"cd verl && {main} \\\n  trainer.nnodes=4 2>&1 | tee log": 1,
        f"{main} trainer.nnodes=4; {main} trainer.nnodes=2": 0,  # two commands: not checked
        f'{main} "trainer.nnodes=4\n"': 0,
        f"{main} trainer.project_name=a#b trainer.nnodes=4": 1,
        f"{main} '#a' trainer.nnodes=4": 1,
        f"{main} trainer.nnodes=2 # don't write trainer.nnodes=4": 0,
        f"{main} trainer.nnodes=2;# trainer.nnodes=4": 0,
        f"{main} trainer.nnodes=4 a=$(nproc)": 0,
        f"{main} trainer.nnodes=4 $MORE": 0,
        "python3 $HOME/main_ppo.py trainer.nnodes=4 a=$B": 1,
        f"cat <<X\n{main} trainer.nnodes=4\nX": 0,
        "echo trainer.nnodes=4": 0,
    }.items():
        assert len(advise(job(run=text)).problems) == count, text


# -- the job spec ----------------------------------------------------------------------------------


def mistakes(text: str, *settings: tuple[str, str], entrypoint: tuple[str, ...] = ()) -> str:
    Path("job.yaml").write_text(text)
    with pytest.raises(SpecError) as caught:
        load_plan(Path("job.yaml"), settings, entrypoint)
    assert caught.value.exit_code == ExitCode.USAGE
    return str(caught.value)


@pytest.mark.usefixtures("current_folder")
def test_problems_have_places() -> None:
    slurm = "slurm: {nodes: 2, gpus_per_node: 8}\n"
    wrong = "trainer.nnodes=4: 4 nodes x 8 = 32 GPUs, the job has 2 nodes x 8 = 16: leave trainer.nnodes out, then it is 2, or set slurm.nodes: 4"
    listed = f"preset: verl\n{slurm}run:\n  - python3\n  - train.py\n  - trainer.nnodes=4\n"
    text = mistakes(slurm, ("preset", "verl"), entrypoint=("a.py", "trainer.nnodes=4"))
    assert text == f"after --: {wrong}"
    assert mistakes(f"preset: verl\n{slurm}", ("run", "[a.py, trainer.nnodes=4]")) == f"--set run: {wrong}"
    for text, expected in {
        listed: f"6:5: {wrong}",
        f"preset: verl\n{slurm}run: python3 x.py trainer.nnodes=4": f"3:6: {wrong}",
        "preset: verl": "1:9: verl needs GPUs, and the job requests none: set slurm.gpus_per_node",
        f"{slurm}preset: {{name: verl, config: x.yaml}}": "2:30: verl has all its arguments in `run`: "
        "leave preset.config out",
        "preset: verll": "1:9: preset.name: expected verl, search-r1, rlinf, roll, openrlhf, nemo-rl, skyrl or "
        "slime, got 'verll'",
        "preset: [verl]": "1:9: preset: expected `name: value` pairs, got a list",
        "preset: {version: 1}": "1:9: preset.name: is required",
        "preset: {name: verl, version: new}": "1:31: preset.version: expected numbers with dots, e.g. 0.11.2, "
        "got 'new'",
    }.items():
        assert mistakes(text) == f"job.yaml:{expected}"
    assert load_plan(Path("/dev/null"), [("preset.name", "verl"), ("slurm.gpus_per_node", "1")]).spec.preset


# -- what Ray is asked for -------------------------------------------------------------------------

POOLS = ["trainer.nnodes=1", "trainer.n_gpus_per_node=8"]
ONE_STEP_OFF = ["python3", "-m", "verl.experimental.one_step_off_policy.main_ppo"]


@pytest.mark.parametrize(
    ("run", "nodes", "least"),
    [
        (MAIN, 2, 29),  # 24 for the pool, 4 storage units of TransferQueue, and its controller
        (MAIN, 1, 33),
        (MAIN, 4, 27),
        (MAIN, 8, 26),
        # The controller may be beside the last storage unit: with 27 CPUs it is chance.
        (MAIN, 3, 28),
        (MAIN, 16, 26),
        ([*MAIN, "transfer_queue.backend.SimpleStorage.num_data_storage_units=2"], 2, 26),
        ([*MAIN, "transfer_queue.backend.storage_backend=MooncakeStore"], 2, 25),
        ([*MAIN, *SEPARATE, f"{ROLLOUT}.nnodes=1", *POOLS], 2, 28),
        ([*MAIN, REWARD_ON, f"{REWARD}.nnodes=1", *POOLS], 2, 29),
        ([*MAIN, "trainer.use_v1=False"], 2, 24),
        ([*FULLY_ASYNC_MAIN, *FULLY_ASYNC, *POOLS], 2, 37),
        ([*ONE_STEP_OFF, FULLY_ASYNC[0], *POOLS], 2, 26),
        (["python3", "-m", "verl.trainer.sft_trainer_ray"], 2, 80),
        (["python3", "-m", "verl.trainer.main_generation_server"], 2, 16),
    ],
)  # fmt: skip
def test_the_fewest_cpus(run: list[str], nodes: int, least: int) -> None:
    """Those of verl 0.9.1 on declared resources, with Ray 2.60.0; the last two from its code."""

    def with_cpus(cpus: int) -> list[str]:
        slurm = {"nodes": nodes, "gpus_per_node": 8, "cpus_per_task": cpus}
        return texts(advise(job(run=run, slurm=slurm, preset={"name": "verl", "version": "0.9.1"})))

    assert with_cpus(least) == []
    (problem,) = with_cpus(least - 1)
    assert f": set it to {least} or more" in problem, problem


@pytest.mark.parametrize(
    ("run", "expected"),
    [
        ([*MAIN, SEPARATE[0]], [f"{ROLLOUT}.nnodes: separate_async has a pool of its own for rollouts: set it, and lower trainer.nnodes", f"{ROLLOUT}.checkpoint_engine.backend is naive: this mode of verl needs nccl or nixl or mooncake: set {ROLLOUT}.checkpoint_engine.backend=nccl"]),
        ([*MAIN, *SEPARATE, f"{ROLLOUT}.nnodes=1", *POOLS, "data.train_batch_size=512"], ["data.train_batch_size is 512, and separate_async wants parameter_sync_step 4 x ppo_mini_batch_size 256: write 1024"]),
        ([*FULLY_ASYNC_MAIN, *POOLS], ["actor_rollout_ref.hybrid_engine is True: this mode of verl needs false: set actor_rollout_ref.hybrid_engine=False", "data.train_batch_size is 1024: this mode of verl needs 0: set data.train_batch_size=0"]),
        ([*FULLY_ASYNC_MAIN, *FULLY_ASYNC, *FILLED_IN], ["trainer 2 x 8 + rollout 1 x 8 = 24 GPUs, the job has 2 nodes x 8 = 16: make a pool smaller, or set slurm.nodes: 3"]),
        ([*ONE_STEP_OFF, FULLY_ASYNC[0], *FILLED_IN], ["trainer 2 x 8 + rollout 1 x 8 = 24 GPUs, the job has 2 nodes x 8 = 16: make a pool smaller, or set slurm.nodes: 3"]),
        ([*MAIN, REWARD_ON, f"{REWARD}.nnodes=1", f"{REWARD}.n_gpus_per_node=4", "trainer.nnodes=2", "trainer.n_gpus_per_node=6"], [f"{REWARD} asks Ray for 4 GPUs on one node, the job has 2 nodes x 8 = 16, of which 2 on 2 nodes are free for it: make a pool smaller, or request more nodes"]),
        ([*MAIN, f"{TP}=4", f"{ROLLOUT}.disaggregation.enabled=True", f"{ROLLOUT}.disaggregation.decode_replicas=2"], ["prefill and decode replicas of one engine have 12 GPUs, and verl puts them on one node of 8: make them smaller, or use fewer"]),
    ],
)  # fmt: skip
def test_modes_that_would_fail_or_wait(run: list[str], expected: list[str]) -> None:
    assert texts(advise(job(run=run))) == expected


def test_without_a_number_of_cpus() -> None:
    advice = advise(job(slurm={"nodes": 2, "gpus_per_node": 8}))
    assert advice.remarks == [
        "slurm.cpus_per_task is not set, often it is 1 then: verl asks Ray for 29 CPUs on a node (TransferQueue: 1, trainer: 3 with 1 GPU): set it to 29 or more"
    ]


def test_a_head_node_without_cpus() -> None:
    (problem,) = texts(advise(job(ray={"head": {"cpus": 0}})))
    assert (
        problem
        == "ray.head.cpus is 0, and TransferQueue needs more on the head node: raise it, or leave it out"
    )


def test_fewer_cpus_may_do_for_an_older_version() -> None:
    """TransferQueue is new in 0.9; the pool has asked for as much since 0.7."""

    def with_cpus(cpus: int, **preset: str) -> Advice:
        slurm = {"nodes": 2, "gpus_per_node": 8, "cpus_per_task": cpus}
        return advise(job(slurm=slurm, preset={"name": "verl", **preset}))

    (remark,) = with_cpus(28).remarks
    assert remark.startswith("slurm.cpus_per_task: verl asks Ray for 29 CPUs on a node (")
    assert remark.endswith(": set it to 29 or more; older versions need less: preset.version says which")
    assert len(with_cpus(23).problems) == len(with_cpus(28, version="0.9.1").problems) == 1
    assert with_cpus(25, version="0.8.0").problems == with_cpus(9, version="0.6.1").problems == []
    assert len(with_cpus(24, version="0.8.0").problems) == len(with_cpus(8, version="0.6.1").problems) == 1
