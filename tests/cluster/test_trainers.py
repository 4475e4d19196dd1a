"""A real trainer, verl's sft_trainer_ray, on a real Slurm without GPUs: examples/verl-cpu.

Prints for each job its seconds, its steps with their loss, and the step that it went on from.
"""

from __future__ import annotations

import dataclasses
import json
import os
import re
import shutil
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from slurmray.presets import advise
from slurmray.presets.command_line import parse_command
from slurmray.presets.context import PresetContext
from slurmray.presets.packer import Bundle, Group, place
from slurmray.presets.verl import advise as advise_verl
from slurmray.rehearsal import machine
from slurmray.rehearsal.cluster.layout import Layout
from slurmray.rehearsal.cluster.slurm_cluster import SlurmCluster
from slurmray.rehearsal.cluster.slurm_conf import ClusterConfig, Gres
from slurmray.rehearsal.images import suites
from slurmray.spec.job_spec import JobSpec
from tests.judges import environments

from .faults.case import GUARD
from .jobs import Job, Jobs

pytestmark = pytest.mark.trainers
ROOT = Path(__file__).parents[2]
EXAMPLE, PACKAGES = ROOT / "examples/verl-cpu", ROOT / "build/verl-cpu"
TIMEOUT = 900  # seconds; importing verl takes long on two nodes of a busy machine
MANY = 60  # steps; a fault comes after the fourth
CHECKPOINTS = "verl-cpu/checkpoints"
_MODEL, _ACTOR, _ROLLOUT = (f"actor_rollout_ref.{name}" for name in ("model", "actor", "rollout"))
PPO = [
    *("python3", "-m", "verl.trainer.main_ppo"),
    *("data.train_files=verl-cpu/prompts.parquet", "data.val_files=verl-cpu/prompts.parquet"),
    *("data.train_batch_size=8", "data.max_prompt_length=64", "data.max_response_length=8"),
    "data.dataloader_num_workers=0",
    "algorithm.adv_estimator=grpo",
    *(f"{_MODEL}.path=verl-cpu/model", f"+{_MODEL}.override_config.attn_implementation=sdpa"),
    f"{_MODEL}.use_remove_padding=False",
    *(f"{_ACTOR}.strategy=fsdp2", f"{_ACTOR}.optim.lr=1e-2", f"{_ACTOR}.use_torch_compile=False"),
    *(f"{_ACTOR}.ppo_mini_batch_size=8", f"{_ACTOR}.ppo_micro_batch_size_per_gpu=8"),
    *(f"{_ROLLOUT}.name=cpu", f"{_ROLLOUT}.n=4", f"{_ROLLOUT}.tensor_model_parallel_size=1"),
    *(f"{_ROLLOUT}.log_prob_micro_batch_size_per_gpu=8", f"{_ROLLOUT}.agent.num_workers=1"),
    *("reward.num_workers=1", "reward.custom_reward_function.path=examples/verl-cpu/verl_rollout.py"),
    "transfer_queue.backend.SimpleStorage.num_data_storage_units=4",
    *("trainer.device=cpu", "trainer.logger=[console]", "trainer.val_before_train=False"),
    *("trainer.total_training_steps=3", "trainer.save_freq=3", "trainer.default_local_dir=verl-cpu/ppo"),
    *("hydra.run.dir=verl-cpu", "hydra.output_subdir=null"),
]
_STEP = re.compile(r"step:(\d+) - .*train/loss:([\d.]+)")
_FOUND = re.compile(r"Found latest checkpoint: \S+ \(step (\d+)\)")
_SECONDS = re.compile(r"^\[slurmray +([\d.]+) s\]", re.MULTILINE)


class Memory:
    """Peak of the memory of this process and all below it, in bytes: what they share counts once."""

    def __init__(self) -> None:
        self.peak = 0
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)

    def __enter__(self) -> Memory:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()

    def _sample(self) -> None:
        while not self._is_over.wait(2):
            self.peak = max(self.peak, sum(map(_memory, _family(os.getpid()))))


def _family(pid: int) -> Iterator[int]:
    yield pid
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            pids = children.read_text().split()
        except OSError:  # it has ended
            continue
        for child in pids:
            yield from _family(int(child))


