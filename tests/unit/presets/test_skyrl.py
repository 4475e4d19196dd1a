# ruff: noqa: E501 - one line for one case
"""SkyRL's preset: nodes and GPUs of policy and reference model, and the inference engines."""

from __future__ import annotations

from typing import Any

import pytest

from slurmray.presets import advise
from slurmray.spec.job_spec import JobSpec

MAIN = ["python3", "-m", "skyrl.train.entrypoints.main_base"]
ENGINES = "generator.inference_engine"
FOUR = [f"{ENGINES}.num_engines=4", f"{ENGINES}.tensor_parallel_size=4"]
FILLED_IN = [
    f"trainer.placement.{model}_{count}"
    for model in ("policy", "ref")
    for count in ("num_nodes=2", "num_gpus_per_node=8")
]


def job(*overrides: str, **fields: Any) -> JobSpec:
    """A job of SkyRL on 2 nodes with 8 GPUs each."""
    slurm = {"nodes": 2, "gpus_per_node": 8, "cpus_per_task": 64}
    return JobSpec.model_validate({"preset": "skyrl", "slurm": slurm, "run": [*MAIN, *overrides], **fields})


def test_nodes_and_gpus_are_filled_in() -> None:
    advice = advise(job(*FOUR))
    assert advice.run == [*MAIN, *FOUR, *FILLED_IN]
    assert (advice.env, advice.problems, advice.remarks) == ({}, [], [])


def test_hydra_ignores_case() -> None:
    overrides = [*FOUR, "trainer.placement.colocate_all=True"]
    assert advise(job(*overrides)).run == [*MAIN, *overrides, *FILLED_IN]


@pytest.mark.parametrize(
    "run",
    [
        *("bash examples/train/gsm8k/run_gsm8k.sh", ["bash", "run.sh"], f"{' '.join(MAIN)} seed=$(date +%s)"),
        ["python3", "-m", "skyrl_train.entrypoints.main_base", "generator.num_inference_engines=16"],
    ],
)
def test_engines_that_cannot_be_seen(run: Any) -> None:
    """Those of a script, of a text that is not parsed, and of older versions with other names."""
    assert advise(job(run=run)).problems == []


@pytest.mark.parametrize("value", ["false", "$COLOCATE"])
def test_nothing_is_filled_in_where_models_have_or_may_have_their_own_gpus(value: str) -> None:
    overrides = [f"trainer.placement.colocate_all={value}", "trainer.placement.policy_num_nodes=1"]
    advice = advise(job(*overrides))
    assert advice.run == [*MAIN, *overrides]
    assert advice.problems == []


@pytest.mark.parametrize(
    "overrides",
    [
        [f"{ENGINES}.num_engines=16"],
        [
            f"{ENGINES}.num_engines=1",
            f"{ENGINES}.tensor_parallel_size=8",
            f"{ENGINES}.pipeline_parallel_size=2",
        ],
        [f"{ENGINES}.num_engines=2", f"{ENGINES}.tensor_parallel_size=4", f"{ENGINES}.data_parallel_size=2"],
        [f"{ENGINES}.num_engines=$N"],
        [*FOUR, "trainer.placement.colocate_all=true", *FILLED_IN],
    ],
)
def test_accepted(overrides: list[str]) -> None:
    assert advise(job(*overrides)).problems == []


@pytest.mark.parametrize(
    ("overrides", "text"),
    [
        (
            [f"{ENGINES}.num_engines=2", f"{ENGINES}.tensor_parallel_size=4"],
            f"{ENGINES}.num_engines=2: 2 engines x 4 = 8 GPUs, the job has 2 nodes x 8 = 16: "
            f"set {ENGINES}.num_engines=4",
        ),
        ([], f"{ENGINES}.num_engines=1: 1 engines x 1 = 1 GPUs"),
        (
            [f"{ENGINES}.tensor_parallel_size=3"],
            f"{ENGINES}.num_engines=1: 1 engines x 3 = 3 GPUs, the job has 2 nodes x 8 = 16: "
            "choose sizes that divide 16",
        ),
        (
            [*FOUR, "trainer.placement.policy_num_nodes=1"],
            "trainer.placement.policy_num_nodes=1: 1 node x 8 = 8 GPUs",
        ),
        ([*FOUR, "trainer.placement.ref_num_gpus_per_node=4"], "trainer.placement.ref_num_gpus_per_node=4: "),
    ],
)
def test_refused(overrides: list[str], text: str) -> None:
    (finding,) = advise(job(*overrides)).problems
    assert finding.text.startswith(text)


