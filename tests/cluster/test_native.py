"""Functions as drivers on a real Slurm: submitted here, while Slurm's commands run on the login host."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from slurmray.rehearsal.lab import Lab
from tests.cluster.jobs import HANG, commands, wait_until

ROOT = Path(__file__).parents[2]
# What every program below begins with.
HEAD = """
import json, os, signal, socket, sys, time
from slurmray.native import RayExecutor


def executor(**parameters):
    made = RayExecutor("runs", cluster="slurm")
    made.update_parameters(cpus_per_task=2, mem_gb=1, timeout_min=10, stop={"grace": 5})
    made.update_parameters(**{**json.loads(sys.argv[1]), **parameters})
    return made


def tell(value):
    print("told", json.dumps(value), flush=True)


def nodes():
    import ray
    ray.init()
    return len([node for node in ray.nodes() if node["Alive"]])

"""
PODMAN = {"container": {"runtime": "podman", "accelerator": "none"}}


class Program:
    """A user's Python programs, and their jobs."""

    def __init__(self, lab: Lab, folder: Path, path: str, parameters: dict[str, Any]):
        self.lab = lab
        self.folder = folder
        self.env = {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT)}
        self.parameters = parameters
        self.started: list[subprocess.Popen[str]] = []

    def start(self, text: str) -> subprocess.Popen[str]:
        (self.folder / "program.py").write_text(HEAD + text)
        words = [sys.executable, "program.py", json.dumps(self.parameters)]
        process = subprocess.Popen(
            words, cwd=self.folder, env=self.env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        self.started.append(process)
        return process

    def run(self, text: str) -> list[Any]:
        """What it has told, once nothing is left of its jobs."""
        return self.end(self.start(text))

    def end(self, process: subprocess.Popen[str]) -> list[Any]:
        said, _ = process.communicate(timeout=HANG)
        assert process.returncode == 0, said + self.logs()
        self.is_clean()
        return [json.loads(line[5:]) for line in said.splitlines() if line.startswith("told ")]

    def is_clean(self) -> None:
        wait_until(lambda: not self.lab.left_over(), lambda: "\n".join(self.lab.left_over()), 30)

    def logs(self) -> str:
        return "\n".join(path.read_text() for path in sorted(self.folder.glob("runs/*_log.*")))


@pytest.fixture
def program(podman_lab: Lab, folder: Path, tmp_path: Path) -> Iterator[Program]:
    made = Program(podman_lab, folder, commands(podman_lab, tmp_path / "commands"), PODMAN)
    yield made
    for process in made.started:
        if process.poll() is None:
            process.kill()
            process.wait()


@pytest.mark.parametrize("count", [2, 3])
def test_result_and_exception(program: Program, count: int) -> None:
    told = program.run(f"""
def fail(text):
    import ray
    ray.init()
    @ray.remote
    def deep():
        raise ValueError(text)
    ray.get(deep.remote())

made = executor(nodes={count})
first, second = made.submit(nodes), made.submit(fail, "it's wrong")
tell([first.result(), first.num_tasks, first.stdout() is not None])
tell(str(second.exception()))
""")
    assert told[0] == [count, 1, True]
    assert "in deep" in told[1]
    assert "ValueError: it's wrong" in told[1]
