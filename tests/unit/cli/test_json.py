"""What --json prints: docs/guides/jobs.md has the fields."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from slurmray import history
from slurmray.diagnosis.exit_codes import EXIT_CODES
from slurmray.errors import ExitCode, Problem

from ..programs import install
from ..test_events import event_line
from .command_line import main, run

JOB = "name: small\nslurm: {nodes: 2}\nrun: [python3, train.py]\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with stand-ins of Slurm's commands: job 41 runs, 40 has failed, 42 is bob's."""
    texts = {
        "sbatch": "echo sbatch: Job 5 to start at 2026-01-01T00:00:00 >&2; cat >/dev/null",
        "scontrol": f"""[ "$1 $2" = "show job" ] || exit 1
            echo "JobId=$3 JobName=a"
            case "$3" in
            40) echo "   JobState=FAILED ExitCode=1:0" ;;
            *) echo "   JobState=RUNNING ExitCode=0:0" ;;
            esac
            echo "   WorkDir={tmp_path}"
            echo "   StdOut={tmp_path}/log\"""",
        "squeue": 'case "$*" in *=42*) echo "12345 bob";; *) echo "$(id -u) me";; esac',
        "scancel": f'echo "$@" >>{tmp_path}/cancelled',
    }
    monkeypatch.setenv("PATH", f"{install(tmp_path / 'bin', **texts)}:/usr/bin:/bin")
    monkeypatch.chdir(tmp_path)
    run = tmp_path / "slurmray-runs/41-0"
    (run / "logs").mkdir(parents=True)
    (run / "events.jsonl").write_text(event_line("start", job="41", nodes=["node1", "node2"], attempt=0))
    (run / "logs/node1.log").write_text("of node1\n")
    (run / "logs/service-judge@node2.log").write_text("of the judge\n")
    for number in (40, 41):
        history.remember(history.Run(number, "a", None, str(tmp_path), "slurmray-runs", time.time(), 2, 0))
    return tmp_path


def printed(argv: list[str], capsys: pytest.CaptureFixture[str], code: int = 0) -> list[Any]:
    """The values that a command prints, one a line; nothing on stderr."""
    found, out, err = main([*argv, "--json"], capsys)
    assert (found, err) == (code, "")
    return [json.loads(line) for line in out.splitlines()]


@pytest.mark.usefixtures("folder")
def test_check(capsys: pytest.CaptureFixture[str]) -> None:
    Path("job.yaml").write_text("name: small\nslurm: {nodes: 2}\nrun: torchrun train.py\n")
    (found,) = printed(["check", "job.yaml"], capsys)
    assert set(found) == {"is_valid", "mistakes", "name", "summary", "remarks", "slurm"}
    assert (found["is_valid"], found["mistakes"], found["name"]) == (True, [], "small")
    assert found["summary"].startswith("2 nodes, ")
    assert "torchrun" in found["remarks"][0]
    assert found["slurm"] == "Job 5 to start at 2026-01-01T00:00:00"


