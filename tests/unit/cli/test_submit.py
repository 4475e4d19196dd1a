"""What `slurmray submit` asks of sbatch, which is a stand-in."""

from __future__ import annotations

from pathlib import Path

import pytest

from slurmray import history

from ..programs import FORGOTTEN, OWN, install
from ..test_events import event_line
from .command_line import echo_record, main

START = event_line("start", job="41", nodes=["node1", "node2", "node3"], spares=["node4"])
LOST = "restart 1 of 3: node2: no heartbeat for 25 s; node4 takes the place of node2"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, in which job 41, named first, was submitted. Slurm has forgotten it."""
    sbatch = 'cat >/dev/null; printf "%s " "$@" >arguments; echo 42'
    install(tmp_path, sbatch=sbatch, scontrol=FORGOTTEN, squeue=FORGOTTEN)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    history.remember(history.Run(41, "first", None, str(tmp_path), "slurmray-runs", 1.0, 1, 0))
    return tmp_path


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("named", ["41", "first"])
def test_a_job_that_follows_another_starts_only_if_that_one_has_succeeded(
    capsys: pytest.CaptureFixture[str], named: str
) -> None:
    code, out, err = main(["submit", "--nodes=1", f"--after={named}", "--", "true"], capsys)
    assert (code, out.startswith("submitted job 42")) == (0, True), err
    dependencies = [word for word in Path("arguments").read_text().split() if "dependency" in word]
    assert dependencies == ["--dependency=afterok:41"]


@pytest.mark.parametrize("option", [[], ["--clusters=c1"]])
def test_a_job_cannot_follow_one_on_another_cluster(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], option: list[str]
) -> None:
    history.remember(history.Run(43, "far", "c2", str(folder), "slurmray-runs", 1.0, 1, 0))
    code, _, err = main(["submit", "--nodes=1", "--after=far", *option, "--", "true"], capsys)
    assert (code, err) == (2, "--after far: is on the cluster c2; set slurm.clusters to it\n")
    assert not Path("arguments").exists()
    assert main(["submit", "--nodes=1", "--after=far", "--clusters=c2", "--", "true"], capsys)[0] == 0
    monkeypatch.setenv("SBATCH_CLUSTERS", "c2")
    assert main(["submit", "--nodes=1", "--after=far", *option, "--", "true"], capsys)[0] == 0


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("option", "error"),
    [
        ("--set=env={KEY: null}", "env.KEY is not set in your environment; export it first\n"),
        ("--array=0-1", "slurm.array makes several jobs: render the script, and submit it with sbatch\n"),
    ],
)
def test_doctor_submits_no_job_that_is_certain_to_fail(
    option: str, error: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, err = main(["doctor", "--nodes=1", option], capsys)
    assert (code, err) == (2, error)


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("run_dir", "expected"),
    [
        ("$SCRATCH/runs/${SLURM_JOB_ID}$$", "/scratch/me/runs/42$"),
        ("$NOT_SET/runs", "$NOT_SET/runs"),
        ("~/runs", "~/runs"),
    ],
)
def test_a_run_directory_with_variables(
    run_dir: str, expected: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Commands look where the job's batch script makes it."""
    monkeypatch.setenv("SCRATCH", "/scratch/me")
    Path("job.yaml").write_text(f"run_dir: {run_dir}\n")
    code, _, err = main(["submit", "job.yaml"], capsys)
    assert code == 0, err
    assert history.runs()[0].run_dir == expected


def submit_again(capsys: pytest.CaptureFixture[str], *options: str) -> tuple[list[str], str]:
    """Submit the job without bad nodes; return the options --exclude of sbatch, and the line about job 41."""
    code, out, err = main(["submit", "--job-name=first", "--exclude-bad", *options, "--", "true"], capsys)
    assert (code, out.startswith("submitted job 42")) == (0, True), err
    history.remember(history.runs()[1])  # job 41 again
    excluded = [word for word in Path("arguments").read_text().split() if "exclude" in word]
    (line,) = (line for line in err.splitlines() if "41" in line)
    return excluded, line


def record(folder: Path, *events: str) -> None:
    (folder / "slurmray-runs/41-0").mkdir(parents=True, exist_ok=True)
    (folder / "slurmray-runs/41-0/events.jsonl").write_text("".join([START, *events]))


