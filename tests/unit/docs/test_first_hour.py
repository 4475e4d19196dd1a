"""The script with which docs/first-hour.md begins, and the picture of what becomes of it."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from slurmray.cli import main
from slurmray.loading.load import load_plan
from tests.unit.examples import ROOT
from tests.unit.importing.scripts import execute

PAGE = (ROOT / "docs/first-hour.md").read_text()
PICTURE = ROOT / "docs/init-from.svg"


@pytest.fixture
def job(current_folder: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    """The job spec, with what `init` prints in the file `printed`."""
    for language, name in (("bash", "train.slurm"), ("python", "train.py")):
        block = re.search(rf"```{language}\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
        assert block
        assert f"# {name}\n" in block[1]
        (current_folder / name).write_text(block[1])
    assert main(["init", "--from", "train.slurm", "-o", "job.yaml"]) == 0
    (current_folder / "printed").write_text(capsys.readouterr().err)
    return current_folder / "job.yaml"


def test_the_script_starts_the_same_trainer(job: Path, tmp_path: Path) -> None:
    spec = load_plan(job).spec
    assert (spec.slurm.nodes, spec.gpus, spec.container.runtime) == (2, 8, "podman")
    assert isinstance(spec.run, str)
    (tmp_path / "job").mkdir()
    started = ["python3 train.py --steps 600 --title first\\ on\\ 2\\ nodes"]
    assert execute(spec.run, tmp_path / "job") == (0, started)
    assert "please look" not in job.read_text()
    assert main(["render", str(job)]) == 0


def test_the_picture_shows_it(job: Path) -> None:
    """docs/scripts/log_svg.py draws it."""
    shown = ET.parse(PICTURE).findtext("{http://www.w3.org/2000/svg}desc")
    assert shown
    lines = shown.splitlines()
    number = lines.index(next(line for line in lines if line.startswith("$ sed -n 2,")))
    printed = (job.parent / "printed").read_text().splitlines()
    assert lines[:number] == ["$ slurmray init --from train.slurm -o job.yaml", *printed]
    last = int(lines[number].partition(",")[2].partition("p")[0])
    assert lines[number + 1 :] == job.read_text().splitlines()[1:last]
