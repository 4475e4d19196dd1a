"""Each trainer's example, run like a user: init, render, sbatch; with a stand-in for the trainer.

Differences from the example: FLAGS, HERE, and `replaced` for what these hosts lack.
docs/reference/trainer-guides.md lists the steps of the trainers' guides, with the tests that cover them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from slurmray.cli import main
from slurmray.loading.load import load_plan
from slurmray.plan import Advice
from slurmray.presets import advise
from slurmray.rehearsal.cluster.layout import Layout
from slurmray.rehearsal.cluster.slurm_cluster import SlurmCluster
from slurmray.rehearsal.cluster.slurm_conf import ClusterConfig, Gres
from slurmray.spec.container import DEFAULT_IMAGE
from slurmray.spec.job_spec import JobSpec

from .jobs import Job, Jobs

ROOT = Path(__file__).parents[2]
STAND_IN = Path(__file__).with_name("stand_in.py")
NODES = ("node1", "node2")
CPUS = 32  # verl asks Ray for 29 beside 8 GPUs
FLAGS = {
    "--nodes": "2",
    "--cpus-per-task": str(CPUS),
    "--mem": "1G",
    "--time": "10:00",
    "--runtime": "podman",
}
HERE = {"~/": "home/"}  # home folders are not shared by the hosts
KEY = "s3cr3t"

# Stand-ins for programs of `prepare`, which print their arguments. With a single write, as Ray's log lines
# could come between two writes of print().
SHOW_ARGS = 'import sys\nsys.stdout.write(" ".join(["called:", *sys.argv[1:]]) + "\\n")\n'
HUB = 'import sys\n\ndef snapshot_download(name):\n    sys.stdout.write(f"called: {name}\\n")\n'
DOWNLOAD = (
    f"{SHOW_ARGS}import gzip, pathlib\n"
    'pathlib.Path("part_aa").write_text("a")\npathlib.Path("part_ab").write_text("b")\n'
    'gzip.open("wiki-18.jsonl.gz", "wt").write(\'{"id": "0", "contents": "Ray runs tasks."}\\n\')\n'
)
LAUNCH = "exec python3 retriever.py serve /wiki-18/wiki-18.jsonl 8000\n"
CONDA = 'conda() { export CONDA="$*"; }\n'

# Creates the same commit on every node.
GIT = (
    "export GIT_AUTHOR_DATE=2026-01-01T00:00:00Z GIT_COMMITTER_DATE=2026-01-01T00:00:00Z && "
    "git init -q && git -c user.name=a -c user.email=a@b commit -q --allow-empty -m first"
)


@dataclass(frozen=True)
class System:
    """A trainer. program: path in its clone. folder: working directory. gpus: number per node.

    replaced: text of the example -> replacement for these hosts. files: more files of the clone.
    folders: mount sources.
    """

    program: str
    folder: str
    gpus: int = 8
    replaced: dict[str, str] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)
    folders: tuple[str, ...] = ()
    image: str = DEFAULT_IMAGE


LIMITS = '"nofile=8192:8192", "nproc=4096:4096"'
VERL_FILES = {"examples/data_preprocess/gsm8k.py": SHOW_ARGS, "huggingface_hub.py": HUB}
VERL_FOLDERS = ("home/data", "home/.cache/huggingface", "home/checkpoints")

SYSTEMS = {
    "verl": System(
        "verl/trainer/main_ppo.py",
        "/workspace/verl",
        # Without the right to raise limits, Podman accepts only these two with --ulimit.
        replaced={"# setup: module load podman": "setup: echo a module", '"memlock=-1:-1"': LIMITS},
        files=VERL_FILES,
        folders=VERL_FOLDERS,
    ),
    "amd": System(
        "verl/trainer/main_ppo.py",
        "/workspace/verl",
        replaced={"ib0": "eth0"},
        files={**VERL_FILES, "examples/data_preprocess/math_dataset.py": SHOW_ARGS},
        folders=VERL_FOLDERS,
        image="localhost/verl-rocm:1",  # exists on the nodes, so it is not built
    ),
    "rlinf": System(
        "examples/reasoning/main_grpo.py",
        "/workspace/RLinf",
        files={"home/data/boba.jsonl": "{}"},
        folders=("home/models/DeepSeek-R1-Distill-Qwen-1.5B",),
    ),
    "search-r1": System(
        "verl/trainer/main_ppo.py",
        "/workspace/Search-R1",
        # Stand-in for the conda environment `retriever` of the image.
        replaced={
            "  workdir:": "    - conda.sh:/opt/conda/etc/profile.d/conda.sh\n  workdir:",
            '"nofile=65535:65535"': LIMITS,
        },
        files={
            "scripts/download.py": DOWNLOAD,
            "scripts/data_process/nq_search.py": SHOW_ARGS,
            "retrieval_launch.sh": LAUNCH,
            "retriever.py": (ROOT / "examples/retriever.py").read_text(),
            "conda.sh": CONDA,
        },
        folders=("home/wiki-18", "home/.cache/huggingface"),
    ),
    "roll": System(
        "examples/start_agentic_pipeline.py",
        "/workspace/ROLL",
        gpus=2,
        files={"pip.py": SHOW_ARGS, "requirements_torch260_vllm.txt": ""},
        folders=("home/output",),
    ),
    "openrlhf": System(
        "openrlhf/cli/train_ppo_ray.py",
        "/var/lib/train/xDAN-RL-Training-GRPO",
        replaced={"/data/train": "/var/lib/train"},  # on each host's local disk
    ),
}


@pytest.fixture(scope="module")
def cluster(podman_layout: Layout) -> Iterator[SlurmCluster]:
    config = ClusterConfig(nodes=NODES, gres=(Gres("gpu", "", 8),), cpus=CPUS)
    with SlurmCluster(config, podman_layout) as started:
        yield started


@pytest.fixture
def jobs(cluster: SlurmCluster, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Jobs:
    monkeypatch.chdir(folder)
    return Jobs(cluster, folder)


def clone(folder: Path, system: System) -> None:
    """Create the used files of the user's clone of the trainer."""
    for name, text in {**system.files, system.program: STAND_IN.read_text()}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    for name in system.folders:
        (folder / name).mkdir(parents=True, exist_ok=True)


