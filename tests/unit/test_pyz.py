"""The start of slurmray.pyz, with a small program in place of slurmray."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

START = Path(__file__).parents[2] / ".ci/pyz_start.py"
PROGRAM = "import sys\n\n\ndef main():\n    print(__file__, *sys.argv[1:])\n    return 3\n"
OWN = sysconfig.get_config_var("EXT_SUFFIX")
OTHER = ".cpython-399-x86_64-linux-gnu.so"


class Archive:
    """slurmray.pyz in a folder of its own. suffixes: of the compiled modules in it."""

    def __init__(self, folder: Path, *suffixes: str) -> None:
        self.path = folder / "slurmray.pyz"
        self.cache = folder / "cache"
        self.bin = folder / "bin"
        self.bin.mkdir()
        self.write(PROGRAM, *suffixes)

    def write(self, program: str, *suffixes: str) -> None:
        with zipfile.ZipFile(self.path, "w") as archive:
            archive.write(START, "__main__.py")
            archive.writestr("slurmray/__init__.py", "")
            archive.writestr("slurmray/cli.py", program)
            archive.writestr("pydantic_core/_pydantic_core.pyi", "")
            for suffix in suffixes:
                archive.writestr(f"pydantic_core/_pydantic_core{suffix}", "")

    def run(self, *argv: str) -> subprocess.CompletedProcess[str]:
        env = {"PATH": str(self.bin), "XDG_CACHE_HOME": str(self.cache)}
        command = [sys.executable, str(self.path), *argv]
        return subprocess.run(command, env=env, capture_output=True, text=True, check=False, timeout=60)

    def unpacked(self) -> set[Path]:
        return {*(self.cache / "slurmray/pyz").iterdir()}


def refusal(done: subprocess.CompletedProcess[str]) -> str:
    """The one line that a start has printed."""
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    return line


def test_it_runs_from_the_cache(tmp_path: Path) -> None:
    archive = Archive(tmp_path, OWN, OTHER)
    done = archive.run("render", "a b")
    (folder,) = archive.unpacked()
    assert (done.returncode, done.stderr) == (3, "")
    assert done.stdout == f"{folder / 'slurmray/cli.py'} render a b\n"
    assert [path.name for path in folder.glob("pydantic_core/*.so")] == [f"_pydantic_core{OWN}"]
    assert folder.stat().st_mode & 0o077 == 0


def test_it_unpacks_once_for_each_version(tmp_path: Path) -> None:
    archive = Archive(tmp_path, OWN)
    archive.run()
    (folder,) = archive.unpacked()
    (folder / "slurmray/cli.py").write_text(PROGRAM.replace("3", "40"))
    assert archive.run().returncode == 40
    archive.write(PROGRAM.replace("3", "50"), OWN)
    assert archive.run().returncode == 50
    assert len(archive.unpacked()) == 2


def test_it_names_the_python_that_it_needs(tmp_path: Path) -> None:
    archive = Archive(tmp_path, OTHER, ".cpython-310-aarch64-linux-gnu.so")
    (archive.bin / "python3").symlink_to("/bin/false")
    line = refusal(archive.run())
    assert "needs CPython 3.10 to 3.99 on Linux, aarch64 and x86_64;" in line
    assert f"this is Python {sys.version.split()[0]} " in line
    assert sys.executable in line


def test_it_runs_with_another_python_on_path(tmp_path: Path) -> None:
    archive = Archive(tmp_path, OTHER)
    program = archive.bin / "python3.99"
    program.write_text(
        f'#!/bin/sh\n[ "$1" = -c ] && [ "$3" != {OTHER} ] && exit 1\n[ "$1" = -c ] || echo "$@"\n'
    )
    program.chmod(0o755)
    done = archive.run("render", "a b")
    assert (done.returncode, done.stdout) == (0, f"{archive.path} render a b\n")


def test_a_cache_that_cannot_be_written(tmp_path: Path) -> None:
    archive = Archive(tmp_path, OWN)
    archive.cache.write_text("")
    assert str(archive.cache) in refusal(archive.run())


@pytest.mark.skipif(os.geteuid() != 0, reason="makes a folder of another user")
def test_it_runs_nothing_of_another_user(tmp_path: Path) -> None:
    archive = Archive(tmp_path, OWN)
    archive.run()
    (folder,) = archive.unpacked()
    os.chown(folder, 1, 1)
    assert f"{folder} is another user's" in refusal(archive.run())
