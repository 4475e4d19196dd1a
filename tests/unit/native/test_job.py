"""What is refused, and what goes wrong before and around the function of a RayExecutor."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import time
import zipfile
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import cloudpickle
import pytest
from submitit.core.utils import DelayedSubmission

from slurmray.errors import SpecError
from slurmray.native import RayExecutor, bundle
from slurmray.native.driver import REQUEUE_EXIT_CODE
from slurmray.native.parameters import PYTHON
from tests.processes import bounded

FACTS = {"SLURM_JOB_ID": "7", "SLURM_JOB_NUM_NODES": "2", "SLURMRAY_ATTEMPT": "0"}


def driver(
    folder: Path, python: str, path: list[Path], **env: str
) -> AbstractContextManager[subprocess.Popen[str]]:
    """Start a driver as in a job, where only the bundle has slurmray."""
    run = folder / "slurmray-runs/7-0"
    run.mkdir(parents=True, exist_ok=True)
    (run / "mark").touch()
    argv = [sys.executable, "-m", "slurmray.native.driver", str(folder), python, cloudpickle.__version__]
    env = {**os.environ, **FACTS, "PYTHONPATH": os.pathsep.join(map(str, path)), **env}
    return bounded(subprocess.Popen(argv, cwd=folder, env=env, stderr=subprocess.PIPE, text=True))


def test_another_python_is_one_line_whatever_else_it_has(tmp_path: Path) -> None:
    with driver(tmp_path, "3.7", [bundle.pack(tmp_path)]) as process:
        output = process.communicate()[1]
    assert process.returncode == 2
    assert output.startswith("slurmray: the function comes from Python 3.7, ")
    outcome, text = pickle.loads((tmp_path / "7_0_result.pkl").read_bytes())  # noqa: S301
    assert (outcome, f"slurmray: {text}\n") == ("error", output)
    # And where submitit cannot be imported at all.
    (tmp_path / "submitit").mkdir()
    (tmp_path / "submitit/__init__.py").write_text("raise ImportError('not for this Python')")
    with driver(tmp_path, "3.7", [tmp_path, bundle.pack(tmp_path)]) as process:
        output = process.communicate()[1]
    assert output.startswith("slurmray: the function comes from Python 3.7, ")


def test_a_warning_before_the_function_has_begun(tmp_path: Path) -> None:
    (tmp_path / "cloudpickle.py").write_text("import time\nopen('begun', 'w').close()\ntime.sleep(60)\n")
    with driver(tmp_path, PYTHON, [tmp_path, bundle.pack(tmp_path)]) as process:
        while not (tmp_path / "begun").exists():
            assert process.poll() is None
            time.sleep(0.05)
        process.send_signal(signal.SIGUSR2)
        process.communicate()
    assert process.returncode == REQUEUE_EXIT_CODE


def test_an_attempt_after_one_that_was_killed_while_it_wrote(tmp_path: Path) -> None:
    DelayedSubmission(os.getenv, "SUBMITIT_PREEMPT_SIGNAL").dump(tmp_path / "7_submitted.pkl")
    (tmp_path / "7_0_result.pkl.save_tmp").write_bytes(b"half")
    with driver(tmp_path, PYTHON, [bundle.pack(tmp_path)], SUBMITIT_PREEMPT_SIGNAL="USR1") as process:
        output = process.communicate()[1]
    assert process.returncode == 0, output
    # A signal of the user's choice is none that the job sends.
    assert pickle.loads((tmp_path / "7_0_result.pkl").read_bytes()) == ("success", "USR2")  # noqa: S301


def test_the_bundle_hides_nothing_of_the_image(tmp_path: Path) -> None:
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


def test_the_callers_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bin").mkdir()
    monkeypatch.setattr(
        sys, "path", [str(tmp_path / "bin"), str(Path(sys.executable).parent), *sys.path[1:], "", "/"]
    )
    monkeypatch.chdir(tmp_path)
    found = bundle.code_folders()
    assert found[0] == tmp_path / "bin"
    assert tmp_path in found
    assert not {Path("/"), Path(sys.executable).parent.resolve()} & set(found)


@pytest.mark.parametrize(
    ("parameters", "expected"),
    [
        ({"foo": 1}, "foo: unknown parameter; known are name, nodes, "),
        ({"stop": "x"}, "stop: expected `name: value` pairs, got 'x'"),
        ({"stop": {"signal": "INT"}}, "stop.signal: RayExecutor sets it: leave it out"),
        ({"requeue": {"exit_code": 1}}, "requeue.exit_code: RayExecutor sets it: leave it out"),
        ({"container": "image"}, "container: expected `name: value` pairs, got 'image'"),
        ({"mem_gb": "4"}, "mem_gb: expected GiB as a number, got '4'"),
        ({"timeout_min": 1.5}, "timeout_min: expected minutes as a whole number, got 1.5"),
        ({"slurm_time": 600}, "slurm_time: use timeout_min"),
        ({"slurm_output": "x"}, "slurm_output: logs are in the executor's folder: leave it out"),
        (
            {"slurm_clusters": "a"},
            "slurm_clusters: RayExecutor works with the default cluster only",
        ),
        ({"slurm_setup": "module load x"}, "slurm_setup: expected a list of commands, got 'module load x'"),
        ({"slurm_array_parallelism": 0}, "slurm_array_parallelism: expected a whole number, 1 or more"),
        ({"slurm_additional_parameters": ["a"]}, "slurm_additional_parameters: expected `name: value` pairs"),
        ({"nodes": "two"}, "slurm.nodes: expected a whole number, got 'two'"),
    ],
)
def test_wrong_parameters_set_nothing(tmp_path: Path, parameters: dict[str, Any], expected: str) -> None:
    executor = RayExecutor(tmp_path, cluster="slurm")
    executor.update_parameters(nodes=2)
    with pytest.raises(SpecError) as caught:
        executor.update_parameters(**parameters)
    assert str(caught.value).startswith(expected)
    assert executor.parameters == {"nodes": 2}


def test_what_only_shows_when_it_is_submitted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, recwarn: pytest.WarningsRecorder
) -> None:
    """Only the bundle stays."""
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    sbatch = tmp_path / "bin/sbatch"
    sbatch.parent.mkdir()
    sbatch.write_text("#!/bin/sh\necho 'sbatch: the QOS ends soon' >&2\necho 7\nexit 3  # slurm.wait\n")
    sbatch.chmod(0o755)
    executor = RayExecutor(tmp_path / "runs", cluster="slurm")
    build = {"image": "mine", "build": {"file": "no-such-file"}}
    executor.update_parameters(container=build)
    with pytest.raises(SpecError, match=r"container\.build\.file: no such file: no-such-file"):
        executor.submit(print)
    assert [path.suffix for path in (tmp_path / "runs").iterdir()] == [".zip"]
    executor.update_parameters(container=None)
    assert executor.submit(print).job_id == "7"
    assert [str(each.message) for each in recwarn] == ["job 7: sbatch: the QOS ends soon"]
