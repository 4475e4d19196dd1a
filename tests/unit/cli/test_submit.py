"""What `slurmray submit` asks of sbatch, which is a stand-in."""

from __future__ import annotations

from pathlib import Path

import pytest

from slurmray import history

from .command_line import main


@pytest.mark.parametrize("named", ["41", "first"])
def test_a_job_that_follows_another_starts_only_if_that_one_has_succeeded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], named: str
) -> None:
    (tmp_path / "sbatch").write_text('#!/bin/sh\ncat >/dev/null; printf "%s " "$@" >arguments; echo 42\n')
    (tmp_path / "sbatch").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    history.remember(history.Run(41, "first", None, str(tmp_path), "slurmray-runs", 1.0, 1, 0))
    code, out, err = main(["submit", "--nodes=1", f"--after={named}", "--", "true"], capsys)
    assert (code, out.startswith("submitted job 42")) == (0, True), err
    dependencies = [word for word in Path("arguments").read_text().split() if "dependency" in word]
    assert dependencies == ["--dependency=afterok:41"]
