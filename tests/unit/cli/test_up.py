"""slurmray up: a cluster without a trainer."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

from slurmray.cli.rendered import Rendered
from slurmray.errors import SlurmError
from slurmray.spec.job_spec import JobSpec

from ..agent.waiting import wait_until
from .command_line import main


def test_a_cluster_that_nobody_uses_is_not_stalled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    seen: list[JobSpec] = []

    def submit(rendered: Rendered) -> None:
        seen.append(rendered.spec)
        raise SlurmError("no Slurm here")

    monkeypatch.setattr(Rendered, "submit", submit)
    job = tmp_path / "job.yaml"
    job.write_text(
        "watch: {action: end, stall: 5m}\npreset: verl\nrun: [python3, -m, verl.trainer.main_ppo]\n"
        "sweep: {lr: [1e-6, 5e-6]}\nslurm: {array: '%1'}\n"
    )
    assert main(["up", str(job)], capsys)[2] == "no Slurm here\n"
    (spec,) = seen
    assert isinstance(spec.run, list)
    with subprocess.Popen(spec.run, start_new_session=True) as child:
        sleeping = Path(f"/proc/{child.pid}/task/{child.pid}/children")
        wait_until(lambda: bool(sleeping.read_text()))  # it has its trap
        child.terminate()
        assert child.wait(60) == 0
        os.killpg(child.pid, signal.SIGKILL)
    assert (spec.watch.stall, spec.watch.action, spec.preset) == (0, "report", None)
    assert (spec.sweep, dict(spec.slurm.given()).get("array")) == ({}, None)