def _memory(pid: int) -> int:
    """Proportional set size of a process, in bytes; 0 if it has ended."""
    try:
        rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
    except OSError:
        return 0
    match = re.search(r"^Pss: +(\d+) kB", rollup, re.MULTILINE)
    return int(match[1]) * 1024 if match else 0


@pytest.fixture(scope="module", autouse=True)
def figures() -> Iterator[None]:
    """Prints size, minutes and peak memory of all tests of this module."""
    assert PACKAGES.is_dir(), "fetch verl first: make trainers"
    size = sum(path.lstat().st_size for path in PACKAGES.rglob("*"))
    start = time.monotonic()
    with Memory() as memory:
        yield
    minutes = (time.monotonic() - start) / 60
    print(f"\npackages: {size / 1e9:.1f} GB; {minutes:.1f} minutes; peak memory: {memory.peak / 1e9:.1f} GB")


class Verl:
    """Jobs of the example, on three hosts with a declared GPU and ten CPUs each."""

    def __init__(self, cluster: SlurmCluster, folder: Path):
        shutil.copytree(EXAMPLE, folder / "examples/verl-cpu")
        self.jobs = Jobs(cluster, folder)
        self.folder = folder
        self.runtime = cluster.layout.runtime

    def submit(self, steps: int, *arguments: str, time_limit: int = 15, **spec: Any) -> int:
        """Submit the example.

        steps: the last one. arguments: more ones of the trainer. time_limit: minutes. spec: more fields.
        """
        example = yaml.safe_load((EXAMPLE / "job.yaml").read_text())
        assert example.pop("container")["setup"].endswith("$PWD/examples/verl-cpu:$PWD/build/verl-cpu")
        example |= self.environment("$PWD/examples/verl-cpu", PACKAGES)
        changed = ("trainer.total_training_steps", "trainer.default_local_dir")
        example["run"] = [
            *(each for each in example["run"] if not each.startswith(changed)),
            f"trainer.total_training_steps={steps}",
            "trainer.total_epochs=100000",
            "trainer.max_ckpt_to_keep=2",
            f"trainer.default_local_dir={CHECKPOINTS}",
            *arguments,
        ]
        example["slurm"]["time"] = time_limit
        return self.jobs.submit(yaml.safe_dump(example | spec))

    def environment(self, *path: Path | str) -> dict[str, Any]:
        """Fields of a job spec for a PYTHONPATH."""
        setup = f"export PYTHONPATH={':'.join(map(str, path))}"
        if self.runtime == "none":
            return {"container": {"runtime": "none"}, "setup": setup}
        mounts = [f"{folder}:{folder}:ro" for folder in path if isinstance(folder, Path)]
        return {"container": {"setup": setup, "mounts": mounts}}

    def kill(self, *process: str) -> None:
        """End processes of node2 with SIGKILL. process: arguments of pgrep."""
        pids = self.jobs.cluster.run(["pgrep", *process], host="node2").stdout.split()
        assert pids, f"no process {process}"
        self.jobs.cluster.run(["kill", "-KILL", *pids], host="node2")

    def kill_container(self, job: int) -> None:
        """End the job's container on node2, or all that is in its place."""
        if self.runtime == "none":
            self.kill("--newest", "-f", GUARD)
        else:
            self.jobs.cluster.run([self.runtime, "kill", f"slurmray-{job}-0-node2"], host="node2")

    def wait_end(self, job: int) -> tuple[Job, list[range]]:
        """Wait for a job's end, and print its figures. Returns the steps of each start of the trainer."""
        ended = self.jobs.wait_end(job, TIMEOUT)
        losses = [loss for _, loss in _STEP.findall(ended.log)]
        starts = [[int(step) for step, _ in _STEP.findall(part)] for part in _FOUND.split(ended.log)[::2]]
        ranges = [range(steps[0], steps[-1] + 1) for steps in starts if steps]
        assert [list(each) for each in ranges] == [steps for steps in starts if steps]
        figures = [
            f"{self.runtime}: {ended.state} {ended.code}",
            "steps " + (", ".join(f"{each[0]}-{each[-1]}" for each in ranges) or "none"),
            *([f"loss {losses[0]} to {losses[-1]}"] if losses else []),
            *(f"went on from {step}" for step in _FOUND.findall(ended.log)),
            f"{_SECONDS.findall(ended.log)[-1]} s",
        ]
        print("", "; ".join(figures), sep="\n")
        return ended, ranges

    def checkpoint(self) -> int:
        """The step of the newest checkpoint, which has the shards of both ranks."""
        step = int((self.folder / CHECKPOINTS / "latest_checkpointed_iteration.txt").read_text())
        for name in ("model", "optim", "extra_state"):
            for rank in (0, 1):
                shard = f"global_step_{step}/{name}_world_size_2_rank_{rank}.pt"
                assert (self.folder / CHECKPOINTS / shard).stat().st_size > 0
        return step


