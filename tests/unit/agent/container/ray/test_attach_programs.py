"""The programs for users who attach to the job."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from slurmray.agent.container.ray import attach_programs


def test_commands_have_the_trainer_s_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OF_THE_IMAGE", "image")
    monkeypatch.setenv("ROCR_VISIBLE_DEVICES", "3")
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
    env["ROCR_VISIBLE_DEVICES"] = "3"
    env["BASH_FUNC_f%%"] = "() { :; }"
    folder = tmp_path / "the job's folder"
    folder.mkdir()
    attach_programs.write_programs(str(folder), str(tmp_path), 0o027, env)
    assert {path.name: path.stat().st_mode & 0o777 for path in folder.iterdir()} == {
        "attach": 0o700,
        "ray": 0o700,
    }
    assert "OF_THE_IMAGE" not in (folder / "attach").read_text()

    def output(*command: str, text: str = "") -> str:
        argv = [str(folder / "attach"), *command]
        foreign = {"RAY_AUTH_TOKEN": "x", "CUDA_VISIBLE_DEVICES": "7", "ROCR_VISIBLE_DEVICES": "3"}
        env = {"PATH": os.environ["PATH"], **foreign}
        return subprocess.run(
            argv, env=env, cwd="/", input=text, capture_output=True, text=True, check=True
        ).stdout

    assert (
        output("ray", "job", "it's", "")
        == repr([["ray", "job", "it's", ""], "/t p", "it's\n$x", str(tmp_path)]) + "\n"
    )
    assert output("printenv", "TOKEN") == "/t p\n"
    assert output(text='echo "$TOKEN"') == "/t p\n", "a shell"
    assert output(text='umask; echo "${RAY_AUTH_TOKEN-} ${CUDA_VISIBLE_DEVICES-} $ROCR_VISIBLE_DEVICES"') == (
        "0027\n  3\n"
    )