@pytest.mark.usefixtures("current_folder")
def test_check_without_slurm(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/none")
    assert printed(["check", "--nodes", "2"], capsys)[0]["slurm"] == ""


@pytest.mark.usefixtures("folder")
def test_mistakes(capsys: pytest.CaptureFixture[str]) -> None:
    Path("a:b.yaml").write_text("nam: x\nservices:\n  - {name: a, run: b, ready: {timeout: soon}}\n")
    (found,) = printed(["check", "a:b.yaml", "--mem", "lots"], capsys, ExitCode.USAGE)
    assert (found["is_valid"], found["name"], found["summary"], found["remarks"]) == (False, "", "", [])
    by_path = {tuple(mistake["path"]): mistake for mistake in found["mistakes"]}
    assert len(by_path) == len(found["mistakes"]) == 3
    name = by_path["nam",]
    assert (name["file"], name["line"], name["column"]) == ("a:b.yaml", 1, 1)
    assert "did you mean name?" in name["message"]
    timeout = by_path["services", 0, "ready", "timeout"]
    assert (timeout["line"], timeout["column"]) == (3, 40)
    option = by_path["slurm", "mem"]
    assert (option["file"], option["line"], option["column"]) == ("--mem", None, None)


def test_more_mistakes_than_lines(capsys: pytest.CaptureFixture[str], current_folder: Path) -> None:
    (current_folder / "job.yaml").write_text("env:\n" + "".join(f"  {number}A: x\n" for number in range(30)))
    assert len(printed(["check", "job.yaml"], capsys, ExitCode.USAGE)[0]["mistakes"]) == 30


def test_the_place_of_a_problem() -> None:
    assert Problem("a\nb:1:2", "text", ("x", "[key]")).as_dict() == {
        "file": "a\nb",
        "line": 1,
        "column": 2,
        "path": ["x"],
        "message": "text",
    }
    for where in ("", "stdin", "--set a.b", "job.yaml:12", "a:1:x"):
        found = Problem(where, "text").as_dict()
        assert (found["file"], found["line"], found["column"], found["path"]) == (where, None, None, [])


@pytest.mark.usefixtures("folder")
def test_check_still_fails_for_other_reasons(capsys: pytest.CaptureFixture[str]) -> None:
    argv = ["check", "--nodes", "2", "--env", "NOT_SET", "--json"]
    assert main(argv, capsys) == (2, "", "env.NOT_SET is not set in your environment; export it first\n")


@pytest.mark.usefixtures("folder")
def test_render(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    for name in ("small", "large"):
        Path(f"{name}.yaml").write_text(JOB.replace("small", name))
    found = printed(["render", "small.yaml", "large.yaml"], capsys)
    assert [(row["path"], row["name"]) for row in found] == [
        (str(folder / "small.sh"), "small"),
        (str(folder / "large.sh"), "large"),
    ]
    assert all(set(row) == {"path", "name", "summary"} for row in found)
    # Hints stay on stderr.
    code, out, err = main(["render", "large.yaml", "-o", "small.sh", "--env", "NOT_SET", "--json"], capsys)
    assert (code, json.loads(out)["path"]) == (0, str(folder / "small.sh"))
    assert "env.NOT_SET is not set" in err
    assert "was the script of small.yaml before" in err
    assert "next" not in err
    assert main(["render", "small.yaml", "-o", "-", "--json"], capsys)[:2] == (2, "")
    assert main(["render", "none.yaml", "--json"], capsys)[:2] == (2, "")


def test_report(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    path = str(folder / "slurmray-41.html")
    assert printed(["report", "41"], capsys) == [{"id": 41, "task": None, "path": path}]
    assert Path(path).stat().st_size > 1000
    assert main(["report", "41", "-o", "-", "--json"], capsys)[:2] == (2, "")


def test_cancel(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    assert printed(["cancel", "40", "41"], capsys) == [
        {"id": 40, "task": None, "is_cancelled": False, "states": ["FAILED"]},
        {"id": 41, "task": None, "is_cancelled": True, "states": ["RUNNING"]},
    ]
    assert (folder / "cancelled").read_text() == "41\n"
    # The output says what was done before an error.
    code, out, err = main(["cancel", "41", "42", "--json"], capsys)
    assert (code, err) == (2, "job 42 is bob's, not yours\n")
    assert json.loads(out)["id"] == 41


def test_logs(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    (folder / "log").write_bytes(b"a\nb\xff\n10 %\r20 %\r\n\x1b[31mc")
    lines = ["a", "b\ufffd", "20 %", "\x1b[31mc"]
    same = {"id": 41, "task": None, "source": "log"}
    assert printed(["logs", "41"], capsys) == [{**same, "lines": lines, "is_all": True}]
    assert printed(["logs", "41", "-n", "2"], capsys) == [{**same, "lines": lines[-2:], "is_all": False}]
    assert printed(["logs", "41", "-n", "4"], capsys)[0]["is_all"]
    (found,) = printed(["logs", "41", "--node", "node1"], capsys)
    assert found == {**same, "source": "log of node1", "lines": ["of node1"], "is_all": True}
    (found,) = printed(["logs", "41", "--service", "judge"], capsys)
    assert (found["source"], found["lines"]) == ("log of judge", ["of the judge"])
    for options in (["-f"], ["--ray"], ["--node", "none"]):
        assert main(["logs", "41", *options, "--json"], capsys)[:2] == (2, "")
    (folder / "log").unlink()
    code, out, err = main(["logs", "41", "--json"], capsys)
    assert (code, json.loads(out)["lines"], json.loads(out)["is_all"]) == (0, [], True)
    assert "no log yet" in err


def test_a_log_that_is_not_read_to_its_beginning(
    capsys: pytest.CaptureFixture[str], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("slurmray.cli.logs.LAST_BYTES", 4)
    (folder / "log").write_text("a line\nend\n")
    (found,) = printed(["logs", "41", "-n", "9"], capsys)
    assert (found["lines"], found["is_all"]) == (["end"], False)


def test_explain(capsys: pytest.CaptureFixture[str]) -> None:
    (codes,) = printed(["explain"], capsys)
    assert [row["name"] for row in codes] == [f"{code} {code.name.lower()}" for code in ExitCode]
    lost = EXIT_CODES[ExitCode.NODE_LOST]
    expected = {"name": "71 node_lost", "text": lost.meaning, "cause": lost.cause, "fix": lost.fix}
    for text in ("71", "NODE_LOST", "71:0"):
        assert printed(["explain", text], capsys) == [[expected]]
    assert printed(["explain", "timeout"], capsys)[0][0]["name"] == "TIMEOUT"
    (found,) = printed(["explain", "x\nOSError: [Errno 28] No space left on device: '/ckpt'"], capsys)
    assert found[0]["text"] == "OSError: [Errno 28] No space left on device: '/ckpt'"
    assert found[0]["cause"]
    assert main(["explain", "nonsense", "--json"], capsys)[:2] == (2, "")


@pytest.mark.parametrize("given", ["71\n", "  node_lost \n", "TIMEOUT\n", "0:15"])
def test_explain_takes_a_code_from_stdin(given: str) -> None:
    done = run("explain", "-", stdin=given)
    assert (done.returncode, done.stdout, done.stderr) == (0, run("explain", given.strip()).stdout, "")


@pytest.mark.usefixtures("folder")
def test_init(capsys: pytest.CaptureFixture[str]) -> None:
    before = sorted(path.name for path in Path().iterdir())
    (examples,) = printed(["init"], capsys)
    assert examples["examples"]["verl"]
    (found,) = printed(["init", "verl", "--nodes", "4", "-o", "mine.yaml"], capsys)
    files = found["files"]
    assert "nodes: 4" in files["mine.yaml"]
    Path("script.sh").write_text("#!/bin/bash\n#SBATCH --nodes=3\nsrun ray start --head\npython train.py\n")
    code, out, err = main(["init", "--from", "script.sh", "--json"], capsys)
    assert (code, list(json.loads(out)["files"])) == (0, ["job.yaml"])
    assert err
    assert sorted(path.name for path in Path().iterdir()) == sorted([*before, "script.sh"])
    # The same as without --json.
    main(["init", "verl", "--nodes", "4", "-o", "mine.yaml"], capsys)
    assert {name: Path(name).read_text() for name in files} == files


def test_status_says_how_busy_the_nodes_are(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    (found,) = printed(["status", "41"], capsys)
    assert (found["host"], found["use"], found["unusual"]) == (None, "", [])
    nodes = {"node1": {"gpu": 90}, "node2": {"gpu": 0, "idlest": 5, "idle": 720, "lowest": 0, "age": 4}}
    sample = {"v": 1, "time": 1000, "output": 990, "nodes": nodes}
    (folder / "slurmray-runs/41-0/usage.json").write_text(json.dumps(sample))
    (found,) = printed(["status", "41"], capsys)
    assert found["use"] == "GPUs 45 % busy"
    assert found["unusual"] == [{"node": "node2", "text": "GPU 5 has been at 0 % for 12 min"}]