@pytest.fixture(scope="module", params=["podman", "none"])
def cluster(request: pytest.FixtureRequest) -> Iterator[SlurmCluster]:
    """Three hosts. A job may start again after 15 seconds."""
    if request.param == "podman":
        layout = dataclasses.replace(
            request.getfixturevalue("podman_layout"), copy_on_write=[PACKAGES, rlinf_packages()]
        )
    else:
        layout = bare_layout(request.getfixturevalue("share"))
    nodes, options = ("node1", "node2", "node3"), {"AuthInfo": "cred_expire=15"}
    config = ClusterConfig(nodes=nodes, cpus=10, gres=(Gres("gpu", "", 1),), options=options)
    with SlurmCluster(config, layout) as cluster:
        yield cluster


def bare_layout(share: Path) -> Layout:
    """Hosts with Python 3.11, which the packages are for."""
    machine.require("none", own_slurm=True, builds=True)
    suite = None if Path("/usr/bin/python3").resolve().name == "python3.11" else "bookworm"
    root = suites.hosts_root(machine.cache_folder(), suite, print)
    return Layout(share, "none", root=root, copy_on_write=[PACKAGES, rlinf_packages()])


@pytest.fixture
def verl(cluster: SlurmCluster, folder: Path) -> Verl:
    return Verl(cluster, folder)


def test_it_trains(verl: Verl) -> None:
    """With the preset's numbers: the example has neither trainer.nnodes nor trainer.n_gpus_per_node."""
    job, starts = verl.wait_end(verl.submit(6))
    assert (job.state, job.code) == ("COMPLETED", "0:0"), job.log
    assert starts == [range(1, 7)]
    assert "'nnodes': 2, 'n_gpus_per_node': 1" in job.log
    assert verl.checkpoint() == 6
    losses = [float(loss) for _, loss in _STEP.findall(job.log)]
    assert losses == sorted(losses, reverse=True)


def test_an_error_of_the_trainer(verl: Verl) -> None:
    job, starts = verl.wait_end(verl.submit(6, "engine.strategy=nothing"))
    assert (job.state, job.code) == ("FAILED", "1:0"), job.log
    assert not starts


def test_it_goes_on_after_a_requeue(verl: Verl) -> None:
    number = verl.submit(MANY, requeue={"max": 1})
    verl.jobs.wait_for(number, "step:4 - ", TIMEOUT)
    verl.kill("--full", "raylet/raylet")
    job, starts = verl.wait_end(number)
    assert (job.state, job.code) == ("COMPLETED", "0:0"), job.log
    goes_on(job, starts)
    assert (verl.folder / f"slurmray-runs/{number}-1").is_dir()


def test_it_goes_on_with_a_spare_node(verl: Verl) -> None:
    number = verl.submit(MANY, spares=1, on_node_loss="restart", requeue={})
    verl.jobs.wait_for(number, "step:4 - ", TIMEOUT)
    verl.kill_container(number)
    job, starts = verl.wait_end(number)
    assert (job.state, job.code) == ("COMPLETED", "0:0"), job.log
    assert "node3 takes the place of node2" in job.log
    goes_on(job, starts)


def test_another_job_goes_on_after_the_time_limit(verl: Verl) -> None:
    number = verl.submit(100_000, time_limit=10, stop={"lead": 60}, requeue={})
    verl.jobs.wait_for(number, "step:4 - ", TIMEOUT)
    end = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(time.time() + 75))
    verl.jobs.cluster.run(["scontrol", "update", f"JobId={number}", f"EndTime={end}"])
    job, _ = verl.wait_end(number)
    assert (job.state, job.code) == ("FAILED", "72:0"), job.log
    reached = verl.checkpoint()
    job, starts = verl.wait_end(verl.submit(reached + 4))
    assert (job.state, job.code) == ("COMPLETED", "0:0"), job.log
    assert starts == [range(reached + 1, reached + 5)]


