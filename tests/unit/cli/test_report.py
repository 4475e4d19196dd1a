"""slurmray report, and the bring-up in slurmray status; scontrol is a stand-in."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

import slurmray

from ..programs import OWN, install
from ..test_events import event_line
from .command_line import echo_record, main

SCRIPT = slurmray.render(slurmray.JobSpec(name="verl", env={"WANDB_API_KEY": "hunter2"}, run=["train"]))
NODES = [f"gpu-{number}" for number in range(1, 9)]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with run directories of job 7: a first attempt, and one in which gpu-1 is ready."""
    record = echo_record("JobState=RUNNING", "Requeue=1 Restarts=1 ExitCode=0:0", f"WorkDir={tmp_path}")
    script = f"cat {tmp_path}/script"
    text = f'case "$*" in "write batch_script 7 -") {script} ;; "show job 7") {record} ;; esac'
    (tmp_path / "script").write_text(SCRIPT)
    monkeypatch.setenv("PATH", f"{install(tmp_path / 'bin', scontrol=text, squeue=OWN)}:{os.environ['PATH']}")
    monkeypatch.chdir(tmp_path)
    start = {"nodes": NODES, "ray_nodes": 8, "head": "gpu-1"}
    first = [event_line("start", **start), event_line("requeue", reason="gpu-2: lost its power")]
    last = [event_line("start", attempt=1, **start), event_line("nodes", step="ray", nodes=["gpu-1"])]
    for attempt, lines in enumerate((first, last)):
        run = tmp_path / f"slurmray-runs/7-{attempt}"
        run.mkdir(parents=True)
        (run / "events.jsonl").write_text("".join(lines))
    return tmp_path


def test_a_page(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", "7"], capsys) == (0, "", "wrote slurmray-7.html\n")
    assert (folder / "slurmray-7.html").stat().st_mode & 0o777 == 0o600  # it has the text of `setup`
    page = (folder / "slurmray-7.html").read_text()
    assert page.startswith("<!DOCTYPE html>")
    assert "gpu-2: lost its power" in page  # of the first attempt
    assert "not done: gpu-[2-8]" in page
    assert "WANDB_API_KEY" in page
    assert "hunter2" not in page
    code, out, err = main(["report", "7", "-o", "-"], capsys)
    assert (code, err) == (0, "")
    assert out.partition("Written")[0] == page.partition("Written")[0]


def test_a_job_whose_script_slurm_has_forgotten(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "script").unlink()
    assert "Not available" in main(["report", "7", "-o", "-"], capsys)[1]


def test_only_its_own_files_are_overwritten(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = folder / "page.html"
    for _ in range(2):
        assert main(["report", "7", "-o", "page.html"], capsys) == (0, "", "wrote page.html\n")
    text = "page.html: was not written by slurmray report; choose another name with -o\n"
    page.write_text("<!DOCTYPE html>\n<p>mine</p>")
    assert main(["report", "7", "-o", "page.html"], capsys) == (2, "", text)
    page.write_bytes(b"\xff")
    assert main(["report", "7", "-o", "page.html"], capsys) == (2, "", text)
    assert page.read_bytes() == b"\xff"
    code, _, err = main(["report", "7", "-o", "none/page.html"], capsys)
    assert (code, err.count("\n")) == (2, 1)
    assert "there is no folder none" in err


def test_a_job_that_is_not_known(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = main(["report", "other"], capsys)
    assert (code, out) == (2, "")
    assert err == "no job named 'other' was submitted with slurmray submit; give its id\n"
    assert not list(folder.glob("*.html"))


@pytest.mark.usefixtures("folder")
def test_status_has_the_bring_up(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = main(["status", "7"], capsys)
    assert code == 0
    lines = out.splitlines()
    at = lines.index("  bring-up       nodes  half after   all after")
    assert [line.split()[:2] for line in lines[at + 1 : at + 6]] == [
        [step, "1/8"] for step in ("agent", "checks", "image", "container", "ray")
    ]
    assert lines[at + 5].endswith("not done: gpu-2, gpu-3, gpu-4, gpu-5 and 3 more")


def test_status_of_nodes_that_are_all_ready(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = {
        0: event_line("start", nodes=NODES, ray_nodes=8),
        2: event_line("nodes", step="ray", nodes=NODES[:5]),
        61: event_line("nodes", step="ray", nodes=NODES[5:]),
    }
    texts = [json.dumps({**json.loads(line), "time": 1000 + after}) for after, line in lines.items()]
    (folder / "slurmray-runs/7-1/events.jsonl").write_text("\n".join(texts))
    code, out, _ = main(["status", "7"], capsys)
    assert code == 0
    assert "  ray              8/8       2.0 s      61.0 s  gpu-8 was last" in out.splitlines()
