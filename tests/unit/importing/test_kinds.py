"""Files that are no bash scripts, and scripts that another program than bash divides into runs."""

from __future__ import annotations

import pytest

from slurmray.errors import SpecError
from slurmray.importing.launcher import read_launcher
from tests.unit.importing.scripts import TRAINER, import_text, looks

SKYPILOT = """\
# a task
name: train
num_nodes: 2
resources:
  accelerators: H100:8
secrets:
  HF_TOKEN: null
run: |
  python train.py
"""
DSTACK = "type: task\nname: train\nnodes: 2\ncommands:\n  - python train.py\nresources:\n  gpu: H100:8\n"


@pytest.mark.parametrize("name", ["x.yaml", "x.yml", "stdin"])
@pytest.mark.parametrize(
    ("text", "parts"),
    [
        (SKYPILOT, ["is a SkyPilot task", "num_nodes is slurm.nodes", "resources.accelerators", "secrets"]),
        ("---\nresources:\n  cpus: 2\nrun: x\n", ["is a SkyPilot task"]),
        (DSTACK, ["is for dstack", "nodes is slurm.nodes", "resources.gpu", "commands"]),
        ("name: a\nslurm:\n  nodes: 2\n", ["is a job spec already: use slurmray render"]),
        ("services:\n  web:\n    image: x\n", ["is YAML, no bash script; init --from reads only bash"]),
    ],
)
def test_tasks_of_others_in_yaml(name: str, text: str, parts: list[str]) -> None:
    """By name or text; each of these lines is bash, too."""
    with pytest.raises(SpecError) as caught:
        read_launcher(name, text.encode())
    message = str(caught.value)
    assert message.startswith(f"{name}: ")
    assert all(part in message for part in parts)
    assert "\n" not in message


@pytest.mark.parametrize("name", ["train.py", "train"])
def test_a_python_program(name: str) -> None:
    text = b"#!/usr/bin/env python3\nimport ray\n"
    with pytest.raises(SpecError) as caught:
        read_launcher(name, text)
    assert str(caught.value) == f"{name}: is a Python program: slurmray render --nodes 2 -- python3 {name}"


@pytest.mark.parametrize("text", ["echo a: b", "a=1 b: ", f"{TRAINER} a: b", ": x", "# a: b\n: x"])
def test_bash_with_colons(text: str) -> None:
    import_text(text)


@pytest.mark.parametrize(
    ("command", "is_multirun"),
    [
        ("python train.py --multirun lr=1,2", True),
        ("python train.py -m lr=1,2 model=a", True),
        ("python train.py 'lr=range(1,5)' -m", True),
        ("python -m pkg.train -m +lr=1,2", True),
        ("srun uv run python train.py --multirun hydra/launcher=x", True),
        ("python -m pkg.train lr=1,2", False),
        ("python -m torch.distributed.run train.py", False),
        ("python train.py --model a", False),
    ],
)
def test_a_multirun_of_hydra(command: str, is_multirun: bool) -> None:
    """It has one run after another in one job."""
    assert looks(f"#SBATCH -N 2\n{command}\n") == [2] * is_multirun
    assert ("a job for each is sweep" in import_text(command).text) == is_multirun
