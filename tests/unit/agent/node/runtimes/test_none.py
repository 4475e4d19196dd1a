"""Jobs without a container: runtimes none and pyxis."""

import fcntl
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from slurmray.agent.node import runtimes

from ...fake_node import FakeNode

WANTED = (
    "Python 3.8 or later, and ray[default] in it",
    "activate its environment in setup, or set container.python",
)


def test_a_node_without_python3(tmp_path: Path) -> None:
    node = FakeNode(tmp_path, {"runtimes": ["none"], "image": ""})
    node.env["PATH"] = f"{tmp_path}/bin"
    assert runtimes.choose(node).name == "none"
    assert node.findings == [("preflight", "python3", "not found", *WANTED)]


@pytest.mark.attack("a python3 in PATH that cannot run", inputs=1)
@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("\x7fELF of another processor", "cannot execute {python}: Exec format error"),
        ("#!/bin/sh\necho 'pyenv: no 3.12' >&2; exit 127\n", "pyenv: no 3.12"),
    ],
)
def test_a_node_whose_python3_does_not_run(tmp_path: Path, text: str, found: str) -> None:
    node = FakeNode(tmp_path, {"runtimes": ["none"], "image": ""})
    node.env["PATH"] = f"{tmp_path}/bin"
    python = tmp_path / "bin/python3"
    python.write_text(text)
    python.chmod(0o755)
    runtimes.choose(node)
    assert node.findings == [("preflight", str(python), found.format(python=python), *WANTED)]


def test_a_python_that_runs_already_is_not_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    node = FakeNode(tmp_path, {"runtimes": ["none"]}).program("python3", "exit 1")
    monkeypatch.setattr(sys, "executable", f"{tmp_path}/bin/python3")
    runtimes.choose(node)
    assert not node.findings


def test_the_python_of_the_job_spec(tmp_path: Path) -> None:
    path = tmp_path / "venv-python"
    node = FakeNode(tmp_path, {"runtimes": ["none"], "python": str(path)}).program("python3", "exit 0")
    runtimes.choose(node)
    assert node.findings == [("preflight", str(path), "not found", *WANTED)]
    path.symlink_to(sys.executable)
    assert runtimes.choose(node).description == f"none, with {path}"
    assert len(node.findings) == 1


@pytest.mark.parametrize("name", ["none", "pyxis"])
def test_argv_of_the_container_process(tmp_path: Path, name: str) -> None:
    node = FakeNode(tmp_path, {"runtimes": [name]}).make_folder().program("python3", "exit 0")
    runtime = runtimes.choose(node)
    runtime.prepare()
    python, inside = f"{tmp_path}/bin/python3", node.inside
    assert runtime.argv() == [
        *["story", "run_with_none", python, "2", f"SLURMRAY_TEMP={node.folder}", f"TMPDIR={inside}/tmp"],
        *["-I", f"{inside}/agent", "guard", "node1"],
    ]
    assert Path(f"{inside}/tmp").is_dir()
    assert runtime.description == f"{name}, with {python}"


def test_processes_of_an_ended_container_process_are_killed(tmp_path: Path) -> None:
    """Only after its end, and only those of this job, not of a job that was submitted from it."""
    node = FakeNode(tmp_path, {"runtimes": ["none"]}).make_folder()
    program = "import time; print(flush=True); time.sleep(60)"

    def start(**env: str) -> subprocess.Popen[bytes]:
        process = subprocess.Popen([sys.executable, "-c", program], env=env, stdout=subprocess.PIPE)
        assert process.stdout
        process.stdout.readline()
        return process

    own = start(SLURMRAY_TEMP=node.folder, SLURM_JOB_ID="9")
    unnumbered = start(SLURMRAY_TEMP=node.folder)
    inner = start(SLURMRAY_TEMP=node.folder, SLURM_JOB_ID="10")
    other = start(SLURMRAY_TEMP=node.folder + "0", SLURM_JOB_ID="9")
    lock = f"import fcntl, os, time; fcntl.flock(os.open({node.inside!r}, 0), 1)"
    lock += "; print(flush=True); time.sleep(0.6)"
    with subprocess.Popen([sys.executable, "-c", lock], stdout=subprocess.PIPE) as first:
        assert first.stdout
        first.stdout.readline()
        begin = time.monotonic()
        assert runtimes.make("none", node).remove()
        assert time.monotonic() - begin > 0.5
    assert [child.wait(5) for child in (own, unnumbered)] == [-9, -9]
    assert [child.poll() for child in (inner, other)] == [None, None]
    for child in (inner, other):
        child.kill()
        child.wait()
    for child in (own, unnumbered, inner, other):
        assert child.stdout
        child.stdout.close()


def test_a_container_process_that_does_not_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("slurmray.agent.node.job_folder.LOCK_TIMEOUT", 0.2)
    node = FakeNode(tmp_path, {"runtimes": ["none"]}).make_folder()
    handle = os.open(node.inside, os.O_RDONLY)
    fcntl.flock(handle, fcntl.LOCK_SH)
    assert runtimes.make("none", node).remove()
    os.close(handle)


@pytest.mark.attack("GPU masks of an image or a shell", inputs=1)
@pytest.mark.parametrize(
    ("runtime", "gpus", "env", "expected"),
    [
        ("none", 0, {}, {"CUDA_VISIBLE_DEVICES": ""}),
        ("pyxis", 0, {}, {"CUDA_VISIBLE_DEVICES": ""}),
        ("none", 2, {}, {}),
        ("none", 2, {"CUDA_VISIBLE_DEVICES": "0,3"}, {"CUDA_VISIBLE_DEVICES": "0,3"}),
        # Slurm gave GPUs that Ray is not to use, or `setup` chose them.
        ("none", 0, {"CUDA_VISIBLE_DEVICES": "1"}, {"CUDA_VISIBLE_DEVICES": "1"}),
        ("apptainer", 2, {"ROCR_VISIBLE_DEVICES": "1"}, {"ROCR_VISIBLE_DEVICES": "1"}),
        ("podman", 2, {"CUDA_VISIBLE_DEVICES": "0,3"}, {}),  # its devices are those of the job
        ("docker", 0, {}, {}),
    ],
)
def test_gpu_masks(
    tmp_path: Path, runtime: str, gpus: int, env: dict[str, str], expected: dict[str, str]
) -> None:
    node = FakeNode(tmp_path, {"runtimes": [runtime]}, gpus=gpus)
    node.env.update(env)
    assert runtimes.make(runtime, node).gpu_masks == expected
