"""RayExecutor on this machine, without a Slurm."""

from __future__ import annotations

import re
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from slurmray.native import RayExecutor

from ..programs import install
from .functions import add

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs/guides/native.md").read_text()


@pytest.mark.parametrize("cluster", ["local", "debug"])
def test_the_same_program_without_slurm(cluster: Any) -> None:
    executor = RayExecutor("runs", cluster=cluster)
    executor.update_parameters(nodes=4, timeout_min=1, container={"image": "my/image"}, slurm_partition="gpu")
    assert executor.submit(add, 1, second=2).result() == 3
    assert [job.result() for job in executor.map_array(add, [1, 2], [3, 4])] == [4, 6]
    with executor.batch():
        job = executor.submit(add, 5, 6)
    assert job.result() == 11
    assert "ZeroDivisionError" in repr(executor.submit(divmod, 1, 0).exception())


@pytest.mark.full
def test_the_example_on_this_machine() -> None:
    argv = [sys.executable, str(ROOT / "examples/native.py"), "--cluster", "local"]
    output = subprocess.run(argv, capture_output=True, text=True, check=True, timeout=300).stdout
    assert re.fullmatch(r"job [0-9]+, logs in \S+/runs\n[0-9.]+ +[0-9]+ GPUs\n", output), output


def test_the_programs_of_the_guide(folder: Path) -> None:
    blocks = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    text = "".join(blocks).replace('(folder="runs")', '(folder="runs", cluster="local")')
    (folder / "app.py").write_text(text)
    (folder / "config.yaml").write_text("lr: 0.5\njob: {nodes: 2, timeout_min: 5}\n")
    argv = [sys.executable, "app.py", "--multirun", "lr=0.25,0.125"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=500)
    assert done.returncode == 0, done.stderr
    assert re.findall(r"^(?:[0-9]+ )?(\(.*\)|3)$", done.stdout, re.MULTILINE) == [
        "(1e-06, 0)",
        "3",
        "(0.25, 0)",
        "(0.125, 0)",
    ]


def test_default_cluster_is_slurm_if_there_is_sbatch(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(folder))
    assert RayExecutor("runs").cluster == "local"
    install(folder, sbatch="")
    assert RayExecutor("runs").cluster == "slurm"


def test_none_removes_a_parameter() -> None:
    executor = RayExecutor("runs", cluster="slurm")
    executor.update_parameters(name="a", nodes=2, container={"image": "x"})
    executor.update_parameters(nodes=3, container=None)
    assert executor.parameters == {"name": "a", "nodes": 3}


def test_without_submitit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "slurmray.native.executor", raising=False)
    monkeypatch.setitem(sys.modules, "submitit", None)
    with pytest.raises(ModuleNotFoundError, match=r"slurmray\.native needs submitit: pip install "):
        runpy.run_path(str(ROOT / "examples/native.py"))
