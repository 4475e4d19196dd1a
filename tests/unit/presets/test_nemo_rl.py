# ruff: noqa: E501 - one line for one case
"""NeMo-RL's preset: nodes and GPUs of the cluster, and those of generation."""

from __future__ import annotations

from typing import Any

import pytest

from slurmray.presets import advise
from slurmray.spec.job_spec import JobSpec

MAIN = ["uv", "run", "examples/run_grpo.py"]
OF_GENERATION = "policy.generation.colocated.resources"
APART = "policy.generation.colocated.enabled=False"  # Hydra ignores case


def job(*overrides: str, nodes: int = 3, **fields: Any) -> JobSpec:
    """A job of NeMo-RL on nodes with 8 GPUs each."""
    slurm = {"nodes": nodes, "gpus_per_node": 8, "cpus_per_task": 64}
    return JobSpec.model_validate({"preset": "nemo-rl", "slurm": slurm, "run": [*MAIN, *overrides], **fields})


def problems(spec: JobSpec) -> list[str]:
    return [finding.text for finding in advise(spec).problems]


def test_nodes_and_gpus_are_filled_in() -> None:
    advice = advise(job())
    assert advice.run == [*MAIN, "cluster.num_nodes=3", "cluster.gpus_per_node=8"]
    assert (advice.env, advice.node_env, advice.resume, advice.problems) == ({}, {}, [], [])


def test_nodes_of_services_do_not_count() -> None:
    service = {"name": "judge", "run": "x", "where": 1, "gpus": 8}
    run = advise(job(services=[service])).run
    assert isinstance(run, list)
    assert run[-2:] == ["cluster.num_nodes=2", "cluster.gpus_per_node=8"]
    (text,) = problems(job("cluster.num_nodes=3", services=[service]))
    assert "the job has 2 nodes x 8 = 16 without 1 node of services" in text
    assert "set slurm.nodes: 4" in text


@pytest.mark.parametrize(
    "overrides",
    [
        ["cluster.num_nodes=3", "cluster.gpus_per_node=8"],
        ["cluster.num_nodes=$NNODES"],
        [APART, f"{OF_GENERATION}.num_nodes=1", f"{OF_GENERATION}.gpus_per_node=8"],
        [APART, f"{OF_GENERATION}.num_nodes=2"],
        [f"{OF_GENERATION}.num_nodes=9"],  # without effect
        [APART, f"{OF_GENERATION}.num_nodes=null"],
    ],
)
def test_accepted(overrides: list[str]) -> None:
    assert problems(job(*overrides)) == []


@pytest.mark.parametrize(
    ("overrides", "nodes", "text"),
    [
        (["cluster.num_nodes=2"], 3, "cluster.num_nodes=2: 2 nodes x 8 = 16 GPUs, the job has 3 nodes x 8 = 24"),
        (["cluster.gpus_per_node=4"], 3, "cluster.gpus_per_node=4: "),
        (["+cluster.num_nodes=3"], 3, "+cluster.num_nodes: the trainer's configuration already has this key"),
        ([APART, f"{OF_GENERATION}.num_nodes=3"], 3, f"{OF_GENERATION}.num_nodes=3: the job has 3 nodes x 8 = 24, "),
        ([APART, f"{OF_GENERATION}.num_nodes=0"], 3, f"{OF_GENERATION}.num_nodes=0: "),
        ([APART, f"{OF_GENERATION}.gpus_per_node=4"], 3, f"{OF_GENERATION}.gpus_per_node=4: with several nodes"),
        ([APART, f"{OF_GENERATION}.gpus_per_node=8"], 1, f"{OF_GENERATION}.gpus_per_node=8: the job has 1 node x 8"),
        ([APART, f"{OF_GENERATION}.num_nodes=some"], 3, f"{OF_GENERATION}.num_nodes 'some': expected a number"),
    ],
)  # fmt: skip
def test_refused(overrides: list[str], nodes: int, text: str) -> None:
    lines = problems(job(*overrides, nodes=nodes))
    assert len(lines) == 1, lines
    assert lines[0].startswith(text)


@pytest.mark.parametrize(("nodes", "name"), [(3, "num_nodes"), (1, "gpus_per_node")])
def test_generation_apart_without_its_resources(nodes: int, name: str) -> None:
    (remark,) = advise(job(APART, nodes=nodes)).remarks
    assert remark.startswith(
        f"{OF_GENERATION}.{name} is not set in run, and NeMo-RL fails without it, if the file"
    )
