"""slime's preset: GPUs of training and of rollouts."""

from __future__ import annotations

from typing import Any

import pytest

from slurmray.presets import advise
from slurmray.spec.job_spec import JobSpec

MAIN = ["python3", "train.py"]
FILLED_IN = ["--actor-num-nodes", "2", "--actor-num-gpus-per-node", "8"]


def job(*flags: str, gpus: int = 8, **fields: Any) -> JobSpec:
    """A job of slime on 2 nodes."""
    slurm = {"nodes": 2, "gpus_per_node": gpus, "cpus_per_task": 64}
    return JobSpec.model_validate({"preset": "slime", "slurm": slurm, "run": [*MAIN, *flags], **fields})


def test_training_and_rollouts_share_all_gpus() -> None:
    advice = advise(job("--colocate", "--rollout-num-gpus-per-engine", "8"))
    assert advice.run == [*MAIN, "--colocate", "--rollout-num-gpus-per-engine", "8", *FILLED_IN]
    assert (advice.problems, advice.remarks) == ([], [])


def test_flags_in_a_text_that_is_not_parsed() -> None:
    """slime's own scripts have a list of them from a file, which bash expands."""
    text = (
        "source scripts/models/qwen3-4B.sh\n"
        'python3 train.py --actor-num-nodes 2 --actor-num-gpus-per-node 4 --colocate "${MODEL_ARGS[@]}"\n'
    )
    advice = advise(job(gpus=4, run=text))
    assert (advice.run, advice.problems) == (["bash", "-c", text, "slurmray"], [])


def test_nodes_with_another_number_of_gpus() -> None:
    run = advise(job("--colocate", gpus=4)).run
    sizes = ["--actor-num-nodes", "2", "--actor-num-gpus-per-node", "4", "--num-gpus-per-node", "4"]
    assert run == [*MAIN, "--colocate", *sizes]


@pytest.mark.parametrize(
    ("flags", "remarks"),
    [
        (["--actor-num-nodes=1", "--rollout-num-gpus=8"], []),
        (["--rollout-num-gpus", "8", "--rollout-num-gpus-per-engine", "2"], []),  # 8 are slime's default
        (
            ["--rollout-num-gpus", "4"],
            ["actor 1 node x 8 (8) + rollout (4) = 12 GPUs, the job has 2 nodes x 8 = 16: 4 idle"],
        ),
        (["--colocate", "--rollout-num-gpus-per-engine", "16"], []),
        (["--colocate", "--actor-num-nodes", "$N"], []),
        (["--debug-rollout-only", "--actor-num-nodes", "9"], []),
        (["--rollout-external-engine-addrs", "--actor-num-nodes", "9"], []),
    ],
)
def test_accepted(flags: list[str], remarks: list[str]) -> None:
    advice = advise(job(*flags))
    assert (advice.problems, advice.remarks) == ([], remarks)


@pytest.mark.parametrize(
    ("flags", "text"),
    [
        (
            ["--actor-num-nodes=2", "--rollout-num-gpus=8"],
            "actor 2 nodes x 8 (16) + rollout (8) = 24 GPUs, the job has 2 nodes x 8 = 16: "
            "lower --actor-num-nodes or --rollout-num-gpus, or set slurm.nodes: 3",
        ),
        (
            ["--colocate", "--rollout-num-gpus=24"],
            "actor 2 nodes x 8 (16) shared with rollout (24) = 24 GPUs, the job has 2 nodes x 8 = 16: ",
        ),
        (
            ["--colocate", "--actor-num-gpus-per-node=16"],
            "--actor-num-gpus-per-node 16, the job has 2 nodes x 8 = 16: write 8 or less",
        ),
        (
            ["--colocate", "--rollout-num-gpus-per-engine=3"],
            "--rollout-num-gpus-per-engine 3: engines of 3 do not divide 16 GPUs on nodes of 8: choose",
        ),
        (["--colocate", "--actor-num-nodes=two"], "--actor-num-nodes 'two': expected a number of GPUs"),
    ],
)
def test_refused(flags: list[str], text: str) -> None:
    (finding,) = advise(job(*flags)).problems
    assert finding.text.startswith(text)
