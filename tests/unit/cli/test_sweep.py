"""Commands for a sweep, with stand-ins for Slurm's commands. Task 0 ended, 1 failed, 2 runs, 3 to 5 wait."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import slurmray
from slurmray import history
from slurmray.errors import SlurmError, UsageError
from slurmray.slurm.tasks import expand_tasks

from ..programs import FORGOTTEN, OWN, install
from ..test_events import event_line
from .command_line import main

SWEEP = {"lr": ["1e-6", "5e-6"], "batch": ["128", "256", "512"]}
END = {"source": "trainer", "kind": "", "node": ""}
# A row of squeue: number, name, state, reason, dependency.
ENDED = ["101|{}_0|COMPLETED|None|(null)", "102|{}_1|FAILED|NonZeroExitCode|(null)"]
RUNS = "103|{}_2|RUNNING|None|(null)"
GROUP = "100|{}_[3-5%2]|PENDING|JobArrayTaskLimit|(null)"
EACH = [f"100|{{}}_{number}|PENDING|JobArrayTaskLimit|(null)" for number in (3, 4, 5)]


def rows(*lines: str, job: int = 100) -> str:
    return "".join(f"echo '{line.format(job)}'; " for line in lines) or ":"


def squeue(folder: Path, each: str, grouped: str) -> None:
    """each, grouped: commands that print the rows with and without --array."""
    text = f'case "$*" in *%U*) {OWN};; *--array*) {each};; *) {grouped};; esac'
    install(folder / "bin", squeue=text)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, in which the sweep, job 100, was submitted."""
    squeue(tmp_path, rows(*ENDED, RUNS, *EACH), rows(*ENDED, RUNS, GROUP))
    record = (
        r"JobId=$n ArrayJobId=100 ArrayTaskId=$t JobName=lrs\n   JobState=$s ExitCode=$c\n   WorkDir="
        f"{tmp_path}"
    )
    scontrol = (
        'case "$*" in *batch_script*) exec cat script;; *100_1*|*102*) n=102 t=1 s=FAILED c=3:0;;\n'
        "*100_2*) n=103 t=2 s=RUNNING c=0:0;; *100_9*) echo 'Job 100_9 not found'; exit 1;;\n"
        "*100_*) n=100 t=4 s=PENDING c=0:0;; *) n=100 t=3-5 s=PENDING c=0:0\n"
        f'esac\nprintf "{record}\\n\\n"'
    )
    install(tmp_path / "bin", scontrol=scontrol, scancel='echo "$*" >>cancelled', sacct=":")
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:/usr/bin:/bin")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    history.remember(history.Run(100, "lrs", None, str(tmp_path), "runs", 1.0, 1, 0, None, SWEEP))
    for task, code in ((0, 0), (1, 3), (2, None)):
        run = tmp_path / f"runs/100_{task}-{int(task == 1)}"
        (run / "logs").mkdir(parents=True)
        (run / "cancel-now").touch()
        end = event_line("end", **END, exit_code=code, text=f"done: trainer exited with {code}")
        start = event_line("start", job=f"100_{task}", attempt=0, run_dir=str(run))
        (run / "events.jsonl").write_text(start + (end if code is not None else ""))
    return tmp_path


