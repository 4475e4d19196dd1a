"""Launchers, each with the job spec that it must become, written by hand, and the lines to look at."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from slurmray.importing.launcher import Imported, read_launcher
from slurmray.loading.load import load_plan
from tests.unit.importing.scripts import execute, verdicts

FOLDER = Path(__file__).parent / "launchers"
# Lines that nobody but the user can judge.
LOOKS = {
    "openrlhf-pyxis.slurm": [65],  # a secret in the trainer's command
    "podman-hpc.sh": [5],  # -G counts GPUs of the whole job
    "search-r1.sh": [16],  # a limit that Apptainer cannot set
    "verl-amd.slurm": [5],  # two tasks on each node
    "verl-apptainer.slurm": [],
    "verl-conda.slurm": [],
    "xdan-rl.sh": [],
}


def import_file(path: Path) -> Imported:
    return read_launcher(path.name, path.read_bytes())


def load(path: Path) -> dict[str, Any]:
    """Return the fields of a job spec, with what its trainer starts in place of `run`."""
    spec = load_plan(path).spec
    job = {**spec.env, "NNODES": spec.slurm.nodes, "GPUS_PER_NODE": spec.gpus}
    assert spec.run
    return {**spec.model_dump(), "run": execute(spec.run, Path.cwd(), env=job)}


@pytest.mark.parametrize("name", LOOKS)
def test_a_launcher_becomes_its_job_spec(name: str, current_folder: Path) -> None:
    (current_folder / "docker").mkdir()  # verl-amd.slurm builds an image
    (current_folder / "docker/Dockerfile.rocm").touch()
    script = FOLDER / name
    made = current_folder / "job.yaml"
    made.write_text(import_file(script).text)
    assert load(made) == load(script.with_suffix(".yaml"))


def test_every_launcher_is_compared() -> None:
    assert sorted(LOOKS) == sorted(path.name for path in FOLDER.iterdir() if path.suffix != ".yaml")


@pytest.mark.parametrize("name", LOOKS)
def test_every_line_has_one_verdict(name: str) -> None:
    imported = import_file(FOLDER / name)
    lines = (FOLDER / name).read_text().split("\n")
    found = verdicts(imported.text)
    assert [line for line, verdict in found.items() if verdict.startswith("please look")] == LOOKS[name]
    assert all(
        verdict.startswith(("became ", "not needed because: ", "please look: ")) for verdict in found.values()
    )
    for number, line in enumerate(lines, start=1):
        is_code = bool(line.strip()) and (not line.lstrip().startswith("#") or line.startswith("#SBATCH"))
        assert number in found or not is_code, f"no comment about line {number}: {line}"
    counts = [imported.became, imported.skipped, imported.looks]
    kinds = ["became", "not needed", "please look"]
    assert counts == [sum(verdict.startswith(kind) for verdict in found.values()) for kind in kinds]