def test_sft() -> None:
    run = ["python3", "-m", "skyrl.train.main_sft", "model.path=x"]
    advice = advise(job(run=run))
    assert advice.run == [*run, "placement.num_nodes=2", "placement.num_gpus_per_node=8"]
    (finding,) = advise(job(run=run, slurm={"nodes": 2, "gpus_per_node": 8, "cpus_per_task": 7})).problems
    assert finding.text.endswith(": set it to 8 or more")


APART = [
    "trainer.placement.colocate_all=false",
    *(f"trainer.placement.policy_{name}" for name in ("num_nodes=1", "num_gpus_per_node=8")),
]
PREFILL = [f"{ENGINES}.enable_pd=True", f"{ENGINES}.num_prefill=3"]


@pytest.mark.parametrize(
    ("overrides", "problems", "remarks"),
    [
        ([*APART, f"{ENGINES}.num_engines=8"], [], []),
        ([*APART, *FOUR], ["engines (16) + policy 1 x 8 (8) = 24 GPUs, the job has 2 nodes x 8 = 16: "], []),
        ([*APART, f"{ENGINES}.num_engines=4"], [], ["engines (4) + policy 1 x 8 (8) = 12 GPUs, the job has 2"]),
        # The sum fits. Engines are packed on a node, and each node of a model has to be a whole one.
        (
            [APART[0], f"{ENGINES}.num_engines=4", *(each.replace("=8", "=6").replace("=1", "=2") for each in APART[1:])],
            ["policy asks Ray for 2 x 6 GPUs, the job has 2 nodes x 8 = 16, of which 8 on 1 node, 4 on 1 node are free for it: "],
            [],
        ),
        ([*APART, "trainer.critic.model.path=x", f"{ENGINES}.num_engines=8"], ["engines (8) + policy 1 x 8 (8) + critic 1 x 1 (1) = 17"], []),
        # The sum fits. Ray packs engines for prefill on one node, the others on another, which leaves no whole one.
        (
            [*APART, *PREFILL, f"{ENGINES}.num_engines=8"],
            ["policy asks Ray for 1 x 8 GPUs, the job has 2 nodes x 8 = 16, of which 5 on 1 node, 3 on 1 node are free for it: "],
            [],
        ),
        ([*(each.replace("=8", "=5") for each in APART), *PREFILL, f"{ENGINES}.num_engines=11"], [], []),
        ([*APART, PREFILL[0], f"{ENGINES}.num_engines=8"], [f"enable_pd: some engines prefill, the others decode: set {ENGINES}.num_prefill to 1 or more, below 8"], []),
        ([*APART, f"{ENGINES}.enable_pd=false", f"{ENGINES}.num_engines=8"], [], []),
        ([*APART, "trainer.placement.colocate_policy_ref=false", *FOUR], [], []),
        ([*APART, f"{ENGINES}.run_engines_locally=false", *FOUR], [], []),
    ],
)  # fmt: skip
def test_engines_apart(overrides: list[str], problems: list[str], remarks: list[str]) -> None:
    advice = advise(job(*overrides))
    found = [finding.text for finding in advice.problems]
    assert len(found) == len(problems)
    assert all(map(str.startswith, found, problems)), found
    assert len(advice.remarks) == len(remarks)
    assert all(map(str.startswith, advice.remarks, remarks)), advice.remarks
