"""A submitted job; scontrol is a stand-in."""

from __future__ import annotations

from pathlib import Path

import pytest

import slurmray
from slurmray.agent import ray_logs
from slurmray.errors import SlurmError, UsageError

from ..test_events import event_line


@pytest.mark.parametrize("number", [0, -1, True, "7"])
def test_a_job_id_is_a_positive_number(number: int) -> None:
    with pytest.raises(UsageError, match="expected the number of a job"):
        slurmray.Job(number)


def scontrol(folder: Path, monkeypatch: pytest.MonkeyPatch, commands: str) -> None:
    """Install scontrol as the only command of Slurm."""
    program = folder / "bin/scontrol"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\n{commands}")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent))


@pytest.mark.parametrize("state", ["NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED", "TIMEOUT"])
def test_final_states(state: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scontrol(tmp_path, monkeypatch, f"echo JobState={state} ExitCode=0:9; echo WorkDir=/\n")
    assert slurmray.Job(7).wait(timeout=0) == slurmray.End(state, 0, 9)


@pytest.mark.parametrize(("errors", "expected"), [("log", "text\n"), ("errors", "text\nbad\n")])
def test_logs_are_read_once_each(
    errors: str, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "log").write_text("text\n")
    (tmp_path / "errors").write_text("bad\n")
    record = (
        "JobState=RUNNING",
        f"WorkDir={tmp_path}",
        f"StdErr={tmp_path / errors}",
        f"StdOut={tmp_path}/log",
    )
    scontrol(tmp_path, monkeypatch, "".join(f"echo '{field}'\n" for field in record))
    assert slurmray.Job(7).logs() == expected


def test_attach_argv(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the events of the running attempt."""
    record = f"echo JobState=$STATE Restarts=1; echo WorkDir={tmp_path}; echo StdOut={tmp_path}/log"
    scontrol(tmp_path, monkeypatch, record)
    names = ["gpu-1", "gpu-2"]
    start = event_line("start", job="7", attempt=1, head="gpu-1", nodes=names, components=[2])
    runs = tmp_path / "runs"
    for attempt in (0, 1, 2):
        (runs / f"7-{attempt}").mkdir(parents=True)
        line = event_line("attach", argv=["srun", "-w", "gpu-1", f"/ray-{attempt}/attach"])
        (runs / f"7-{attempt}/events.jsonl").write_text(start + line)
    monkeypatch.setenv("STATE", "RUNNING")
    job = slurmray.Job(7, run_dir="runs", cluster="c2")
    assert job.attach_argv() == ["srun", "--clusters=c2", "-w", "gpu-1", "/ray-1/attach"]
    argv = job.attach_argv(["a", "b c"], node="gpu-2", is_terminal=True)
    assert argv == ["srun", "--clusters=c2", "--pty", "-w", "gpu-2", "/ray-1/attach", "a", "b c"]
    with pytest.raises(UsageError, match="job 7: --node: no node gpu-3; its nodes are gpu-1, gpu-2"):
        job.attach_argv(node="gpu-3")
    with pytest.raises(
        SlurmError, match=r"job 7: no events in .*/slurmray-runs/7-1 yet; .* the run_dir of its"
    ):
        slurmray.Job(7).attach_argv()
    container = ["srun", "-w", "gpu-1", "podman", "exec", "slurmray-7-1-gpu-1", "/ray-7-1/attach"]
    (runs / "7-1/events.jsonl").write_text(start + event_line("attach", argv=container))
    options = {False: ["--interactive"], True: ["--tty", "--interactive"]}
    for is_terminal in (False, True):
        argv = slurmray.Job(7, run_dir="runs").attach_argv(node="gpu-2", is_terminal=is_terminal)
        of_exec = [*options[is_terminal], "slurmray-7-1-gpu-2", "/ray-7-1/attach"]
        assert argv[-len(of_exec) - 4 :] == ["-w", "gpu-2", "podman", "exec", *of_exec]
    groups = event_line("start", job="7", attempt=1, head="gpu-1", nodes=names, components=[1, 1])
    heterogeneous = ["srun", "--het-group=0", "-w", "gpu-1", "/ray-7-1/attach"]
    (runs / "7-1/events.jsonl").write_text(groups + event_line("attach", argv=heterogeneous))
    for node, component in (("gpu-1", 0), ("gpu-2", 1)):
        argv = slurmray.Job(7, run_dir="runs").attach_argv(node=node)
        assert argv == ["srun", f"--het-group={component}", "-w", node, "/ray-7-1/attach"]
    (runs / "7-1/events.jsonl").write_text(
        start + '{"v": 1, "time": 1, "event": "attach", "command": "srun"}\n'
    )
    with pytest.raises(SlurmError, match="job 7: rendered by an older version of slurmray: use srun"):
        slurmray.Job(7, run_dir="runs").attach_argv()
    (runs / "7-1/events.jsonl").write_text(start)
    with pytest.raises(SlurmError, match="job 7: cluster not ready"):
        slurmray.Job(7, run_dir="runs").attach_argv()
    monkeypatch.setenv("STATE", "PENDING")
    with pytest.raises(SlurmError, match="job 7: the job is PENDING; attach while it is RUNNING"):
        slurmray.Job(7, run_dir="runs").attach_argv()


@pytest.fixture
def logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of logs of the last attempt of job 7, with logs of services."""
    scontrol(tmp_path, monkeypatch, f"echo JobState=RUNNING Restarts=1; echo WorkDir={tmp_path}")
    logs = tmp_path / "slurmray-runs/7-1/logs"
    logs.mkdir(parents=True)
    texts = {
        "gpu-1": "of the node\n",
        **{"service-judge@gpu-1": "one\n", "service-judge@gpu-2": "two\n", "service-judge": ""},
        **{"service-a-judge@gpu-1": "a", "service-web": "no such image\n", "service-web@gpu-9": "up\n"},
    }
    for name, text in texts.items():
        (logs / f"{name}.log").write_text(text)
    (logs / "service-judge@gpu-1-ray.tar.gz").touch()
    return logs


def test_logs_of_services(logs: Path) -> None:
    job = slurmray.Job(7, folder=logs.parents[2])
    assert job.services() == ["a-judge", "judge", "web"]
    assert job.service_log("judge") == "==> gpu-1 <==\none\n\n==> gpu-2 <==\ntwo\n"
    assert job.service_log("judge", "gpu-2") == "two\n"
    assert job.service_log("judge", "gpu-2", last=2) == "o\n"
    assert job.service_log("a-judge") == "a", "of one node without a header"
    # With pyxis: also why its step did not start.
    assert job.service_log("web") == "==> gpu-9 <==\nup\n\n==> srun <==\nno such image\n"
    (logs.parents[1] / "7-0/logs").mkdir(parents=True)
    (logs.parents[1] / "7-0/logs/service-judge@gpu-3.log").write_text("before\n")
    assert job.service_log("judge", attempt=0) == "before\n"


def test_logs_of_services_that_are_not_there(logs: Path) -> None:
    job = slurmray.Job(7)
    with pytest.raises(UsageError, match="no log of the service jud; there are those of a-judge, judge, web"):
        job.service_log("jud")
    with pytest.raises(UsageError, match="judge has no log on gpu-3, only on gpu-1, gpu-2"):
        job.service_log("judge", "gpu-3")
    for attempt in (0, 5):
        with pytest.raises(
            UsageError, match=rf"7-{attempt}/logs: no log of the service judge; it has none of"
        ):
            job.service_log("judge", attempt=attempt)
    with pytest.raises(UsageError, match="no log of the node gpu-3; there are those of gpu-1, service-judge"):
        job.node_log("gpu-3")
    (logs / "service-judge@gpu-1.log").unlink()
    (logs / "service-judge@gpu-1.log").mkdir()
    with pytest.raises(UsageError, match=r"service-judge@gpu-1\.log: cannot be read: Is a directory"):
        job.service_log("judge")


@pytest.mark.parametrize(
    ("state", "has_file", "is_short"),
    [
        ("RUNNING", True, True),
        ("COMPLETING", True, True),  # while the grace period runs
        ("COMPLETING", False, False),  # rendered by an older version
        ("CANCELLED", False, True),  # it had not started
    ],
)
def test_cancel_now(
    state: str, has_file: bool, is_short: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Written after scancel: a job that Slurm does not cancel must keep its grace period."""
    scontrol(tmp_path, monkeypatch, f"echo JobState={state} Restarts=1; echo WorkDir={tmp_path}")
    scancel = tmp_path / "bin/scancel"
    scancel.write_text('#!/bin/sh\necho "$*" >>calls; exit $CODE\n')
    scancel.chmod(0o755)
    monkeypatch.chdir(tmp_path)
    for attempt in (0, 1, 2):
        (tmp_path / f"slurmray-runs/7-{attempt}").mkdir(parents=True)
    file = tmp_path / "slurmray-runs/7-1/cancel-now"
    if has_file:
        file.touch()
    monkeypatch.setenv("CODE", "1")
    with pytest.raises(SlurmError, match="scancel: "):
        slurmray.Job(7).cancel(now=True)
    monkeypatch.setenv("CODE", "0")
    assert not slurmray.Job(7).cancel()
    assert (file.read_text() if has_file else "") == ""
    assert slurmray.Job(7).cancel(now=True) == is_short
    assert file.exists() == has_file
    assert not has_file or file.read_text() == "now\n"
    assert (tmp_path / "calls").read_text() == "7\n" * 3
    assert not list(tmp_path.glob("slurmray-runs/7-[02]/*"))


def test_ray_s_logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scontrol(tmp_path, monkeypatch, f"echo JobState=FAILED; echo WorkDir={tmp_path}")
    session, logs = tmp_path / "ray-logs/old", tmp_path / "slurmray-runs/7-1/logs"
    session.mkdir(parents=True)
    logs.mkdir(parents=True)
    (session / "x.log").write_text("of a subfolder")
    (tmp_path / "ray-logs/raylet.out").write_bytes(b"\xff one\n")
    assert ray_logs.archive(str(tmp_path), str(logs / "gpu-1-ray.tar.gz"))
    job = slurmray.Job(7)
    assert job.ray_logs("gpu-1") == {"raylet.out": "\ufffd one\n", "old/x.log": "of a subfolder"}
    assert job.ray_logs("gpu-1", 1) == job.ray_logs("gpu-1")
    with pytest.raises(UsageError, match=r"7-0/logs/gpu-1-ray\.tar\.gz: no such file; they are kept when"):
        job.ray_logs("gpu-1", 0)
    (logs / "gpu-2-ray.tar.gz").write_text("no archive")
    with pytest.raises(UsageError, match=r"gpu-2-ray\.tar\.gz: cannot be read: "):
        job.ray_logs("gpu-2")


def test_a_run_directory_that_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scontrol(tmp_path, monkeypatch, f"echo JobState=RUNNING; echo WorkDir={tmp_path}")
    (tmp_path / "slurmray-runs/7-0/events.jsonl").mkdir(parents=True)
    with pytest.raises(UsageError, match=r"7-0/events\.jsonl: cannot be read: "):
        slurmray.Job(7).attach_argv()


def test_a_job_that_slurm_has_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Slurm 22.05's message; there is no sacct. The log is where Slurm writes it by default, or unknown."""
    scontrol(tmp_path, monkeypatch, "echo 'slurm_load_jobs error: Invalid job id specified' >&2\nexit 1\n")
    job = slurmray.Job(7, folder=tmp_path)
    with pytest.raises(SlurmError, match="give Job the folder"):
        job.state()
    with pytest.raises(UsageError, match=r"slurm-7\.out: no such file: .* give Job the folder"):
        job.logs()
    for name, code in (("7-9", 71), ("7-10", 0), ("7-11.old", 5)):
        (tmp_path / "slurmray-runs" / name).mkdir(parents=True)
        event = event_line("end", exit_code=code, source="trainer")
        (tmp_path / "slurmray-runs" / name / "events.jsonl").write_text(event)
    (tmp_path / "slurm-7.out").write_text("text\n")
    assert job.wait() == slurmray.End("COMPLETED", 0, 0)
    assert job.logs() == "text\n"
