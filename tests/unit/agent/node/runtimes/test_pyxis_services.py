"""The story's function that represents the step of a service, with pyxis."""

from __future__ import annotations

import os
import subprocess
import threading
from pathlib import Path

import pytest

from slurmray.agent import script_parts
from slurmray.loading.load import load_plan
from slurmray.rendering.script import render_script
from tests.processes import bounded


@pytest.mark.parametrize(("answer", "code"), [("3\n", 3), ("0\n", 0), ("", 143)])
def test_exit_code_of_a_service(tmp_path: Path, answer: str, code: int) -> None:
    """Without an answer Slurm has ended the step."""
    (tmp_path / "job.yaml").write_text("slurm: {nodes: 1}\ncontainer: {runtime: pyxis, image: ./a.sqsh}\n")
    text = render_script(load_plan(tmp_path / "job.yaml", [], []))
    inside = tmp_path / "inside"
    inside.mkdir()
    for name in ("tether-web", "code-web", "closed-web"):
        os.mkfifo(inside / name)
    argv = script_parts.story_command(text, "use_service", str(tmp_path), "web")

    def end_service() -> None:
        with (inside / "tether-web").open("rb"):
            (inside / "code-web").write_text(answer)
        (inside / "closed-web").write_text("\n" if answer else "")

    threading.Thread(target=end_service, daemon=True).start()
    with bounded(subprocess.Popen(argv, stdin=subprocess.PIPE)) as process:
        assert process.wait() == code