@pytest.mark.usefixtures("folder")
def test_status_lists_the_tasks_with_parameters_and_states(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = main(["status", "lrs"], capsys)
    assert (code, err) == (0, "one of them: slurmray status 100_0\n")
    waits = "waits for other tasks of the array (JobArrayTaskLimit)"
    assert out.splitlines() == [
        "job 100 lrs: 6 tasks: 1 COMPLETED, 1 FAILED, 1 RUNNING, 3 PENDING",
        "  100_0  COMPLETED  lr=1e-6 batch=128  done: trainer exited with 0",
        "  100_1  FAILED     lr=1e-6 batch=256  done: trainer exited with 3",
        "  100_2  RUNNING    lr=1e-6 batch=512",
        f"  100_3  PENDING    lr=5e-6 batch=128  {waits}",
        f"  100_4  PENDING    lr=5e-6 batch=256  {waits}",
        f"  100_5  PENDING    lr=5e-6 batch=512  {waits}",
    ]
    shown = json.loads(main(["status", "100", "--json"], capsys)[1])
    assert (shown["id"], len(shown["tasks"])) == (100, 6)
    assert shown["tasks"][4]["parameters"] == {"lr": "5e-6", "batch": "256"}
    assert (shown["tasks"][4]["job"], shown["tasks"][4]["number"]) == ("100_4", 4)


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("name", ["100_1", "102"])
def test_a_task_by_its_name_and_its_own_id(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path("script").write_text(slurmray.render(slurmray.JobSpec(sweep=SWEEP, run_dir="runs")))
    code, out, err = main(["status", name], capsys)
    assert code == 0, err
    values, first, *_, last = out.splitlines()
    assert values == "lr=1e-6 batch=256"
    assert first.startswith("job 100_1 lrs: FAILED on ")
    assert last.endswith("/runs/100_1-1/logs")
    code, out, err = main(["report", name, "-o", "page.html"], capsys)
    assert code == 0, err
    assert "done: trainer exited with 3" in Path("page.html").read_text()


@pytest.mark.usefixtures("folder")
def test_why_names_the_tasks_that_failed(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = main(["why"], capsys)
    assert (code, err) == (0, "one of them: slurmray why 100_1\n")
    assert out.splitlines()[1:] == ["  100_1  FAILED  lr=1e-6 batch=256  done: trainer exited with 3"]
    assert main(["why", "100_1"], capsys)[1].startswith("job 100_1, lrs: FAILED. done: trainer exited with 3")


@pytest.mark.usefixtures("folder")
def test_list_has_a_line_for_each_task_that_slurm_lists(capsys: pytest.CaptureFixture[str]) -> None:
    header, *lines = main(["list"], capsys)[1].splitlines()
    assert header.split() == ["JOB", "NAME", "STATE", "PHASE", "NODES", "GPUS", "SWEEP", "SUBMITTED"]
    assert [line.split()[:3] for line in lines] == [
        ["100_2", "lrs", "RUNNING"],
        ["100_[3-5%2]", "lrs", "PENDING"],
    ]
    assert "lr=1e-6 batch=512" in lines[0]
    assert [row["job"] for row in json.loads(main(["list", "--all", "--json"], capsys)[1])][:2] == [
        "100_0",
        "100_1",
    ]


def test_list_has_ended_tasks_that_slurm_has_forgotten(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    squeue(folder, ":", rows(RUNS, GROUP))
    listed = json.loads(main(["list", "--all", "--json"], capsys)[1])
    assert [(row["job"], row["state"]) for row in listed] == [
        ("100_0", "COMPLETED"),
        ("100_1", "FAILED"),
        ("100_2", "RUNNING"),
        ("100_[3-5%2]", "PENDING"),
    ]


def test_tasks_that_were_cancelled_before_their_start(folder: Path) -> None:
    squeue(folder, rows(*ENDED, RUNS, "100|{}_[3,5%2]|CANCELLED|None|(null)", "100|{}_[a|X|None|(null)"), ":")
    states = ["COMPLETED", "FAILED", "RUNNING", "CANCELLED", "UNKNOWN", "CANCELLED"]
    assert [task.state for task in slurmray.Job(100, run_dir="runs", sweep=SWEEP).tasks()] == states


def test_a_sweep_that_slurm_has_forgotten(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Ends come from the accounting, or from run directories."""
    squeue(folder, FORGOTTEN, ":")
    sacct = """case "$*" in *--jobs=100) echo '100_2|TIMEOUT'; echo '100_[3-5%2]|CANCELLED by 0';; esac"""
    install(folder / "bin", scontrol=FORGOTTEN, sacct=sacct)
    states = ["COMPLETED", "FAILED", "TIMEOUT", "UNKNOWN", "UNKNOWN", "UNKNOWN"]
    assert [task.state for task in slurmray.Job(100, run_dir="runs", sweep=SWEEP).tasks()] == states
    assert "1 COMPLETED, 1 FAILED, 1 TIMEOUT, 3 UNKNOWN" in main(["status"], capsys)[1]
    listed = json.loads(main(["list", "--all", "--json"], capsys)[1])
    assert [row["state"] for row in listed][:2] == ["COMPLETED", "FAILED"]


def test_the_accounting_knows_better_than_events(folder: Path) -> None:
    """A task at its time limit has recorded that Slurm stopped it: the accounting has TIMEOUT. Slurm wins."""
    run = folder / "runs/100_2-0/events.jsonl"
    run.write_text(run.read_text() + event_line("stop") + event_line("end", **{**END, "source": "slurm"}))
    tasks = slurmray.Job(100, run_dir="runs", sweep=SWEEP).tasks
    squeue(folder, FORGOTTEN, ":")
    assert tasks()[2].state == "CANCELLED", "by its events"
    sacct = "echo '100_1|NODE_FAIL'; echo '100_2|TIMEOUT'; echo '1100_0|FAILED'"
    install(folder / "bin", sacct=sacct)
    assert [task.state for task in tasks()][:3] == ["COMPLETED", "NODE_FAIL", "TIMEOUT"]
    squeue(folder, rows("103|{}_2|COMPLETING|None|(null)"), ":")
    assert [task.state for task in tasks()][:3] == ["COMPLETED", "NODE_FAIL", "COMPLETING"]


def test_the_accounting_is_asked_only_if_it_is_needed(folder: Path) -> None:
    """It answers slowly, and slurmctld knows all tasks of a sweep for some minutes."""
    install(folder / "bin", sacct=f"touch {folder}/asked")
    tasks = slurmray.Job(100, run_dir="runs", sweep=SWEEP).tasks
    assert [task.number for task in tasks()] == [0, 1, 2, 3, 4, 5]
    assert not (folder / "asked").exists()
    squeue(folder, rows(RUNS), rows(RUNS))
    assert [task.state for task in tasks()] == ["COMPLETED", "FAILED", "RUNNING", *["UNKNOWN"] * 3]
    assert (folder / "asked").exists()


def test_the_last_line_and_the_reason_of_a_task(folder: Path) -> None:
    """The last of several ends counts; a task that has none has no text. Numbers are in their order."""
    run = folder / "runs/100_1-1/events.jsonl"
    run.write_text(
        run.read_text() + event_line("end", **END, exit_code=5, text="done: trainer exited with 5")
    )
    tasks = slurmray.Job(100, run_dir="runs", sweep=SWEEP).tasks()
    assert [task.text.rpartition(" ")[2] for task in tasks] == ["0", "5", "", "", "", ""]
    assert [bool(task.reason) for task in tasks] == [False, False, False, True, True, True]
    names = [f"100|100_{number}|PENDING|Resources|(null)" for number in (10, 9, 2)]
    squeue(folder, "; ".join(f"echo '{name}'" for name in (*names, "7|1100_1|RUNNING|None|(null)")), ":")
    job = slurmray.Job(100, run_dir="none", sweep={"lr": [str(number) for number in range(11)]})
    assert [task.number for task in job.tasks()] == list(range(11))


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ("100_3", ["100_3"]),
        ("100_[3-5%2]", ["100_3", "100_4", "100_5"]),
        ("100_[0,7]", ["100_0", "100_7"]),
        ("1100_3", []),
        ("100_12345678", []),
        ("100", []),
    ],
)
def test_tasks_in_a_name_of_squeue(names: str, expected: list[str]) -> None:
    assert expand_tasks(100, names) == expected


def test_a_script_that_was_submitted_with_sbatch(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The parameters are in the script. Its array may be a part of the sweep."""
    history.path().unlink()
    (folder / "script").write_text(slurmray.render(slurmray.JobSpec(sweep=SWEEP, run_dir="runs")))
    squeue(folder, rows(ENDED[1], RUNS), ":")
    (folder / "runs/100_0-0").rename(folder / "runs/99_0-0")
    lines = main(["status", "100"], capsys)[1].splitlines()
    assert [line.split()[0] for line in lines[1:]] == ["100_1", "100_2"]
    assert lines[2].endswith("lr=1e-6 batch=512")
    (folder / "script").write_text((folder / "script").read_text().replace('"128"', '{"lr": 1}'))
    assert main(["status", "100"], capsys)[1].splitlines()[2].endswith("RUNNING")


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("verb", ["logs", "report", "attach", "dashboard"])
def test_commands_for_one_task(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = main([verb, "100"], capsys)
    assert (code, err.strip()) == (2, "job 100 is an array: name one of its tasks, e.g. 100_0")
    with pytest.raises(UsageError, match="name one of its tasks"):
        slurmray.Job(100).state()
    assert slurmray.Job(100, task=2).state() == "RUNNING"
    with pytest.raises(SlurmError, match="job 100_9: unknown to Slurm"):
        slurmray.Job(100, task=9).state()


def test_cancel_all_tasks_or_one(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cancel", "100_2"], capsys)[2] == "cancelled job 100_2, lrs\n"
    assert history.cancelled_at(100, 2, None, None)
    assert history.cancelled_at(100, 4, None, None) is None
    assert main(["cancel", "lrs", "--now"], capsys)[2] == "cancelled job 100, lrs\n"
    assert history.cancelled_at(100, 4, None, None)
    assert (folder / "cancelled").read_text() == "100_2\n100\n"


@pytest.mark.usefixtures("folder")
def test_submit(capsys: pytest.CaptureFixture[str]) -> None:
    install(Path("bin"), sbatch='cat >script; echo "$*" >arguments; echo 200')
    Path("job.yaml").write_text("name: b\nsweep: {lr: [1e-6, 5e-6]}\nslurm: {array: '%1'}\nrun: echo $lr\n")
    code, out, err = main(["submit", "job.yaml", "--after", "lrs"], capsys)
    assert code == 0, err
    assert out.startswith("submitted job 200, b: 2 tasks of 1 node, ")
    assert "follow it with: slurmray status 200" in err
    assert Path("arguments").read_text().split()[1:] == [
        "--dependency=afterok:100",
        "--kill-on-invalid-dep=yes",
    ]
    assert "#SBATCH --array=0-1%1\n" in Path("script").read_text()
    assert history.runs()[0].sweep == {"lr": ["1e-6", "5e-6"]}
    for option, error in (
        ("--follow", "each task of a sweep has its own log"),
        ("--exclude-bad", "is a sweep"),
    ):
        code, _, err = main(["submit", "job.yaml", option], capsys)
        assert (code, error in err) == (2, True)
    code, _, err = main(["render", "job.yaml"], capsys)
    assert "\n  task 0: lr=1e-6\n  task 1: lr=5e-6\n" in err
