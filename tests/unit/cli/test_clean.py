"""slurmray clean, with a squeue of this test."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest

import slurmray
from slurmray import history
from slurmray.agent import script_parts

from .. import ssh
from ..programs import install
from ..test_events import event_line
from .command_line import main

DAY = 86400


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of run directories: of job 7 two attempts, of 8 one that is young, of 9 one that runs."""
    squeue = "echo '9|9|RUNNING|None|(null)'; echo '7|7|COMPLETED|None|(null)'"
    monkeypatch.setenv("PATH", f"{install(tmp_path / 'bin', squeue=squeue)}:{os.environ['PATH']}")
    runs = tmp_path / "runs"
    for name, days in {"7-0": 40, "7-1": 35, "8-0": 1, "9-0": 50, "70-0": 50, "7-x": 50, "10-0": 50}.items():
        write(runs / name, days)
    for number in (7, 8, 9):
        history.remember(history.Run(number, "a", None, str(tmp_path), "runs", 1.0, 1, 0))
    history.remember(history.Run(10, "a", "other-cluster", str(tmp_path), "runs", 1.0, 1, 0))
    return runs


def write(run: Path, days: float) -> None:
    (run / "logs").mkdir(parents=True)
    (run / "logs/node1.log").write_bytes(bytes(3_000_000))
    logs = ("node1.samples.jsonl", "service-judge.log", "service-judge@node1.log", "stall-1/node1.txt")
    for folder in ("metrics", "logs/stall-1"):
        (run / folder).mkdir()
    files = (*(f"logs/{name}" for name in logs), "metrics/ray.json", "metrics/slurmray.prom", "usage.json")
    for name in ("mark", "cancel-now", "prepared-model", *files):
        (run / name).touch()
    event = json.loads(event_line("start", nodes=["node1"]))
    (run / "events.jsonl").write_text(json.dumps({**event, "time": time.time() - days * DAY}))


def names(runs: Path) -> list[str]:
    return sorted(path.name for path in runs.iterdir())


ALL = ["10-0", "7-0", "7-1", "7-x", "70-0", "8-0", "9-0"]


