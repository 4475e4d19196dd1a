"""`slurmray init`: examples with changed fields, whose comments stay; and job specs from scripts."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest

import slurmray
from slurmray.cli import main
from slurmray.errors import ExitCode
from slurmray.loading.load import load_plan
from tests.unit.cli.command_line import run as run_command
from tests.unit.examples import CHANGES, EXAMPLES, ROOT

PRESETS = ("verl", "rlinf", "roll", "search-r1", "openrlhf")


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
    assert own == [], "job.yaml names files of the checkout"
    assert "slurmray render job.yaml" in text
    assert main(["render", "job.yaml"]) == 0


@pytest.mark.parametrize("name", EXAMPLES)
def test_all_changes_together(name: str, current_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The job equals the example with the same flags for `slurmray render`."""
    gpus = "2" if name == "roll" else "8"  # the number in its configuration
    nodes = "2" if name == "skyrl" else "4"  # for the number of its inference engines
    changes = {**CHANGES, "--nodes": nodes, "--gpus-per-node": gpus}
    args = [arg for change in changes.items() for arg in change]
    assert main(["init", name, *args]) == 0
    made = load_plan(current_folder / "job.yaml").spec.model_dump()
    monkeypatch.chdir(ROOT)
    expected = load_plan(EXAMPLES[name], list(changes.items())).spec.model_dump()
    assert without_folders(made) == without_folders(expected)


def without_folders(spec: Any) -> Any:
    if isinstance(spec, dict):
        return {name: without_folders(value) for name, value in spec.items()}
    if isinstance(spec, list):
        return [without_folders(value) for value in spec]
    return spec.replace("examples/", "") if isinstance(spec, str) else spec


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
        ("nope", "slurmray init: no example 'nope'; use one of amd, "),
        ("verl --nodes two", "--nodes: expected an integer, got 'two'\n"),
        ("verl --time ''", "--time: is empty; set a value or leave it out\n"),
        ("hello -o no/such/job.yaml", "no/such/job.yaml: there is no folder no/such; make it with "),
        (f"hello -o {'x' * 300}/job.yaml", f"{'x' * 300}/job.yaml: cannot be written: File name too "),
        (
            "rlinf --force -o ./rlinf.config.yaml",
            "rlinf.config.yaml: the example has another file of this name; choose another name with -o\n",
        ),
        ("-o my.yaml", "slurmray init: no example given; use e.g. slurmray init verl\n"),
        ("--nodes 4", "slurmray init: no example given; use e.g. slurmray init verl\n"),
        ("--force", "slurmray init: no example given; use e.g. slurmray init verl\n"),
    ],
)
def test_wrong_arguments(
    args: str, expected: str, current_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["init", *shlex.split(args)]) == ExitCode.USAGE
    assert capsys.readouterr().err.startswith(expected)
    assert list(current_folder.iterdir()) == []


@pytest.mark.usefixtures("current_folder")
def test_placements_that_no_longer_fit_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    """Placements are not changed: only the user knows which one to make smaller."""
    assert main(["init", "openrlhf", "--nodes", "1"]) == 0
    wrote, todo, then = capsys.readouterr().err.splitlines()
    assert wrote.startswith("wrote job.yaml: ")
    assert todo.startswith("to fix: job.yaml:")
    assert "_num_nodes 2, the job has 1 node x 8 = 8" in todo
    assert then == "next: slurmray render job.yaml"


@pytest.mark.usefixtures("current_folder")
def test_the_editor_s_line() -> None:
    """It names the schema of this version, and is only for editors."""
    assert main(["init", "hello"]) == 0
    first, _, rest = Path("job.yaml").read_text().partition("\n")
    version = slurmray.__version__
    url = (
        f"https://raw.githubusercontent.com/slurmray/slurmray/v{version}/docs/reference/job-spec.schema.json"
    )
    assert first == f"# yaml-language-server: $schema={url}"
    assert rest == EXAMPLES["hello"].read_text().replace("examples/hello.yaml", "job.yaml")


LAUNCHER = ROOT / "tests/unit/importing/launchers/verl-apptainer.slurm"


