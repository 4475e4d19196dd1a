"""The JSON Schema allows and refuses what slurmray does, as far as a schema can say it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from slurmray.cli.schema import schema_text
from slurmray.errors import SpecError
from slurmray.loading.load import load_plan

from ..examples import EXAMPLES

VALIDATOR = jsonschema.Draft202012Validator(json.loads(schema_text()))

VALID = """
slurm: ~
slurm: {nodes: "2"}
slurm: {nodes: 2, mem: 200}
slurm: {time: 12:00:00}
slurm: {time: unlimited}
slurm: {time: 90, array: 0-3%2}
env: {A: null, b_1: 2}
services: [{name: x, run: a, where: 1}, {name: y, run: [a, 1], where: head}]
container: {workdir: $HOME, shm_size: 64g, user: 1000:1000, ulimits: [memlock=-1:-1]}
preflight: ~
run: ~
ray: {port: auto, dashboard_port: "8265", head: {memory: 32G}}
"""
INVALID = """
x: 1
slurm: {nodes: two}
slurm: {nodes: 0}
slurm: {time: 24h}
slurm: {mem: 200 G}
slurm: {array: "0-"}
env: {A-B: 1}
services: [{name: X, run: a}]
services: [{name: x}]
services: [{name: x, run: a, where: some}]
container: {workdir: x}
container: {shm_size: 64 GB}
container: {user: me}
container: {ulimits: [memlock]}
preflight: "no"
ray: {head: {memory: 32GB}}
ray: {port: 80}
preset: word
"""


def is_loadable(text: str, folder: Path) -> bool:
    """Whether slurmray takes a job spec, on two nodes."""
    (folder / "job.yaml").write_text(text)
    try:
        load_plan(folder / "job.yaml", [] if "slurm:" in text else [("--nodes", "2")])
    except SpecError:
        return False
    return True


@pytest.mark.parametrize(
    ("text", "is_valid"),
    [(line, lines is VALID) for lines in (VALID, INVALID) for line in lines.strip().splitlines()],
)
def test_schema_and_slurmray_agree(text: str, is_valid: bool, tmp_path: Path) -> None:
    assert VALIDATOR.is_valid(as_editor(text)) == is_valid, list(VALIDATOR.iter_errors(as_editor(text)))
    assert is_loadable(text + "\n", tmp_path) == is_valid


def as_editor(text: str) -> Any:
    """YAML 1.2 as editors read it: `12:00:00` is a text, not a number in base 60."""
    return yaml.safe_load(text.replace("12:00:00", "'12:00:00'"))


@pytest.mark.parametrize("path", EXAMPLES.values(), ids=EXAMPLES)
def test_examples(path: Path) -> None:
    assert list(VALIDATOR.iter_errors(yaml.safe_load(path.read_text()))) == []
