# ruff: noqa: E501 - one line for one mistake
"""Search-R1's preset: placement like verl's, variables and retriever."""

import gzip
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from slurmray.loading.load import load_plan
from slurmray.presets import advise
from slurmray.spec.job_spec import JobSpec

MAIN = ["python3", "-m", "verl.trainer.main_ppo"]
FILLED_IN = ["trainer.nnodes=2", "trainer.n_gpus_per_node=8"]
TP = "actor_rollout_ref.rollout.tensor_model_parallel_size"
ENV = {"TORCH_NCCL_AVOID_RECORD_STREAMS": "1", "VLLM_ATTENTION_BACKEND": "XFORMERS"}
LOCAL = "retriever.url is http://127.0.0.1:8000/retrieve: a retrieval server must run on each node, as one of `services`"

# The overrides of its guide for several nodes that are not plain `key=value`.
GUIDE = [
    "data.train_data_num=null",
    "algorithm.no_think_rl=false",
    "trainer.logger=['wandb']",
    "+trainer.val_only=false",
    "+trainer.val_before_train=false",
    "trainer.default_hdfs_dir=null",
    "critic.model.fsdp_config.grad_offload=False",
    "actor_rollout_ref.actor.optim.lr=1e-6",
    "trainer.default_hdfs_dir=null",
    "max_turns=4",
    "retriever.topk=3",
]


def job(*overrides: str, **fields: Any) -> JobSpec:
    """A job of Search-R1 on 2 nodes with 8 GPUs each."""
    spec = {
        "preset": "search-r1",
        "slurm": {"nodes": 2, "gpus_per_node": 8, "cpus_per_task": 64},
        "run": [*MAIN, *overrides],
    }
    return JobSpec.model_validate({**spec, **fields})


def test_the_guide() -> None:
    own = [*GUIDE, 'retriever.url="http://127.0.0.1:8000/retrieve"']
    advice = advise(job(*own, f"{TP}=1", preset={"name": "search-r1", "version": "1"}))
    assert advice.run == [*MAIN, *own, f"{TP}=1", *FILLED_IN]
    assert (advice.env, advice.node_env, advice.resume, advice.problems) == (ENV, {}, [], [])
    assert advice.remarks == [
        LOCAL.replace("http://127.0.0.1:8000/retrieve", '"http://127.0.0.1:8000/retrieve"')
    ]


def test_the_users_own_variables_win() -> None:
    spec = job(env={"VLLM_ATTENTION_BACKEND": "FLASH_ATTN", "TORCH_NCCL_AVOID_RECORD_STREAMS": None})
    assert advise(spec).env == {}


def test_search_r1_cannot_resume() -> None:
    assert advise(job(requeue={"max": 3})).resume == []


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("a=b", [LOCAL]),
        ("retriever.url=http://localhost:9/x", [LOCAL.replace("http://127.0.0.1:8000/retrieve", "http://localhost:9/x")]),
        ("retriever.url=http://[::1]:9/x", [LOCAL.replace("http://127.0.0.1:8000/retrieve", "http://[::1]:9/x")]),
        ("retriever.url=http://search:8000/retrieve", []),
        ("retriever.url=$URL", []),
    ],
)  # fmt: skip
def test_a_retriever_on_the_loopback_must_be_on_every_node(override: str, expected: list[str]) -> None:
    assert advise(job(override)).remarks == expected
    workers = {"name": "retriever", "run": "bash retrieval_launch.sh", "where": "workers"}
    assert advise(job(override, services=[workers])).remarks == expected, "tasks run on the head node, too"
    assert advise(job(override, services=[workers], ray={"head": {"cpus": 0, "gpus": 0}})).remarks == []
    for where, remarks in (("all", []), ("head", expected)):
        service = {"name": "retriever", "run": "bash retrieval_launch.sh", "where": where}
        assert advise(job(override, services=[service])).remarks == remarks
        one = {"nodes": 1, "gpus_per_node": 8, "cpus_per_task": 64}
        assert advise(job(override, services=[service], slurm=one)).remarks == []


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        (["trainer.nnodes=4"], "trainer.nnodes=4: 4 nodes x 8 = 32 GPUs, the job has 2 nodes x 8 = 16: leave trainer.nnodes out, then it is 2, or set slurm.nodes: 4"),
        (["trainer.nnodes=1"], "trainer.nnodes=1: 1 node x 8 = 8 GPUs"),
        (["++trainer.nnodes=3"], "trainer.nnodes=3: 3 nodes x 8 = 24 GPUs"),
        (["trainer.n_gpus_per_node=4"], "trainer.n_gpus_per_node=4: 2 nodes x 4 = 8 GPUs"),
        (["trainer.n_gpus_per_node=16"], "trainer.n_gpus_per_node=16: 2 nodes x 16 = 32 GPUs"),
        (["trainer.n_gpus_per_node=0"], "trainer.n_gpus_per_node=0: 2 nodes x 0 = 0 GPUs"),
        (["+trainer.nnodes=2"], "+trainer.nnodes: the trainer's configuration already has this key"),
        ([f"{TP}=3"], "rollout.tensor_model_parallel_size=3: engines of 3 do not divide 2 nodes x 8 = 16 GPUs"),
        ([f"{TP}=5"], "rollout.tensor_model_parallel_size=5: engines of 5 do not divide 2 nodes x 8 = 16 GPUs"),
        ([f"{TP}=64"], "rollout.tensor_model_parallel_size=64: engines of 64 do not divide 2 nodes x 8 = 16 GPUs"),
    ],
)  # fmt: skip
def test_wrong_placements(overrides: list[str], expected: str) -> None:
    (problem,) = advise(job(*overrides)).problems
    assert problem.text.startswith(expected)
    assert problem.path == ("run", 3)


def test_index_is_built_again_after_an_interruption(tmp_path: Path) -> None:
    """The job was requeued when the parts were complete and half of the corpus was unpacked."""
    spec = load_plan(Path(__file__).parents[3] / "examples" / "search-r1.yaml").spec
    (tmp_path / "wiki-18.jsonl").write_text("ha")
    (tmp_path / "wiki-18.jsonl.gz").write_bytes(gzip.compress(b"half"))
    (tmp_path / "part_aa").write_text("index")
    (tmp_path / "python3").symlink_to("/bin/true")
    script = str(spec.prepare[0].run).replace("/wiki-18", str(tmp_path))
    path = f"{tmp_path}:{os.environ['PATH']}"
    subprocess.run(["bash", "-c", script], env={"PATH": path}, check=True, stdin=subprocess.DEVNULL)
    assert (tmp_path / "wiki-18.jsonl").read_text() == "half"
    assert (tmp_path / "e5_Flat.index").read_text() == "index"