def test_from_a_script(current_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script = current_folder / "my.slurm"
    script.write_bytes(LAUNCHER.read_bytes())
    assert main(["init", "--from", "my.slurm"]) == 0
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.splitlines() == [
        "wrote job.yaml: 44 lines of code: 22 became fields, 22 not needed, 0 to look at",
        "next: slurmray render job.yaml",
    ]
    made = current_folder / "job.yaml"
    assert made.read_text().startswith("# yaml-language-server: $schema=")
    assert load_plan(made).spec.preset is not None
    assert main(["render", "job.yaml"]) == 0
    before = made.read_text()
    capsys.readouterr()
    assert main(["init", "--from", "my.slurm"]) == ExitCode.USAGE
    message = "job.yaml: already exists; choose another name with -o, or use --force\n"
    assert capsys.readouterr().err == message
    assert main(["init", "--from", "my.slurm", "-o", "other.yaml"]) == 0
    assert main(["init", "--from", "my.slurm", "--force"]) == 0
    assert made.read_text() == (current_folder / "other.yaml").read_text() == before
    capsys.readouterr()
    assert main(["init", "--from", "my.slurm", "-o", "-"]) == 0
    captured = capsys.readouterr()
    assert captured.out == before
    assert captured.err == "44 lines of code: 22 became fields, 22 not needed, 0 to look at\n"


def test_from_standard_input(current_folder: Path) -> None:
    done = run_command(
        "init", "--from", "-", "-o", str(current_folder / "x.yaml"), stdin=LAUNCHER.read_text()
    )
    assert (done.returncode, done.stdout) == (0, "")
    assert (
        "# From stdin, by slurmray init --from: 44 lines of code" in (current_folder / "x.yaml").read_text()
    )


@pytest.mark.usefixtures("current_folder")
def test_what_is_wrong_in_a_job_spec_from_a_script(capsys: pytest.CaptureFixture[str]) -> None:
    Path("my.slurm").write_text("#SBATCH -N two\npython train.py\n")
    assert main(["init", "--from", "my.slurm"]) == 0
    wrote, todo, then = capsys.readouterr().err.splitlines()
    assert wrote == "wrote job.yaml: 2 lines of code: 2 became fields, 0 not needed, 0 to look at"
    assert todo.startswith("to fix: job.yaml:4:10: slurm.nodes: expected an integer, got 'two'")
    assert then == "next: slurmray render job.yaml"


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        (["--from", "no.slurm"], "no.slurm: cannot be read: No such file or directory; name a bash script\n"),
        (["--from", "."], ".: cannot be read: Is a directory; name a bash script\n"),
        (["verl", "--from", "x"], "slurmray init: verl and --from; leave one of them out\n"),
        (["--from", "x", "--nodes", "2"], "slurmray init: --nodes and --from; leave one of them out\n"),
        (["--from", "bad.slurm"], "bad.slurm:1:6: not valid bash: reached EOF without closing quote `'`\n"),
    ],
)
def test_wrong_scripts(
    args: list[str], expected: str, current_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (current_folder / "bad.slurm").write_text("echo 'x")
    assert main(["init", *args]) == ExitCode.USAGE
    assert capsys.readouterr().err == expected
    assert [path.name for path in current_folder.iterdir()] == ["bad.slurm"]


def test_from_a_script_with_its_arguments(current_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (current_folder / "my.slurm").write_text('M=$1\npython train.py --model "$M"\n')
    assert main(["init", "--from", "my.slurm", "-o", "-"]) == 0
    captured = capsys.readouterr()
    assert "FILL IN: $1 (M)" in captured.out
    assert main(["init", "--from", "my.slurm", "--", "Qwen/Qwen3 8B", "--x"]) == 0
    run = load_plan(current_folder / "job.yaml").spec.run
    assert isinstance(run, str)
    assert "set -- 'Qwen/Qwen3 8B' --x\n" in run
    assert main(["init", "verl", "--", "x"]) == ExitCode.USAGE


def test_a_script_without_a_trainer(current_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (current_folder / "my.slurm").write_text("#SBATCH -N 2\nray start --head\n")
    assert main(["init", "--from", "my.slurm"]) == ExitCode.USAGE
    assert "nodes: 2" in (current_folder / "job.yaml").read_text()
    assert main(["render", "job.yaml"]) == ExitCode.USAGE
    assert "FILL IN: " in capsys.readouterr().err


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o644])
def test_a_job_spec_is_not_more_readable_than_its_script(mode: int, current_folder: Path) -> None:
    (current_folder / "my.slurm").write_text("python train.py\n")
    (current_folder / "my.slurm").chmod(mode)
    assert main(["init", "--from", "my.slurm"]) == 0
    assert (current_folder / "job.yaml").stat().st_mode & 0o777 & ~mode == 0
