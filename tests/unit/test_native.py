"""RayExecutor as far as no Slurm is needed; see also tests/cluster/test_native.py."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from slurmray.native import luggage
from slurmray.native.driver import REQUEUE_EXIT_CODE

FACTS = {"SLURM_JOB_ID": "7", "SLURM_JOB_NUM_NODES": "2"}


def driver(folder: Path, python: str, path: list[Path], **env: str) -> subprocess.Popen[str]:
    """A driver as in a job: what it has of slurmray is the luggage."""
    words = [sys.executable, "-m", "slurmray.native.driver", str(folder), python, "0"]
    return subprocess.Popen(
        words,
        cwd=folder,
        env={**os.environ, **FACTS, "PYTHONPATH": os.pathsep.join(map(str, path)), **env},
        stderr=subprocess.PIPE,
        text=True,
    )


def test_another_python_is_one_line_whatever_else_it_has(tmp_path: Path) -> None:
    with driver(tmp_path, "3.7", [luggage.pack(tmp_path)]) as process:
        said = process.communicate(timeout=60)[1]
    assert process.returncode == 2
    assert said.startswith("slurmray: the function comes from Python 3.7, ")
    outcome, text = pickle.loads((tmp_path / "7_0_result.pkl").read_bytes())  # noqa: S301
    assert (outcome, f"slurmray: {text}\n") == ("error", said)
    # And where submitit cannot be imported at all.
    (tmp_path / "submitit").mkdir()
    (tmp_path / "submitit/__init__.py").write_text("raise ImportError('not for this Python')")
    with driver(tmp_path, "3.7", [tmp_path, luggage.pack(tmp_path)]) as process:
        said = process.communicate(timeout=60)[1]
    assert said.startswith("slurmray: the function comes from Python 3.7, ")


def test_a_warning_before_the_function_has_begun(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "begun")
    (tmp_path / "cloudpickle.py").write_text("import time\nopen('begun', 'w').close()\ntime.sleep(60)\n")
    python = "{}.{}".format(*sys.version_info)
    with driver(tmp_path, python, [tmp_path, luggage.pack(tmp_path)]) as process:
        (tmp_path / "begun").read_text()
        process.send_signal(signal.SIGUSR2)
        process.communicate(timeout=60)
    assert process.returncode == REQUEUE_EXIT_CODE


def test_the_luggage_takes_nothing_from_the_image(tmp_path: Path) -> None:
    archive = luggage.pack(tmp_path)
    names = zipfile.ZipFile(archive).namelist()
    tops = {name.partition("/")[0] for name in names}
    assert tops == {"slurmray", "submitit", "cloudpickle", "last"}
    assert [name for name in names if name.startswith("last/")] == ["last/typing_extensions.py"]
    assert luggage.pack(tmp_path) == archive
    assert [path for path in tmp_path.iterdir() if path != archive] == []
    # -S: a Python that has none of its own.
    words = [sys.executable, "-S", "-c", "import slurmray.native, typing_extensions as t; print(t.__file__)"]
    env = {**os.environ, "PYTHONPATH": str(archive)}
    done = subprocess.run(words, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
    assert done.stdout == f"{archive}/last/typing_extensions.py\n", done.stderr


def test_the_callers_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bin").mkdir()
    monkeypatch.setattr(
        sys, "path", [str(tmp_path / "bin"), str(Path(sys.executable).parent), *sys.path[1:], "", "/"]
    )
    monkeypatch.chdir(tmp_path)
    found = luggage.code_folders()
    assert found[0] == tmp_path / "bin"
    assert tmp_path in found
    assert not {Path("/"), Path(sys.executable).parent.resolve()} & set(found)
