"""Wheel, source distribution and editable install have all files and render the same script. Needs PyPI."""

import os
import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def files_in(name: str) -> set[str]:
    """The files in a folder of the checkout, and below, without compiled files of Python."""
    files = [file for file in (ROOT / name).rglob("*") if file.is_file() and file.suffix != ".pyc"]
    return {str(file.relative_to(ROOT)) for file in files}


PACKAGE = files_in("slurmray")
BESIDE = files_in("templates") | files_in("examples")  # in the installed package
BUILD = ("--quiet", "--no-deps", "--no-build-isolation")
RENDER = ("render", "--nodes", "2", "--set", "run=[echo, a b, 'c']", "-o", "-")


def python(executable: Path | str, *argv: str | Path, cwd: Path | None = None) -> str:
    # Nothing of the checkout is on the path, nor pytest's own environment.
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run(
        [executable, *argv], env=env, cwd=cwd, capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def build_wheel(source: Path, folder: Path) -> Path:
    python(sys.executable, "-m", "pip", "wheel", *BUILD, "--wheel-dir", folder, source)
    (wheel,) = folder.glob("*.whl")
    return wheel


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(ROOT, tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def clean_python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fresh environment with the wheel and what it depends on."""
    folder = tmp_path_factory.mktemp("clean")
    python(sys.executable, "-m", "venv", folder)
    python(folder / "bin/python", "-m", "pip", "install", "--quiet", wheel)
    return folder / "bin/python"


def rendered_by(executable: Path) -> str:
    return python(executable.with_name("slurmray"), *RENDER, cwd=Path("/"))


def test_a_wheel_and_an_editable_install_render_from_anywhere(clean_python: Path, tmp_path: Path) -> None:
    def place() -> Path:
        return Path(python(clean_python, "-c", "import slurmray; print(slurmray.__file__)", cwd=Path("/")))

    assert place().is_relative_to(clean_python.parents[1])
    expected = python(sys.executable, "-m", "slurmray", *RENDER, cwd=ROOT)
    assert rendered_by(clean_python) == expected
    assert "#SBATCH --nodes=2\n" in expected
    command = clean_python.with_name("slurmray")
    listed = {line.split()[0] for line in python(command, "init", cwd=tmp_path).splitlines()}
    assert listed >= {"verl", "rlinf", "roll", "search-r1", "openrlhf"}
    python(command, "init", "rlinf", "--nodes", "2", cwd=tmp_path)
    assert "#SBATCH --nodes=2\n" in python(command, "render", "job.yaml", "-o", "-", cwd=tmp_path)
    editable = ("--quiet", "--no-deps", "--force-reinstall", "--editable", ROOT)
    python(clean_python, "-m", "pip", "install", *editable)
    assert place().is_relative_to(ROOT)
    assert rendered_by(clean_python) == expected


def test_a_wheel_has_what_the_checkout_has(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    assert PACKAGE | {f"slurmray/{name}" for name in BESIDE} <= names
    assert "slurmray/py.typed" in names
    outside = ("tests/", "templates/", "examples/", "docs/", "bench/")
    assert not [name for name in names if name.startswith(outside)]
    assert not [name for name in names if name.endswith(".pyc")]
    assert any(name.endswith("/licenses/LICENSE") for name in names)


def test_links_in_the_description_are_absolute(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        (metadata,) = (archive.read(name) for name in archive.namelist() if name.endswith("/METADATA"))
    targets = re.findall(r"\]\(([^)]+)\)", metadata.decode())
    assert len(targets) > 20
    assert [target for target in targets if not target.startswith(("https://", "#"))] == []


def test_a_source_distribution_makes_the_same_wheel(wheel: Path, tmp_path: Path) -> None:
    python(sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", tmp_path, cwd=ROOT)
    (archive,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(archive) as tar:
        top = archive.name.removesuffix(".tar.gz")
        assert {f"{top}/{name}" for name in PACKAGE | BESIDE} <= set(tar.getnames())
    again = build_wheel(archive, tmp_path)
    assert sorted(zipfile.ZipFile(again).namelist()) == sorted(zipfile.ZipFile(wheel).namelist())


@pytest.mark.full
def test_the_single_file_renders_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    python(sys.executable, ROOT / ".ci/pyz.py", tmp_path / "slurmray.pyz")
    expected = python(sys.executable, "-m", "slurmray", *RENDER, cwd=ROOT)
    # -S: without the packages of this environment
    assert python(sys.executable, "-S", tmp_path / "slurmray.pyz", *RENDER, cwd=Path("/")) == expected
    assert "verl" in python(sys.executable, "-S", tmp_path / "slurmray.pyz", "init", cwd=tmp_path)