def job_spec(name: str, system: System) -> JobSpec:
    """Write job.yaml like a user, and replace what these hosts lack."""
    flags = {**FLAGS, "--gpus-per-node": str(system.gpus), "--image": system.image}
    assert main(["init", name, *(arg for flag in flags.items() for arg in flag)]) == 0
    job = Path("job.yaml")
    text = job.read_text()
    for old, new in {**HERE, **system.replaced}.items():
        assert old in text or old in HERE, f"{old} is not in the example any more"
        text = text.replace(old, new)
    job.write_text(text)
    return load_plan(job).spec


def run(jobs: Jobs, name: str) -> tuple[Job, JobSpec, dict[str, Any]]:
    system = SYSTEMS[name]
    if name != "openrlhf":  # its clone is not in the submit folder
        clone(jobs.folder, system)
    spec = job_spec(name, system)
    assert main(["render", "job.yaml"]) == 0
    number = jobs.cluster.sbatch(
        "generated.sh", jobs.user, [f"--export=ALL,WANDB_API_KEY={KEY}"], folder=jobs.folder
    )
    job = jobs.wait_end(number)
    assert job.code == "0:0", job.log
    (line,) = [line for line in job.log.splitlines() if line.startswith("seen: ")]
    seen: dict[str, Any] = json.loads(line.removeprefix("seen: "))
    check(spec, advise(spec), system, job, seen)
    return job, spec, seen


def check(spec: JobSpec, advice: Advice, system: System, job: Job, seen: dict[str, Any]) -> None:
    """Check results that are the same for all trainers."""
    assert isinstance(advice.run, list)
    first = 3 if advice.run[1] == "-m" else 2
    assert seen["argv"][1:] == advice.run[first:], "arguments of the example and of the preset"
    assert seen["folder"] == system.folder
    assert set(seen["nodes"]) == set(NODES)
    assert seen["gpus"] == 2 * system.gpus
    assert seen["status"] == 0, "ray status finds the cluster"
    assert "probe: 2/2 nodes" in job.log
    expected_env = {**advice.env, **spec.env}
    for place in (seen, *seen["nodes"].values()):
        for name, value in expected_env.items():
            assert place["environment"].get(name) == (KEY if value is None else value), name
    for rank, node in enumerate(NODES):
        assert seen["nodes"][node]["gpus"] == system.gpus
        assert seen["nodes"][node]["shm"] == int((spec.container.shm_size or "").removesuffix("g")) * 2**30
        assert not spec.container.ulimits or seen["nodes"][node]["files"] == [8192, 8192]
        expected = node_values(seen, str(rank))
        for name, source in advice.node_env.items():
            assert seen["nodes"][node]["environment"][name] == expected[source], name