def test_rlinf(verl: Verl) -> None:
    """Its Cluster, two groups of workers, and what they send each other from node to node."""
    shutil.copy(Path(__file__).with_name("rlinf_workers.py"), verl.folder)
    spec = {
        "preset": {"name": "rlinf", "version": "0.3.0"},  # which fills in cluster.num_nodes
        "slurm": {"nodes": 2, "gpus_per_node": 1, "cpus_per_task": 4, "mem": "4G"},
        "run": ["python3", "rlinf_workers.py"],
        **verl.environment(PACKAGES, rlinf_packages()),
    }
    job = verl.jobs.wait_end(verl.jobs.submit(yaml.safe_dump(spec)), TIMEOUT)
    assert job.code == "0:0", job.log
    for name in ("sender", "receiver"):
        assert f"\n{name} ('node1', 3.0) ('node2', 3.0)\n" in job.log
    print(f"\n{verl.runtime}: RLinf 0.3.0, {job.last_line}; {_SECONDS.findall(job.log)[-1]} s")


def test_main_ppo(verl: Verl) -> None:
    """Rollout, reward, update and new weights for the rollout, with the fewest CPUs that the preset accepts.

    Ray has the demands of the preset, where its packer places them.
    """
    shutil.copy(Path(__file__).with_name("verl_rollout.py"), verl.folder / "examples/verl-cpu")
    spec = yaml.safe_load((EXAMPLE / "job.yaml").read_text())
    spec |= verl.environment("$PWD/examples/verl-cpu", PACKAGES)
    spec["env"]["VERL_USE_EXTERNAL_MODULES"] = "cpu_platform,verl_rollout"
    prompts = "python3 examples/verl-cpu/verl_rollout.py verl-cpu/prompts.parquet"
    spec["prepare"][0]["run"] = f"python3 examples/verl-cpu/make_files.py verl-cpu && {prompts}"
    spec["run"] = PPO
    spec["slurm"]["cpus_per_task"] = 1
    (problem,) = advise(JobSpec.model_validate(spec)).problems
    spec["slurm"]["cpus_per_task"] = cpus = int(re.findall(r"set it to (\d+) or more", problem.text)[0])
    job = verl.jobs.wait_end(verl.jobs.submit(yaml.safe_dump(spec)), TIMEOUT)
    scores = re.findall(r"step:(\d+) - .*critic/score/mean:([\d.]+)", job.log)
    seconds = _SECONDS.findall(job.log)[-1]
    print(f"\n{verl.runtime}: main_ppo with {cpus} CPUs a node; {job.last_line}; {scores}; {seconds} s")
    assert job.code == "0:0", job.log
    assert [int(step) for step, _ in scores] == [1, 2, 3]
    correlations = re.findall(r"rollout_actor_probs_pearson_corr:([\d.]+)", job.log)
    assert min(map(float, correlations)) > 0.9, "the rollout has the weights of the actor"
    placed = json.loads(re.findall(r"placed (\{.*\})", job.log)[0])
    bundle = {"CPU": 3, "GPU": 1}
    assert sorted(placed["groups"]) == [["STRICT_PACK", [bundle], [node]] for node in ("node1", "node2")]
    free = place(demands(spec), [Bundle(cpus, 1)] * 2).free
    assert Counter(map(tuple, placed["free"].values())) == Counter(node[:2] for node in free.elements())
    for rank in (0, 1):
        assert (verl.folder / f"verl-cpu/ppo/global_step_3/actor/model_world_size_2_rank_{rank}.pt").exists()


def demands(fields: dict[str, Any]) -> list[Group]:
    """What the preset says that the trainer asks of Ray."""
    spec = JobSpec.model_validate(fields)
    assert spec.preset
    context = PresetContext(spec, spec.preset, parse_command(spec.run), None)
    advise_verl(context)
    return [demand.group for demand in context.demands]


def rlinf_packages() -> Path:
    """RLinf alone; what it imports here, verl's packages have, too."""
    return environments.packages("rlinf")


def goes_on(job: Job, starts: list[range]) -> None:
    """Check that the second start goes on from the newest checkpoint of the first, up to the last step."""
    first, second = starts
    assert first.start == 1
    assert [second.start - 1] == list(map(int, _FOUND.findall(job.log)))
    assert 4 <= second.start - 1 <= first[-1]
    assert second.stop == MANY + 1
