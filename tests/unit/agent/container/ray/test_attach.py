"""The command that attaches to the cluster."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from slurmray.agent.container.ray import attach


def test_ray_command_has_the_trainer_s_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OF_THE_IMAGE", "image")
    monkeypatch.setattr(os, "getpid", lambda: 1)  # in a container
    package = tmp_path / "lib/ray/scripts"
    package.mkdir(parents=True)
    for folder in (package.parent, package):
        (folder / "__init__.py").touch()
    (package / "scripts.py").write_text(
        "import os, sys\ndef main(): print([sys.argv, os.environ['TOKEN'], os.environ['LINES'], os.getcwd()])"
    )
    (tmp_path / "ray.py").touch()  # must not be imported from the current folder
    env = {"TOKEN": "/t p", "LINES": "it's\n$x", "OF_THE_IMAGE": "image", "PYTHONPATH": str(tmp_path / "lib")}
    env["BASH_FUNC_f%%"] = "() { :; }"
    attach.write_ray_command(str(tmp_path / "command"), env)
    assert (tmp_path / "command").stat().st_mode & 0o777 == 0o700
    assert "OF_THE_IMAGE" not in (tmp_path / "command").read_text()
    argv = [str(tmp_path / "command"), "job", "it's", ""]
    text = subprocess.run(argv, env={}, cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    assert text == repr([["ray", "job", "it's", ""], "/t p", "it's\n$x", str(tmp_path)]) + "\n"


@pytest.mark.parametrize(
    ("prefix", "expected"),
    [
        (["podman", "exec", "c"], "podman exec c /tmp/ray-7-2/ray"),
        ([], "/tmp/ray-7-2/ray"),
        (["--container-image=a b"], "'--container-image=a b' /tmp/ray-7-2/ray"),
    ],
)
def test_attach_command(prefix: list[str], expected: str) -> None:
    text = attach.attach_command("7_1", "gpu-1", prefix, "/tmp/ray-7-2/ray")
    assert text == "srun --overlap --jobid=7_1 -N1 -n1 -w gpu-1 " + expected