def test_only_old_ones_of_remembered_jobs_that_have_ended(
    runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = main(["clean", "--dry-run"], capsys)
    assert (code, out, err) == (0, f"{runs}/7-0  3.0 MB\n{runs}/7-1  3.0 MB\n", "")
    code, out, err = main(["clean"], capsys)
    assert (code, err) == (2, "slurmray clean: would remove these; --yes does it\n")
    assert names(runs) == ALL
    assert main(["clean", "--older-than=37", "--yes"], capsys) == (0, f"{runs}/7-0  3.0 MB\n", "")
    assert names(runs) == ["10-0", "7-1", "7-x", "70-0", "8-0", "9-0"]
    assert main(["clean", "--yes", "--older-than=0"], capsys)[0] == 0
    assert names(runs) == ["10-0", "7-x", "70-0", "9-0"]
    code, out, err = main(["clean", "--yes"], capsys)
    assert (code, out, err) == (0, "", "no run directory of a job that ended 30 days ago or earlier\n")


def add_event(run: Path, name: str, days: float, **fields: object) -> None:
    event = {**json.loads(event_line(name, **fields)), "time": time.time() - days * DAY}
    with (run / "events.jsonl").open("a") as file:
        file.write("\n" + json.dumps(event))


@pytest.mark.parametrize(("ended", "left"), [(0, True), (29.9, True), (30.1, False), (35, False)])
def test_the_end_of_a_job_counts(
    runs: Path, capsys: pytest.CaptureFixture[str], ended: float, left: bool
) -> None:
    """Not its beginning: it may have run for weeks."""
    add_event(runs / "7-0", "end", ended, exit_code=0)
    assert main(["clean", "--yes"], capsys)[0] == 0
    assert (runs / "7-0").exists() == left
    assert not (runs / "7-1").exists()


def test_logs_of_all_nodes_that_took_part(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Spare ones, and those of an attempt that began again."""
    add_event(runs / "7-0", "start", 39, nodes=["node2"], spares=["node3"])
    for node in ("node2", "node3", "node4"):
        (runs / f"7-0/logs/{node}.log").write_bytes(bytes(2_000_000))
    assert main(["clean", "--dry-run"], capsys)[1].startswith(f"{runs}/7-0  7.0 MB\n")
    assert main(["clean", "--yes"], capsys)[0] == 0
    assert names(runs / "7-0/logs") == ["node4.log"]


def test_a_host_that_does_not_answer(
    runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of the others the folders are removed; where there are none, the error is all."""
    shutil.copytree(tmp_path / "bin", tmp_path / "slurm")
    (tmp_path / "laptop").mkdir()
    ssh.install(tmp_path / "laptop", monkeypatch)
    monkeypatch.setenv("PATH", f"{tmp_path}/slurm:{os.environ['PATH']}")
    history.remember(history.Run(5, "a", None, "/gone", "runs", 1.0, 1, 0, host="nowhere"))
    code, out, err = main(["clean", "--yes"], capsys)
    assert (code, out) == (0, f"{runs}/7-0  3.0 MB\n{runs}/7-1  3.0 MB\n")
    assert "nowhere" in err
    code, out, err = main(["clean", "--yes"], capsys)
    assert (code, out) == (64, "")
    assert "nowhere" in err
    assert "no run directory" not in err


def test_a_job_that_runs_on_another_cluster_with_the_same_home(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It was submitted there, to the default cluster, so squeue here does not know it."""
    scontrol = "echo 'Configuration data'; echo 'ClusterName             = here'"
    install(tmp_path / "bin", scontrol=scontrol)
    (runs / "7-0/mark").write_text("abc\nthere\n")
    (runs / "7-1/mark").write_text("abc\nhere\n")
    (runs / "8-0/mark").write_text("abc\nthere\n")
    add_event(runs / "8-0", "end", 1, exit_code=0)
    assert main(["clean", "--yes", "--older-than=0"], capsys)[0] == 0
    assert names(runs) == ["10-0", "7-0", "7-x", "70-0", "9-0"]


def test_archives_of_images(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Those that no job has used lately. Other files there are not slurmray's."""
    images = runs / "images"
    images.mkdir()
    days = {"a" * 64 + ".tar": 40, "b" * 64 + ".tar": 1, "c" * 64 + ".tar.slurmray-7-0-n": 40, "mine.tar": 40}
    for name, age in days.items():
        (images / name).write_bytes(bytes(1_000_000))
        os.utime(images / name, (0, time.time() - age * DAY))
    assert main(["clean", "--dry-run"], capsys)[1].startswith(f"{images}  2.0 MB\n")
    assert names(images) == sorted(days)
    assert main(["clean", "--yes"], capsys)[0] == 0
    assert names(images) == ["b" * 64 + ".tar", "mine.tar"]
    assert str(images) not in main(["clean", "--dry-run"], capsys)[1]


def test_a_dry_run_removes_no_empty_folder(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.rmtree(runs / "7-0/logs")
    (runs / "7-0/logs").mkdir()
    assert main(["clean", "--dry-run"], capsys)[0] == 0
    assert (runs / "7-0/logs").is_dir()


@pytest.mark.parametrize("state", ["PENDING", "REQUEUED", "COMPLETING", "SUSPENDED"])
def test_a_job_that_waits_for_another_attempt_keeps_its_run_directories(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], state: str
) -> None:
    install(tmp_path / "bin", squeue=f"echo '7|7|{state}|None|(null)'")
    assert main(["clean", "--yes", "--older-than=0"], capsys)[0] == 0
    assert names(runs) == ["10-0", "7-0", "7-1", "7-x", "70-0"]


@pytest.mark.parametrize("state", ["RUNNING", "COMPLETED"])
def test_tasks_of_a_sweep(runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], state: str) -> None:
    """Those of a sweep that has not ended stay."""
    tasks = ["8_0-0", "8_12-1", "8_3-0.20261101-120000"]
    for name in (*tasks, "80_1-0"):
        write(runs / name, 40)
    squeue = f"echo '81|8_0|COMPLETED|None|(null)'; echo '8|8_[3-5]|{state}|None|(null)'"
    install(tmp_path / "bin", squeue=squeue)
    assert main(["clean", "--yes"], capsys)[0] == 0
    kept = {*tasks[:2]} if state == "RUNNING" else set()
    assert {name for name in names(runs) if "_" in name} == {*kept, "80_1-0"}


def test_what_others_wrote_stays(runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (runs / "7-0/logs/train.log").touch()
    (runs / "7-0/checkpoint").mkdir()
    (runs / "7-0/checkpoint/events.jsonl").write_text("of the trainer")
    (tmp_path / "elsewhere").mkdir()
    write(tmp_path / "elsewhere/7-2", 50)
    (runs / "7-2").symlink_to(tmp_path / "elsewhere/7-2")
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious/node1.log").touch()
    shutil.rmtree(runs / "7-1/logs")
    (runs / "7-1/logs").symlink_to(tmp_path / "precious")
    code, _, err = main(["clean", "--yes"], capsys)
    text = "has files that the job's programs wrote: these stay"
    assert (code, err.splitlines()) == (0, [f"{runs}/7-0: {text}", f"{runs}/7-1: {text}"])
    assert names(runs / "7-0") == ["checkpoint", "logs"]
    assert names(runs / "7-0/logs") == ["train.log"]
    assert (runs / "7-0/checkpoint/events.jsonl").exists()
    assert (tmp_path / "elsewhere/7-2/events.jsonl").exists()
    assert (tmp_path / "precious/node1.log").exists()


def test_run_directories_of_earlier_jobs_with_the_same_id(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A job has renamed them: they are of ended jobs, also while it runs. Other names are the user's."""
    aside = ["7-0.20261101-120000", "9-12.20261101-120000"]
    others = ["7-0.20261124-120000", "9-0.old", "9-0.20261101-120000.bak", "70-0.20261101-120000"]
    for name in (*aside, *others):
        write(runs / name, 1 if name == others[0] else 40)
    (tmp_path / "elsewhere").mkdir()
    write(tmp_path / "elsewhere/9", 50)
    (runs / "9-1.20261101-120000").symlink_to(tmp_path / "elsewhere/9")
    history.remember(history.Run(7, "b", None, str(tmp_path), "runs", 2.0, 1, 0))
    code, _, err = main(["clean", "--yes", "--older-than=37"], capsys)
    assert (code, err) == (0, "")
    left = set(ALL) - {"7-0"} | {*others, "9-1.20261101-120000"}
    assert names(runs) == sorted(left)
    assert (tmp_path / "elsewhere/9/events.jsonl").exists()


@pytest.mark.attack("a FIFO, a device, a link or another user's file in place of a file of the job", inputs=5)
def test_files_of_others_stay(runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = runs / "7-0"
    (run / "mark").write_text("theirs")
    os.chown(run / "mark", 65534, -1)
    (run / "heartbeat").symlink_to(tmp_path / "bin/squeue")
    (run / "prepared-folder").mkdir()
    os.mkfifo(run / "requeue-requested")
    os.chown(runs / "7-1", 65534, -1)
    (run / "logs").rename(run / "checkpoint")
    (run / "logs").symlink_to("checkpoint")
    assert main(["clean", "--yes"], capsys)[0] == 0
    kept = ["checkpoint", "heartbeat", "logs", "mark", "prepared-folder", "requeue-requested"]
    assert names(run) == kept
    assert (run / "checkpoint/node1.log").exists()
    assert {"events.jsonl", "logs", "mark"} <= set(names(runs / "7-1"))


OUTSIDE = [
    "../../precious",
    "../../../precious",
    "/tmp/precious",
    "..",
    "gpu\n1",
    "*",
    "node1/../../../precious",
]


@pytest.mark.attack("names of nodes that lead out of the run directory", inputs=1)
@pytest.mark.parametrize("name", [*OUTSIDE, "ABSOLUTE"])
def test_nothing_outside_the_run_directory_is_removed(
    name: str, runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = [tmp_path / place / "precious.log" for place in (".", "runs", "runs/7-0", "runs/8-0/logs")]
    for file in files:
        file.touch()
    name = name.replace("ABSOLUTE", str(tmp_path / "precious"))
    event = json.loads(event_line("start")) | {"nodes": [name], "time": 1}
    old = json.loads(event_line("stop")) | {"time": 1}
    (runs / "7-0/events.jsonl").write_text(f"{json.dumps(event)}\n{json.dumps(old)}\n")
    assert main(["clean", "--yes"], capsys)[0] == 0
    assert all(file.exists() for file in files)


@pytest.mark.attack("a damaged events.jsonl", inputs=1)
def test_more_names_of_nodes_than_a_command_takes(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    start = event_line("start", nodes=[*(f"n{number:0253}" for number in range(10_000)), "node1"], spares=[])
    event = json.loads(start) | {"time": 1}
    (runs / "7-0/events.jsonl").write_text(json.dumps(event))
    code, out, err = main(["clean", "--yes", "--older-than=37"], capsys)
    assert (code, out.startswith(f"{runs}/7-0  "), err) == (0, True, "")
    assert not (runs / "7-0").exists()


@pytest.mark.attack("names of nodes that lead out of the run directory", inputs=1)
def test_the_program_joins_no_names(runs: Path, tmp_path: Path) -> None:
    """Whatever it is given."""
    (tmp_path / "precious.log").touch()
    (runs / "7-0/logs/\n").touch()
    names = ["../../../precious.log", str(tmp_path / "precious.log"), "", "\n", "@", "x[$(touch gone)]"]
    names += [f"logs/{name}" for name in names]
    program = Path(slurmray.__file__).parent / "cli/clean.sh"
    done = subprocess.run(
        ["bash", "-c", program.read_text(), "bash", str(runs / "7-0"), "remove"],
        input="\n".join([*names, "logs/node1.log", ""]),
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
    )
    assert done.stdout.endswith(" stays\n"), done
    assert (tmp_path / "precious.log").exists()
    assert sorted(path.name for path in tmp_path.iterdir() if path.name != "bin") == ["precious.log", "runs"]
    assert sorted(path.name for path in (runs / "7-0/logs").iterdir()) == [
        "\n",
        "node1.samples.jsonl",
        "stall-1",
    ]


def test_a_squeue_that_fails_removes_nothing(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    install(tmp_path / "bin", squeue="exit 1")
    assert main(["clean", "--yes"], capsys)[0] == 64
    assert names(runs) == ALL


@pytest.fixture
def submitted(runs: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The script that sbatch gets; it refuses it. scontrol knows two nodes."""
    folder = runs.parent
    scontrol = 'test "$*" = "show hostnames node[1-2]" && echo "node1\nnode2"'
    sbatch = f"cat >{folder}/script; echo refused >&2; exit 1"
    install(folder / "bin", scontrol=scontrol, sbatch=sbatch)
    config = folder / "config.yaml"
    config.write_text(
        "profile: a\nprofiles: {a: {slurm: {account: mine, exclusive: true, gpus_per_node: 8, mem: 500G}, "
        "env: {KEY_OF_TRAINERS: null}}}\n"
    )
    monkeypatch.setenv("SLURMRAY_CONFIG", str(config))
    return folder / "script"


def test_nodes_are_cleaned_up_by_a_small_job(
    submitted: Path, runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, err = main(["clean", "--nodelist=node[1-2]", "--set=slurm.partition=gpu"], capsys)
    assert (code, err) == (64, "sbatch: refused: correct `slurm` in the job spec\n")
    lines = [line for line in submitted.read_text().splitlines() if line.startswith("#SBATCH")]
    options = dict(line.removeprefix("#SBATCH --").partition("=")[::2] for line in lines)
    assert {"exclusive", "mem", "gpus-per-node", "gres"} & options.keys() == set()
    wanted = {"nodes": "2", "nodelist": "node[1-2]", "account": "mine", "partition": "gpu", "time": "10"}
    assert options.items() >= wanted.items()
    assert script_parts.read_settings(submitted.read_text())["only_checks"]
    assert "KEY_OF_TRAINERS" not in submitted.read_text()
    assert names(runs) == ALL


@pytest.mark.parametrize("phase", ["leftovers", "image"])
def test_it_shows_that_nothing_was_left(
    phase: str, submitted: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = submitted.parent
    install(folder / "bin", sbatch="echo 42", squeue="")
    write(folder / "cleaned/42-0", 0)
    with (folder / "cleaned/42-0/events.jsonl").open("a") as file:
        file.write("\n" + event_line("phase", phase=phase, text="removed 1 folder of ended jobs from node1"))
    monkeypatch.setattr("slurmray.cli.clean.follow_job", lambda _: 0)
    monkeypatch.chdir(folder)
    code, _, err = main(["clean", "--nodelist=node[1-2]", "--set=run_dir=cleaned"], capsys)
    assert (code, err) == (0, "" if phase == "leftovers" else "nothing of ended jobs was left on node[1-2]\n")


def test_options_of_the_job_need_its_nodes(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = main(["clean", "--set=slurm.partition=gpu"], capsys)
    assert (code, err) == (2, "slurmray clean: --set and --profile go with --nodelist\n")
    wrong = "--set slurm.partitions: unknown field, did you mean partition?\n"
    code, _, err = main(["clean", "--nodelist=node1", "--set=slurm.partitions=gpu"], capsys)
    assert (code, err) == (2, wrong), "before Slurm is asked"
    code, _, err = main(["clean", "--nodelist=node1", "--dry-run"], capsys)
    assert (code, err) == (2, "slurmray clean: --dry-run and --yes are not for --nodelist\n")
    assert names(runs) == ALL
