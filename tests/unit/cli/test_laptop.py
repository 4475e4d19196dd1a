"""Commands for jobs on another host; ssh and Slurm's commands are stand-ins."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

import slurmray
from slurmray import history

from .. import ssh
from ..programs import install
from ..test_events import event_line
from .command_line import echo_record, main

SBATCH = """pwd -P >~/sbatch; echo "$KEY" >>~/sbatch; echo "$@" >>~/sbatch; cat >~/script
echo 7"""
SQUEUE = """case "$*" in
*--jobs=*) echo "$(id -u) me" ;;
*--clusters=c2*) echo '8|8|PENDING|None|(null)' ;;
*) echo '7|7|RUNNING|None|(null)' ;;
esac"""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The home folder of the host `login`, of the profile `lab`. The current folder is tmp_path/work."""
    home = ssh.install(tmp_path, monkeypatch)
    config = tmp_path / "config.yaml"
    config.write_text("profiles: {lab: {host: login, folder: runs/a}, far: {host: nowhere}}\n")
    monkeypatch.setenv("SLURMRAY_CONFIG", str(config))
    monkeypatch.setenv("SLURMRAY_PROFILE", "lab")
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    record = echo_record("JobState=RUNNING", "Requeue=1 ExitCode=0:0", "WorkDir=$HOME/runs/a")
    install(tmp_path / "there", sbatch=SBATCH, scontrol=record, squeue=SQUEUE)
    return home


