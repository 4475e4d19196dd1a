"""Processes on the job's GPUs: memory by nvidia-smi, and whether they are the job's by their cgroups."""

from __future__ import annotations

import json
import os
import pwd
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from slurmray.agent.node import gpu_processes, gpu_samples, samples

from ..fake_node import FakeNode

STEP = "0::/system.slice/slurmstepd.scope/job_7/step_0/user/task_0"
OTHER = "0::/system.slice/slurmstepd.scope/job_77/step_0/user/task_0"
ME = pwd.getpwuid(os.getuid()).pw_name
# In the format of nvidia-smi's --format=csv,noheader,nounits: gpu_uuid, pid, used_memory.
OUTPUT = "GPU-a, 11, 60000\nGPU-b, 12, 52000\nGPU-b, 13, 8000\nGPU-c, 14, 9\nGPU-b, 15, [N/A]\n"
GPUS: Any = [{"memory_total": 143771}, {"memory_total": 143771}]


@pytest.fixture
def node(tmp_path: Path) -> FakeNode:
    node = FakeNode(tmp_path, watch={"interval": 30}, ray={"nodes": 1, "metrics": False})
    node.gpus = ["GPU-a", "GPU-b"]
    answer(node, OUTPUT)
    process(node, "self", "python3", STEP)
    process(node, "11", "ray::train", STEP)
    process(node, "12", "ray::rollout", f"{STEP}/libpod-1")
    process(node, "13", "python3", OTHER)
    return node


def answer(node: FakeNode, output: str) -> None:
    (node.root / "output").write_text(output)
    node.program("nvidia-smi", f"cat {node.root}/output")


def process(node: FakeNode, pid: str, name: str, *cgroups: str) -> None:
    folder = node.root / "proc" / pid
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "comm").write_text(f"{name}\n")
    (folder / "cgroup").write_text("".join(f"{line}\n" for line in cgroups))


def read(node: FakeNode) -> list[gpu_processes.Process]:
    return gpu_processes.read(node, str(node.root))


def other(node: FakeNode) -> str:
    return gpu_processes.describe_other(node, read(node), GPUS, str(node.root))


def test_processes_of_the_job_and_another_one(node: FakeNode) -> None:
    """The largest first; only of the job's GPUs, and with a known amount of memory."""
    assert read(node) == [
        (0, 11, 60000, "ray::train", True),
        (1, 12, 52000, "ray::rollout", True),
        (1, 13, 8000, "python3", False),
    ]
    assert other(node) == f"GPU 1: 8000 MiB held by python3 (pid 13) of {ME}"
    answer(node, OUTPUT.replace("8000", "700"))
    assert other(node) == "", "as little as a driver or a monitor reserves"


def test_cgroup_v1(node: FakeNode) -> None:
    memory = "5:memory:/slurm/uid_0/job_7/step_0/task_0"
    for pid in ("self", "11", "12"):
        process(node, pid, "a", "6:devices:/user.slice", memory, "0::/")
    process(node, "13", "a", "5:memory:/slurm/uid_0/job_77/step_0/task_0", "0::/")
    assert [row[4] for row in read(node)] == [True, True, False]


def test_whose_a_process_is_may_not_be_known(node: FakeNode) -> None:
    """Without cgroups; where containers have left that of the job; and of a process that has ended."""
    process(node, "13", "a", STEP)
    (node.root / "proc/11/cgroup").unlink()
    assert [row[4] for row in read(node)] == [None, True, True]
    for pid in ("12", "13"):
        process(node, pid, "a", "0::/machine.slice/libpod-1.scope")
    assert [row[4] for row in read(node)] == [None, None, None]
    process(node, "self", "a", "0::/user.slice")
    process(node, "11", "a", "0::/user.slice/a")
    assert [row[4] for row in read(node)] == [None, None, None]
    assert other(node) == ""


@pytest.mark.parametrize("name", ["SLURM_SHARDS_ON_NODE", "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"])
def test_jobs_that_share_gpus(node: FakeNode, name: str) -> None:
    node.env[name] = "50"
    assert other(node) == ""


@pytest.mark.attack("names of processes, which users choose", inputs=1)
@pytest.mark.parametrize("name", ["\x1b[2J\nGPU-a", "\udcff" * 5, '","x' * 99])
def test_names_of_processes(node: FakeNode, name: str) -> None:
    (node.root / "proc/13/comm").write_text(name, errors="surrogateescape")
    shown = read(node)[2][3]
    assert shown.isascii()
    assert shown.isprintable()
    assert len(shown) <= 32
    assert '"' not in shown
    assert shown in other(node)


@pytest.mark.parametrize(
    "output",
    [
        "",
        "No devices were found\n",
        "[Insufficient Permissions]\n",
        "GPU-a, ../../1, 5\nGPU-a, -1, 5\nGPU-a, 1, 5, 5\nGPU-a, 99999999999, 5\nGPU-a, 1, 9999999999\n",
        'Field "gpu_uuid" is not a valid field to query.\n',
    ],
)
def test_other_outputs(node: FakeNode, output: str) -> None:
    answer(node, output)
    assert read(node) == []


def test_a_sample_has_them_once_in_ten_minutes(node: FakeNode, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is not the job's goes up with each sample until the next list."""
    monkeypatch.setattr(gpu_processes, "describe_other", lambda *_: "GPU 1: 8000 MiB held by x (pid 13)")
    gpus = 'echo "GPU-a, 90, 1"; echo "GPU-b, 90, 1"'
    node.program("nvidia-smi", f'case "$1" in *compute-apps*) echo "GPU-a, 11, 60000" ;; *) {gpus} ;; esac')
    clock = SimpleNamespace(time=lambda: 5.0, monotonic=lambda: 1000.0)
    monkeypatch.setattr(gpu_samples, "time", clock)
    sampler = samples.Sampler(node, has_own_shm=True)
    uses = []
    for number in range(42):
        clock.monotonic = lambda now=1000.0 + 30 * number: now
        sampler.sample()
        uses.append("other" in (sampler.take_latest() or {}))
    assert uses == [False] * 20 + [True] * 22
    lines = (node.root / "run/logs/node1.samples.jsonl").read_text().splitlines()
    places = [place for place, line in enumerate(lines[1:]) if "processes" in json.loads(line)]
    assert places == [20, 40]
    assert json.loads(lines[21])["processes"][0][:3] == [0, 11, 60000]