def test_nodes_that_the_last_run_lost_are_excluded(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    again = {"nodes": ["node1", "node4", "node3"], "spares": [], "failed": ["node2"], "text": LOST}
    restart = event_line("restart", restart=1, **again)
    lost = event_line("node_loss", node="node3", text="gone\n\x1b[2J" + "x" * 1000)
    record(folder, restart, lost)
    excluded, line = submit_again(capsys)
    assert excluded == ["--exclude=node[2-3]"]
    assert line.startswith(f"--exclude=node[2-3], because of job 41: node2 ({LOST}); node3 (gone \\x1b[2Jxxx")
    assert len(line) < 400
    assert submit_again(capsys, "--exclude=node[7-9]")[0] == ["--exclude=node[7-9],node[2-3]"]


def test_nodes_with_the_same_reason(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lost = {"exit_code": 71, "source": "slurmray", "kind": "node_lost", "node": "node[2-3]"}
    record(folder, event_line("end", text="failed (71 node lost): node2 and node3: no heartbeat", **lost))
    assert submit_again(capsys)[1] == "--exclude=node[2-3], because of job 41: node[2-3] (no heartbeat)"


@pytest.mark.attack("a damaged events.jsonl", inputs=1)
def test_more_bad_nodes_than_a_command_takes(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names = [f"n{number}x" for number in range(30_000)]
    record(folder)
    with (folder / "slurmray-runs/41-0/events.jsonl").open("w") as file:
        file.write(event_line("start", nodes=names, spares=[]))
        file.write(event_line("restart", restart=1, nodes=names[:1], spares=[], failed=names, text=LOST))
    code, out, err = main(["submit", "--job-name=first", "--exclude-bad", "--", "true"], capsys)
    assert (code, out) == (64, "")
    assert err.splitlines()[-1] == "sbatch: cannot be started: Argument list too long"


def test_a_run_without_bad_nodes(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    expected: tuple[list[str], str] = ([], "--exclude-bad: job 41 lost no node and set none aside")
    assert submit_again(capsys) == expected, "it has no events"
    record(folder)
    assert submit_again(capsys) == expected


@pytest.mark.parametrize("change", [{"name": "other"}, {"folder": "/elsewhere"}, {"host": "login"}])
def test_no_earlier_run_in_this_folder(
    change: dict[str, str], folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (run,) = history.runs()
    history.path().unlink()
    history.remember(run._replace(**change))  # type: ignore[arg-type]
    code, _, err = main(["submit", "--job-name=first", "--exclude-bad"], capsys)
    text = f"--exclude-bad: no job named 'first' was submitted from {folder} yet; leave it out\n"
    assert (code, err) == (2, text)
    assert not Path("arguments").exists()


def test_nodes_cannot_be_added_to_a_file(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record(folder, event_line("node_loss", node="node3", text="gone"))
    code, _, err = main(["submit", "--job-name=first", "--exclude-bad", "--exclude=./bad.txt"], capsys)
    assert (code, err) == (2, "--exclude-bad: slurm.exclude is a file, ./bad.txt; add node3 to it\n")


def test_groups_that_exclude_different_nodes(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record(folder, event_line("node_loss", node="node3", text="gone"))
    text = "slurm: {groups: [{name: a, exclude: x1}, {name: b, exclude: %s}]}\nname: first\nrun: ['true']\n"
    Path("job.yaml").write_text(text % "x2")
    code, _, err = main(["submit", "job.yaml", "--exclude-bad"], capsys)
    assert (code, err) == (
        2,
        "--exclude-bad: the groups exclude different nodes; add node3 to each exclude\n",
    )
    Path("job.yaml").write_text(text % "x1")
    code, _, err = main(["submit", "job.yaml", "--exclude-bad"], capsys)
    assert (code, "--exclude=x1,node3" in Path("arguments").read_text()) == (0, True), err


def test_another_user_s_job(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record(folder, event_line("node_loss", node="node3", text="gone"))
    install(folder, squeue="echo 4294967294 bob")
    code, _, err = main(["submit", "--job-name=first", "--exclude-bad"], capsys)
    assert (code, err) == (2, "job 41 is bob's, not yours\n")


@pytest.mark.parametrize(
    ("end", "code", "expected"),
    [
        ("COMPLETED 0:0", 0, 0),
        ("FAILED 3:0", 3, 3),
        ("CANCELLED 0:0", 0, 1),  # before its start
        ("FAILED 0:9", 1, 137),
        ("TIMEOUT 0:0", 0, 1),
        ("", 3, 3),  # Slurm has forgotten it
        ("", 0, 0),
    ],
)
@pytest.mark.parametrize("option", ["", "--json"])
def test_a_job_whose_end_sbatch_waits_for(
    folder: Path, capsys: pytest.CaptureFixture[str], option: str, end: str, code: int, expected: int
) -> None:
    """Codes of sbatch as Slurm 22.05 to 26.05 return them."""
    state, _, ended = end.partition(" ")
    install(folder, sbatch=f"cat >/dev/null; echo 42; exit {code}")
    if end:
        lines = f"JobState={state} Reason=None", f"Requeue=1 Restarts=0 ExitCode={ended}", f"WorkDir={folder}"
        install(folder, scontrol=echo_record(*lines), squeue=OWN)
    argv = ["submit", "--nodes=1", *filter(None, [option]), "--", "true"]
    assert main([*argv[:2], "--set=slurm.wait=true", *argv[2:]], capsys)[0] == expected
    assert main(argv, capsys)[0] == 0, "nothing has waited"


@pytest.mark.parametrize(("states", "code", "expected"), [("CC", 0, 0), ("CF", 3, 3), ("CX", 0, 1)])
def test_a_sweep_whose_end_sbatch_waits_for(
    folder: Path, capsys: pytest.CaptureFixture[str], states: str, code: int, expected: int
) -> None:
    """sbatch returns the highest code of its tasks."""
    names = {"C": "COMPLETED", "F": "FAILED", "X": "CANCELLED"}
    rows = "; ".join(f"echo '{43 + n}|42_{n}|{names[each]}|None|(null)'" for n, each in enumerate(states))
    squeue = f'case "$*" in *%U*) {OWN};; *) {rows};; esac'
    install(folder, sbatch=f"cat >/dev/null; echo 42; exit {code}", squeue=squeue)
    sweep = ["--set=slurm.wait=true", "--set=sweep={lr: [1, 2]}"]
    assert main(["submit", "--nodes=1", *sweep, "--", "true"], capsys)[0] == expected


@pytest.mark.parametrize("option", ["--follow", "--dry-run", "--test-only"])
def test_options_that_print_a_text_take_no_json(option: str, capsys: pytest.CaptureFixture[str]) -> None:
    message = f"slurmray submit: {option} prints a "
    code, out, err = main(["submit", "--nodes", "2", option, "--json"], capsys)
    assert (code, out, err.startswith(message)) == (2, "", True)