@pytest.mark.parametrize("field", ["env: {KEY: null}", "notify: {url: env:KEY, on: [end]}"])
def test_submit(
    home: Path, field: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("KEY", "it's secret")
    Path("train.py").write_text("pass\n")
    Path("job.yaml").write_text(f"sync: [train.py]\n{field}\nslurm: {{mem: 1G}}\n")
    code, out, err = main(["submit", "job.yaml"], capsys)
    assert (code, out.partition(":")[0]) == (0, "submitted job 7 on login, slurmray"), err
    assert (home / "sbatch").read_text() == f"{home}/runs/a\nit's secret\n--parsable\n"
    script = (home / "script").read_text()
    assert script == slurmray_text("job.yaml", capsys)
    assert "secret" not in script
    assert (home / "runs/a/train.py").read_text() == "pass\n"
    (run,) = history.runs()
    assert (run.host, run.folder) == ("login", f"{home}/runs/a")
    job = slurmray.submit("job.yaml", profile="lab")
    assert job.state() == "RUNNING"
    assert slurmray.Job(7, host="login").state() == "RUNNING"
    code, _, err = main(["submit", "job.yaml", "--after=7", "--profile=far"], capsys)
    assert (code, err) == (2, "--after 7: was submitted on login\n")


def slurmray_text(job: str, capsys: pytest.CaptureFixture[str]) -> str:
    code, out, _ = main(["submit", job, "--dry-run"], capsys)
    assert code == 0
    return out


def test_nothing_is_submitted_if_a_file_is_missing(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("job.yaml").write_text("sync: [no.py]\n")
    code, _, err = main(["submit", "job.yaml"], capsys)
    assert (code, err) == (2, "job.yaml:1:8: sync, item 1: no such file: no.py\n")
    code, _, err = main(["submit", "--profile=far"], capsys)
    assert (code, err) == (
        64,
        "ssh nowhere: ssh: connect to host nowhere port 22: Connection refused; try `ssh nowhere`\n",
    )
    assert {path.name for path in home.iterdir()} - {".ssh"} == {".profile"}


def test_a_job_that_is_not_remembered_is_where_jobs_are_submitted(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = home / "runs/a/slurmray-runs/9-0"
    (run / "logs").mkdir(parents=True)
    (run / "logs/gpu-1.log").write_text("of the node\n")
    (run / "events.jsonl").write_text(event_line("start", attempt=0, nodes=["gpu-1"], run_dir=str(run)))
    assert main(["logs", "9", "--node=gpu-1"], capsys) == (0, "of the node\n", "")
    (run / "logs/gpu-1.log").write_text("one\ntwo\nof the node\n")
    assert main(["logs", "9", "--node=gpu-1", "-n1"], capsys) == (0, "of the node\n", "")
    code, out, _ = main(["status", "9"], capsys)
    assert code == 0
    assert out.startswith("job 9 a: RUNNING on 1 node, head node gpu-1\n")
    assert f"\n  logs of each node: login:{run}/logs\n" in out


def test_files_come_back(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = home / "runs/a"
    for name in ("slurmray-runs/7-0/logs/gpu-1.log", "slurmray-runs/8-0/events.jsonl", "out/a b/1", "other"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("there\n")
    for path in (folder / "slurm-7.out", home / "elsewhere"):
        path.write_text("there\n")
    (folder / "out/link").symlink_to("/etc/passwd")
    history.remember(history.Run(7, "first", None, str(folder), "slurmray-runs", 1.0, 1, 0, "login"))
    newer = Path("out/newer")
    newer.parent.mkdir()
    (folder / newer).write_text("there\n")
    newer.write_text("here\n")
    os.utime(folder / newer, (1, 1))
    code, _, err = main(["fetch", "first", "out", "~/elsewhere"], capsys)
    assert code == 0, err
    assert err.splitlines()[-1] == "copied from login: slurm-7.out, slurmray-runs/7-0, out, elsewhere"
    found = sorted(str(path) for path in Path().rglob("*") if not path.is_dir())
    assert found == ["elsewhere", "out/a b/1", "out/newer", "slurm-7.out", "slurmray-runs/7-0/logs/gpu-1.log"]
    assert newer.read_text() == "here\n"
    code, _, err = main(["fetch", "7", "no"], capsys)
    assert (code, err.startswith("fetch: rsync: "), "/no" in err) == (2, True, True), err
    assert len(err.splitlines()) == 1


@pytest.mark.parametrize("verb", [["submit", "job.yaml"], ["fetch", "7"]])
def test_a_host_without_rsync(verb: list[str], home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (home / "runs/a").mkdir(parents=True)
    (home / "runs/a/slurm-7.out").touch()
    history.remember(history.Run(7, "a", None, f"{home}/runs/a", "slurmray-runs", 1.0, 1, 0, "login"))
    ssh_program, programs = home.parent / "bin/ssh", home.parent / "programs"
    ssh_program.write_text(ssh_program.read_text().replace("PATH=/usr/bin:/bin", f"PATH={programs}"))
    programs.mkdir()
    for name in ("sh", "bash"):
        (programs / name).symlink_to(f"/bin/{name}")
    (home / ".profile").write_text(f"PATH={home.parent}/there:/usr/bin:/bin\n")
    Path("job.yaml").write_text("sync: [job.yaml]\n")
    code, _, err = main(verb, capsys)
    text = "no rsync on login; load it in ~/.bashrc there, or copy the files yourself"
    assert (code, err.splitlines()[-1].partition(": ")[2]) == (2, text)


def test_files_of_this_host_stay(capsys: pytest.CaptureFixture[str]) -> None:
    history.remember(history.Run(7, "a", None, "/", "slurmray-runs", 1.0, 1, 0, None))
    assert main(["fetch", "7"], capsys) == (2, "", "job 7: was submitted here, so its files are here\n")


def test_list_before_the_first_job(capsys: pytest.CaptureFixture[str]) -> None:
    """Slurm is not asked: there is none here."""
    text = "no job was submitted with slurmray submit yet\n"
    assert main(["list"], capsys) == main(["list", "--all"], capsys) == (0, "", text)


def test_list(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One request for each host and cluster; a host that does not answer hides no job of others."""
    for number, cluster, host in ((7, None, "login"), (8, "c2", "login"), (9, None, "nowhere")):
        history.remember(history.Run(number, "a", cluster, str(home), "runs", 1.0, 1, 0, host))
    code, out, err = main(["list", "--json"], capsys)
    assert code == 0
    assert [(row["id"], row["state"], row["host"]) for row in json.loads(out)] == [
        (8, "PENDING", "login"),
        (7, "RUNNING", "login"),
    ]
    assert err.startswith("ssh nowhere: ")
    header, *lines = main(["list"], capsys)[1].splitlines()
    assert header.split() == ["JOB", "NAME", "STATE", "PHASE", "NODES", "GPUS", "HOST", "SUBMITTED"]
    assert [line.split()[5] for line in lines] == ["login", "login"]


def test_clean(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    history.remember(history.Run(9, "a", None, "/", "slurmray-runs", 1.0, 1, 0, "nowhere"))
    for number in (7, 9):  # 7 runs
        run = home / f"runs/a/slurmray-runs/{number}-0"
        (run / "logs").mkdir(parents=True)
        (run / "logs/gpu-1.log").write_text("of the node\n")
        (run / "events.jsonl").write_text(event_line("start", nodes=["gpu-1"]))
        history.remember(
            history.Run(number, "a", None, f"{home}/runs/a", "slurmray-runs", 1.0, 1, 0, "login")
        )
    code, out, err = main(["clean", "--yes", "--older-than=0"], capsys)
    assert (code, out) == (0, f"login:{run}  0.0 MB\n")
    assert err.startswith("ssh nowhere: "), "hides no other host"
    assert len(err.splitlines()) == 1
    assert [path.name for path in run.parent.iterdir()] == ["7-0"]


@pytest.mark.usefixtures("home")
@pytest.mark.parametrize("verb", ["render", "check", "submit"])
def test_folders_of_the_host_are_not_looked_for_here(capsys: pytest.CaptureFixture[str], verb: str) -> None:
    Path("job.yaml").write_text("slurm: {mem: 1G, output: /lab/logs/%j.log}\n")
    code, _, err = main([verb, "job.yaml"], capsys)
    assert (code, "/lab/logs" in err) == (0, False), err
    _, _, err = main(["render", "job.yaml", "--profile=none", "-o", "here.sh"], capsys)
    assert "/lab/logs" in err


def test_nodes_that_the_last_run_lost(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its folder on the host is a link there."""
    (home / "real/a").mkdir(parents=True)
    (home / "runs").symlink_to(home / "real")
    code, _, err = main(["submit", "--exclude-bad"], capsys)
    text = f"--exclude-bad: no job named 'slurmray' was submitted from {home}/real/a yet; leave it out\n"
    assert (code, err) == (2, text)
    assert main(["submit"], capsys)[0] == 0
    run = home / "real/a/slurmray-runs/7-0"
    run.mkdir(parents=True)
    (run / "events.jsonl").write_text(
        event_line("start", nodes=["node3"]) + event_line("node_loss", node="node3", text="gone")
    )
    code, _, err = main(["submit", "--exclude-bad"], capsys)
    assert code == 0, err
    assert "--exclude=node3, because of job 7: node3 (gone)\n" in err
    assert "--parsable --exclude=node3\n" in (home / "sbatch").read_text()
