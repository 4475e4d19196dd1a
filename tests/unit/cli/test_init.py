"""`slurmray init`: examples with changed fields; their comments stay."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurmray import yaml_source
from slurmray.cli import main
from slurmray.cli.init import init
from slurmray.errors import ExitCode
from slurmray.loading.edit import amended
from slurmray.loading.load import FLAGS, load_spec

ROOT = Path(__file__).parents[3]
EXAMPLES = {
    path.stem: path for path in (ROOT / "examples").glob("*.yaml") if not path.name.endswith(".config.yaml")
}
CHANGES = {
    "--nodes": "7",
    "--gpus-per-node": "h100:4",
    "--cpus-per-task": "11",
    "--mem": "1T",
    "--time": "12:00:00",
    "--partition": 'a "b": c',
    "--account": "null",
    "--image": "localhost:5000/mine:1",
    "--runtime": "docker",
}
PRESETS = ("verl", "rlinf", "roll", "search-r1", "openrlhf")


def comments(text: str) -> Iterator[str]:
    for line in text.splitlines():
        if " #" in f" {line}":
            yield line[f" {line}".index(" #") :]


def changed(before: str, after: str) -> tuple[set[str], set[str]]:
    """The lines that are gone, and those that are new."""
    old, new = before.splitlines(), after.splitlines()
    return set(old) - set(new), set(new) - set(old)


def test_examples_are_listed(current_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["init"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == sorted(EXAMPLES)
    assert set(EXAMPLES) >= set(PRESETS)
    assert all(len(line.split()) > 5 and line.endswith(".") for line in lines)
    assert list(current_folder.iterdir()) == []


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_is_ready_to_be_rendered(
    name: str, current_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["init", name]) == 0
    assert "to fix" not in capsys.readouterr().err
    text = (current_folder / "job.yaml").read_text()
    own = [path.name for path in (ROOT / "examples").iterdir() if f"examples/{path.name}" in text]
    assert own == [], "everything that it names is here"
    assert "slurmray render job.yaml" in text
    assert main(["render", "job.yaml"]) == 0


@pytest.mark.parametrize("name", EXAMPLES)
@pytest.mark.parametrize("flag", [name for each in init.params for name in each.opts if name in FLAGS])
def test_a_change_is_made_in_place(name: str, flag: str) -> None:
    text = EXAMPLES[name].read_text()
    path = tuple(FLAGS[flag].split("."))
    found = amended(text, path, CHANGES[flag])
    section, key = path
    read: Any = yaml_source.read("x", found).data
    assert read[section][key] == CHANGES[flag]
    gone, new = changed(text, found)
    assert len(gone) <= 1
    assert {line.split(":")[0].strip() for line in new} <= {section, key}
    assert [*comments(found)] == [*comments(text)]


@pytest.mark.parametrize("name", EXAMPLES)
def test_all_changes_together(name: str, current_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The job is that of the example with the same flags for `slurmray render`."""
    gpus = "2" if name == "roll" else "8"  # as many as its configuration says
    changes = {**CHANGES, "--nodes": "4", "--gpus-per-node": gpus}
    args = [arg for change in changes.items() for arg in change]
    assert main(["init", name, *args]) == 0
    made = load_spec(current_folder / "job.yaml").model_dump()
    monkeypatch.chdir(ROOT)
    expected = load_spec(EXAMPLES[name], list(changes.items())).model_dump()
    assert without_folders(made) == without_folders(expected)


def without_folders(spec: Any) -> Any:
    if isinstance(spec, dict):
        return {name: without_folders(value) for name, value in spec.items()}
    if isinstance(spec, list):
        return [without_folders(value) for value in spec]
    return spec.removeprefix("examples/") if isinstance(spec, str) else spec


@given(st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1))
def test_any_text_is_the_same_when_it_is_read(value: str) -> None:
    text = amended("slurm:\n  nodes: 1 # two\n", ("slurm", "comment"), value)
    assert "nodes: 1 # two\n" in text
    assert yaml_source.read("x", text).data == {"slurm": {"nodes": "1", "comment": value}}


def test_existing_files_are_kept(current_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (current_folder / "roll.config.yaml").write_text("mine")
    assert main(["init", "roll"]) == ExitCode.USAGE
    message = "roll.config.yaml: already exists; move it away, or use --force\n"
    assert capsys.readouterr().err == message
    assert [path.name for path in current_folder.iterdir()] == ["roll.config.yaml"]
    assert (current_folder / "roll.config.yaml").read_text() == "mine"
    assert main(["init", "roll", "--force"]) == 0
    assert (current_folder / "roll.config.yaml").read_text() != "mine"
    capsys.readouterr()
    assert main(["init", "hello"]) == ExitCode.USAGE
    message = "job.yaml: already exists; choose another name with -o, or use --force\n"
    assert capsys.readouterr().err == message


def test_all_files_or_none(current_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (current_folder / "rlinf.config.yaml").mkdir()
    assert main(["init", "rlinf", "--force"]) == ExitCode.USAGE
    assert capsys.readouterr().err == "rlinf.config.yaml: is a folder; name a file in it\n"
    assert [path.name for path in current_folder.iterdir()] == ["rlinf.config.yaml"]


def test_dash_is_standard_output(current_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, others in (("verl", []), ("roll", ["roll.config.yaml"])):
        assert main(["init", name, "--force"]) == 0
        expected = (current_folder / "job.yaml").read_text()
        (current_folder / "job.yaml").unlink()
        capsys.readouterr()
        assert main(["init", name, "--force", "-o", "-"]) == 0
        message = "".join(f"wrote {file}, which the job spec uses\n" for file in others)
        assert capsys.readouterr() == (expected, message)
        assert [path.name for path in current_folder.iterdir()] == others


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        (["nope"], "slurmray init: no example 'nope'; use one of amd, "),
        (["verl", "--nodes", "two"], "--nodes: expected a whole number, got 'two'\n"),
        (["verl", "--time", ""], "--time: is empty; give it a value or leave it out\n"),
        (["hello", "-o", "no/such/job.yaml"], "no/such/job.yaml: there is no folder no/such; make it with "),
        (
            ["hello", "-o", f"{'x' * 300}/job.yaml"],
            f"{'x' * 300}/job.yaml: cannot be written: File name too ",
        ),
        (
            ["rlinf", "--force", "-o", "./rlinf.config.yaml"],
            "rlinf.config.yaml: the example has another file of this name; choose another name with -o\n",
        ),
        (["-o", "my.yaml"], "slurmray init: no example given; use e.g. slurmray init verl\n"),
        (["--nodes", "4"], "slurmray init: no example given; use e.g. slurmray init verl\n"),
        (["--force"], "slurmray init: no example given; use e.g. slurmray init verl\n"),
    ],
)
def test_wrong_arguments(
    args: list[str], expected: str, current_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["init", *args]) == ExitCode.USAGE
    assert capsys.readouterr().err.startswith(expected)
    assert list(current_folder.iterdir()) == []


@pytest.mark.usefixtures("current_folder")
def test_what_no_longer_fits_is_listed(capsys: pytest.CaptureFixture[str]) -> None:
    """Placements are not changed: only the user knows which one to make smaller."""
    assert main(["init", "openrlhf", "--nodes", "1"]) == 0
    wrote, todo, then = capsys.readouterr().err.splitlines()
    assert wrote.startswith("wrote job.yaml: ")
    assert todo.startswith("to fix: job.yaml:")
    assert "_num_nodes 2, the job has 1 node x 8 = 8" in todo
    assert then == "next: slurmray render job.yaml"