def node_values(seen: dict[str, Any], rank: str) -> dict[str, str]:
    head, _, port = seen["environment"]["RAY_ADDRESS"].rpartition(":")
    return {"rank": rank, "nodes": "2", "head": head, "ray_port": port, "interface": "eth0"}


def calls(job: Job, node: str = "node1") -> list[str]:
    """Return the arguments of the programs of `prepare`, in order."""
    return re.findall(r"called: ?(.*)", (job.run / f"logs/{node}.log").read_text())


def test_verl(jobs: Jobs) -> None:
    job, _, seen = run(jobs, "verl")
    assert calls(job) == ["--local_save_dir /data/gsm8k", "Qwen/Qwen2.5-7B-Instruct"]
    assert calls(job, "node2") == []
    assert {"trainer.nnodes=2", "trainer.n_gpus_per_node=8"} < set(seen["argv"])
    for node in NODES:
        assert "a module\n" in (job.run / f"logs/{node}.log").read_text() + job.log


@pytest.mark.full
def test_verl_on_amd(jobs: Jobs) -> None:
    for node in NODES:
        jobs.cluster.run(["podman", "tag", DEFAULT_IMAGE, SYSTEMS["amd"].image], host=node)
    job, _, seen = run(jobs, "amd")
    assert calls(job) == [
        "--local_save_dir /data/gsm8k",
        "--local_save_dir /data/math",
        "Qwen/Qwen2-7B-Instruct",
    ]
    assert "podman build" not in job.log
    assert seen["environment"]["NCCL_IB_HCA"].startswith("mlx5_0,")


@pytest.mark.full
def test_rlinf(jobs: Jobs) -> None:
    done = jobs.cluster.run(["bash", "-c", GIT], folder=jobs.folder)
    assert done.returncode == 0, done.stderr
    _, _, seen = run(jobs, "rlinf")
    assert seen["argv"][-1] == "cluster.num_nodes=2"
    assert [seen["nodes"][node]["environment"]["RLINF_NODE_RANK"] for node in NODES] == ["0", "1"]


@pytest.mark.full
def test_search_r1(jobs: Jobs) -> None:
    job, _, seen = run(jobs, "search-r1")
    assert calls(job) == ["--save_path .", "--local_dir data/nq_search"]
    assert (jobs.folder / "home/wiki-18/e5_Flat.index").read_text() == "ab"
    assert [seen["nodes"][node]["found"] for node in NODES] == ["Ray runs tasks."] * 2
    places = [job.log.index(text) for text in ("prepare: 2/2 nodes", "services: 2/2 nodes", "trainer: ")]
    assert places == sorted(places)
    assert seen["environment"]["VLLM_ATTENTION_BACKEND"] == "XFORMERS"


@pytest.mark.full
def test_roll(jobs: Jobs) -> None:
    job, _, seen = run(jobs, "roll")
    for node in NODES:
        (args,) = calls(job, node)
        assert args.startswith("install -r requirements_torch260_vllm.txt -i https://")
    environment = seen["environment"]
    assert f"{environment['MASTER_ADDR']}:{environment['MASTER_PORT']}" == environment["RAY_ADDRESS"], (
        "it joins the existing Ray cluster"
    )
    assert (environment["WORLD_SIZE"], environment["RANK"]) == ("2", "0")


@pytest.mark.full
def test_openrlhf(jobs: Jobs) -> None:
    """Code, data, model and Ray's folder are on each host's local disk."""
    system, top = SYSTEMS["openrlhf"], Path("/var/lib/train")
    clone(jobs.folder / "code", system)
    needed = f"mkdir -p {top}/datasets {top}/models/xDAN-L2-Qwen25-32b-Instruct"
    data = f"touch {top}/datasets/xDAN-Agentic-openMath-r1-chatml.json"
    create = f"{needed} && {data} && cp -r code {system.folder} && cd {system.folder} && {GIT}"
    for node in NODES:
        done = jobs.cluster.run(["bash", "-c", create], host=node, folder=jobs.folder)
        assert done.returncode == 0, done.stderr
    try:
        job, _, seen = run(jobs, "openrlhf")
    finally:
        for node in NODES:
            jobs.cluster.run(["rm", "-rf", str(top)], host=node)
    assert seen["environment"]["RAY_ADDRESS"].endswith(":8100")
    assert "dashboard on port 8101" in job.log
    assert seen["environment"]["RAY_TMPDIR"].startswith(f"{top}/ray")
