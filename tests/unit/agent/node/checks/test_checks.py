"""Preflight checks of a node: CPUs, paths, commit."""

import os
import subprocess
from pathlib import Path

import pytest

from slurmray.agent import command_runner
from slurmray.agent.node import checks

from ...fake_node import FakeNode


def findings(node: FakeNode, check: str) -> list[tuple[str, ...]]:
    return [finding for finding in node.findings if finding[1] == check]


def test_a_node_without_findings(tmp_path: Path) -> None:
    node = FakeNode(tmp_path, {"shm_size": "1g"}).program("stat", "echo ext2/ext3")
    checks.check_node(node)
    assert node.findings == []


@pytest.mark.parametrize(("allowed", "online", "expected"), [(4, 4, 0), (4, 8, 1), (8, 8, 0), (9, 16, 0)])
def test_fewer_cpus_than_the_job_has(
    node: FakeNode, monkeypatch: pytest.MonkeyPatch, allowed: int, online: int, expected: int
) -> None:
    """A node may have fewer CPUs than Slurm allocated."""
    node.cpus = 8
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(allowed)))
    monkeypatch.setattr(os, "cpu_count", lambda: online)
    checks.check_node(node)
    assert len(findings(node, "CPUs")) == expected


def test_paths_of_the_job_spec(tmp_path: Path) -> None:
    node = FakeNode(tmp_path, checks={"paths": [".", "/no", "no"], "same_commit": "", "bf16": False})
    checks.check_node(node)
    assert [finding[2] for finding in findings(node, "checks.paths")] == [
        "/no: no such file or directory",
        "no: no such file or directory",
    ]


def test_commit_differs_from_the_head_node_s(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    node = FakeNode(tmp_path, checks={"paths": [], "same_commit": ".", "bf16": False})
    submit = tmp_path / "submit"
    monkeypatch.setenv("SLURM_SUBMIT_DIR", str(submit))
    node.job["commit"] = "f00"
    checks.check_node(node)
    assert findings(node, "checks.same_commit")[0][2:] == (". at no commit", "f00", "git checkout there")
    git = ["git", "-C", str(submit), "-c", "user.name=a", "-c", "user.email=b"]
    subprocess.run([*git, "init", "-q"], check=True)
    subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "x"], check=True)
    node.findings = []
    node.job["commit"] = command_runner.read_commit(str(submit))
    assert len(node.job["commit"]) == 40
    checks.check_node(node)
    assert not findings(node, "checks.same_commit")


def test_without_preflight_only_slurm_s_gpus_are_counted(tmp_path: Path) -> None:
    settings = {"paths": ["/no"], "same_commit": "/no", "bf16": False}
    node = FakeNode(tmp_path, temp_dir="/no", preflight="none", gpus=8, checks=settings)
    node.cpus = 10**6
    node.env["SLURM_GPUS_ON_NODE"] = "4"
    checks.check_node(node)
    assert node.findings == [("config", "GPUs", "4 given to the job", "8", "--gpus-per-node 4")]
    node.findings, node.group["name"] = [], "gpu"
    checks.check_node(node)
    fix = "set gpus_per_node: 4 in the group gpu"
    assert node.findings == [("config", "GPUs", "4 given to the job", "8", fix)]


@pytest.mark.parametrize("name", ["SLURM_SHARDS_ON_NODE", "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"])
def test_a_part_of_a_gpu(tmp_path: Path, name: str) -> None:
    """Asking for a whole GPU would be another job: only Ray has to know about it."""
    node = FakeNode(tmp_path, preflight="none")
    node.env.update({"SLURM_GPUS_ON_NODE": "1", name: "2"})
    checks.check_node(node)
    assert node.findings == [("config", "GPUs", "1 given to the job", "0", "--set ray.gpus_per_node=1")]


def test_gpus_that_slurm_does_not_count(tmp_path: Path) -> None:
    node = FakeNode(tmp_path, gpus=8, slurm_counts_gpus=False)
    checks.check_node(node)
    assert findings(node, "GPUs") == []


@pytest.mark.parametrize(("given", "expected"), [({}, 0), ({"SLURM_GPUS_ON_NODE": "0"}, 0)])
def test_a_job_without_gpus(node: FakeNode, given: dict[str, str], expected: int) -> None:
    node.env.update(given)
    checks.check_node(node)
    assert len(findings(node, "GPUs")) == expected
