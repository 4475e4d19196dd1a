"""The bundle: packages shipped with the pickled function."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from slurmray.errors import UsageError
from slurmray.native import bundle

ROOT = Path(__file__).parents[3]


def test_equal_bundles_are_one_file(folder: Path) -> None:
    first = bundle.pack(folder)
    assert bundle.pack(folder) == first
    assert list(folder.iterdir()) == [first]
    names = zipfile.ZipFile(first).namelist()
    assert {"slurmray/native/driver.py", "submitit/__init__.py", "cloudpickle/__init__.py"} < set(names)


@pytest.mark.attack("a FIFO, a device, a link or another user's file in place of a file of the job", inputs=3)
def test_a_bundle_that_somebody_else_has_put_there(folder: Path) -> None:
    target = bundle.pack(folder)
    content = target.read_bytes()
    target.write_bytes(content[:99])
    assert bundle.pack(folder) == target
    assert target.read_bytes() == content
    os.chown(target, 65534, -1)
    with pytest.raises(UsageError, match=rf"^{target}: is another user's: remove it$"):
        bundle.pack(folder)
    target.rename(folder / "elsewhere")
    target.symlink_to("elsewhere")
    with pytest.raises(UsageError, match=rf"^{target}: is a symbolic link: remove it$"):
        bundle.pack(folder)


def test_the_executor_can_be_imported_without_its_dependencies(folder: Path) -> None:
    program = (
        "import sys; sys.modules.update(dict.fromkeys(('pydantic', 'jinja2', 'yaml', 'click', 'ray')));"
        "from slurmray.native import RayExecutor, driver; print(RayExecutor.__module__)"
    )
    argv = [sys.executable, "-S", "-c", program]
    env = {"PYTHONPATH": str(bundle.pack(folder))}
    done = subprocess.run(argv, env=env, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("slurmray.native.executor\n", "")


def test_code_folders_leave_out_installed_packages(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "code").mkdir()
    others = [str(folder / "not there"), "/", *(path for path in sys.path if "site-packages" in path)]
    monkeypatch.setattr(sys, "path", ["", str(folder / "code"), str(folder / "code"), str(ROOT), *others])
    assert bundle.find_code_folders() == [folder, folder / "code"]
    monkeypatch.setattr(sys, "path", [str(ROOT), *others])
    assert bundle.find_code_folders() == [ROOT]  # where the program is


def test_bundle_overrides_no_package_of_the_image(tmp_path: Path) -> None:
    archive = bundle.pack(tmp_path)
    names = zipfile.ZipFile(archive).namelist()
    tops = {name.partition("/")[0] for name in names}
    assert tops == {"slurmray", "submitit", "cloudpickle", "last"}
    assert [name for name in names if name.startswith("last/")] == ["last/typing_extensions.py"]
    assert bundle.pack(tmp_path) == archive
    assert [path for path in tmp_path.iterdir() if path != archive] == []
    # -S: a Python without site-packages.
    argv = [sys.executable, "-S", "-c", "import slurmray.native, typing_extensions as t; print(t.__file__)"]
    env = {**os.environ, "PYTHONPATH": str(archive)}
    done = subprocess.run(argv, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
    assert done.stdout == f"{archive}/last/typing_extensions.py\n", done.stderr


def test_code_folders_leave_out_the_interpreter_s_bin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bin").mkdir()
    monkeypatch.setattr(
        sys, "path", [str(tmp_path / "bin"), str(Path(sys.executable).parent), *sys.path[1:], "", "/"]
    )
    monkeypatch.chdir(tmp_path)
    folders = bundle.find_code_folders()
    assert folders[0] == tmp_path / "bin"
    assert tmp_path in folders
    assert not {Path("/"), Path(sys.executable).parent.resolve()} & set(folders)
