"""What `slurmray why` finds in logs: of a job whose Slurm is a stand-in, and of files without a job."""

from __future__ import annotations

import io
import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from slurmray.slurm.log_end import stopped_at

from ..programs import install
from ..test_events import event_line
from .command_line import main
from .test_why import START, TRAINER, UNKNOWN, Case

OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."
LAST = "[slurmray   9.0 s] done: trainer exited with {}\n"
DISK = "OSError: [Errno 28] No space left on device: '/ckpt'"
STEPS = "".join(f"step {number}\n" for number in range(20))
RETRIES, MANY = "retry: failed\n" * 20, "step\n" * (1 << 20)
KILLED = "killed 2 of the step's processes (oom_kill)"
HEADER = "Traceback (most recent call last):\n"
FRAMES = "".join(f'  File "a.py", line {number}, in f\n    f()\n' for number in range(20))


@pytest.fixture
def case(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Case:
    case = Case(tmp_path, monkeypatch, capsys)
    case.slurm("JobState=FAILED ExitCode=1:0")
    return case


def causes(case: Case) -> list[dict[str, object]]:
    code, out, _ = main(["why", "7", "--json"], case.capsys)
    assert code == 0
    return list(json.loads(out)["causes"])


def test_the_first_failure_has_its_node_and_rank(case: Case) -> None:
    """The head node's address is in the events, the others' are in their logs."""
    text = "head at 10.0.0.1:6379, dashboard on port 8265"
    start = event_line("start", nodes=["node1", "node2"], head="node1")
    case.events(start, event_line("phase", phase="ray", text=text))
    case.node_logs(node2="Local node IP: 10.0.0.2\n")
    first = f"(A pid=4301, ip=10.0.0.2) [rank3]: {OOM} [repeated 7x across cluster]\n"
    case.log(f"{START}{TRAINER}{first}(B pid=1, ip=10.0.0.1) {DISK}\n{LAST.format(1)}")
    shown = case.ask()
    assert f"log, on node2, rank 3: (A pid=4301, ip=10.0.0.2) [rank3]: {OOM} cause: A GPU had" in shown
    assert f"then, in log, on node1: (B pid=1, ip=10.0.0.1) {DISK}" in shown
    assert "repeated" not in shown.partition("cause:")[0].rpartition("log, on")[2]
    assert UNKNOWN not in shown
    found, then = causes(case)
    assert {name: found[name] for name in ("role", "name", "family", "node", "rank", "source")} == {
        "role": "cause",
        "name": "cuda-out-of-memory",
        "family": "gpu",
        "node": "node2",
        "rank": 3,
        "source": "log",
    }
    assert str(found["evidence"]).endswith(OOM)
    assert (then["role"], then["node"], then["hardware"]) == ("then", "node1", "disk")
    case.log(f"{START}{TRAINER}(A pid=4301) {DISK}\n{LAST.format(1)}")
    assert causes(case)[0]["node"] == "node1", "the driver's node"


def test_what_only_follows_is_no_cause(case: Case) -> None:
    died = "ray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this task."
    case.log(f"{START}{TRAINER}{died}\n{LAST.format(1)}")
    shown = case.ask()
    assert f" log: {died} meaning: " in shown
    assert "The failure before it is not known to slurmray." in shown
    assert UNKNOWN in shown
    case.log(f"{START}{TRAINER}{died}\n{DISK}\n{LAST.format(1)}")
    shown = case.ask()
    assert shown.index(f" log: {DISK} cause: ") < shown.index(f"then, in log: {died}")
    assert "The failure before it" not in shown


def test_what_progress_follows_is_not_certain(case: Case) -> None:
    case.log(f"{START}{TRAINER}{DISK}\n{STEPS}{LAST.format(1)}")
    shown = case.ask()
    assert f"earlier, in log: {DISK} meaning: A disk was full" in shown
    assert UNKNOWN in shown


def test_an_unknown_failure_shows_its_traceback(case: Case) -> None:
    """In place of the last lines; with a known cause these stay."""
    case.log(f"{START}{TRAINER}[rank3]: x\n{HEADER}{FRAMES}KeyError: 'a'\n{RETRIES}{LAST.format(1)}")
    shown = case.ask()
    lines = "".join(FRAMES.splitlines(keepends=True)[-10:])
    assert "last lines of the job's log, the last traceback: Traceback" in shown
    assert " ".join(f"... {lines} KeyError: 'a'".split()) in shown
    assert "line 14, in f" not in shown
    assert UNKNOWN in shown
    case.log(f"{START}{TRAINER}{HEADER}{FRAMES}{DISK}\n{LAST.format(1)}")
    assert "the last traceback" not in case.ask()


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        ("stop_now", "at the end of its grace period (event stop_now). fix: Raise stop.grace"),
        ("time_limit", "at the end of its grace period (event time_limit)."),
        ("trainer", "Often the kernel, because memory ran out. slurmray did not send it"),
        ("", "Often the kernel, because memory ran out. Or the trainer still ran"),
    ],
)
def test_who_has_killed_the_trainer(case: Case, event: str, expected: str) -> None:
    if event:
        case.events(event_line("start"), event_line(event))
    case.log(f"{START}{TRAINER}step\n{LAST.format('137 (128 + signal KILL)')}")
    assert expected in case.ask()
    oom = "slurmstepd: error: Detected 1 oom_kill event in StepId=7.0. Some of the step tasks have been OOM\n"
    case.log(f"{START}{TRAINER}step\n{LAST.format('137 (128 + signal KILL)')}{oom}")
    assert "cause: The job used more memory than slurm.mem" in case.ask()


@pytest.mark.parametrize(
    ("node", "event", "role"),
    [("node1", "trainer", "cause"), ("node2", "trainer", "earlier"), ("node1", "stop_now", "earlier")],
)
def test_the_kernel_has_killed_processes_of_the_trainer_s_node(
    case: Case, node: str, event: str, role: str
) -> None:
    case.events(event_line("start", nodes=["node1", "node2"], head="node1"), event_line(event))
    case.log(f"{START}{TRAINER}step\n{LAST.format('137 (128 + signal KILL)')}")
    case.node_logs(**{node: f"step\nslurmray: memory ran out: the kernel {KILLED}\n"})
    (found,) = causes(case)
    assert (found["name"], found["node"], found["role"]) == ("slurm-oom-kill", node, role)
    assert ("137: means SIGKILL" in case.ask()) == (role == "earlier")


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        ("stop", "cause: scancel, preemption or the time limit."),
        ("trainer", "cause: A process of the trainer, or somebody. slurmray did not send it"),
    ],
)
def test_who_has_terminated_the_trainer(case: Case, event: str, expected: str) -> None:
    case.events(event_line("start"), event_line(event))
    case.log(f"{START}{TRAINER}step\n{LAST.format('143 (128 + signal TERM)')}")
    assert expected in case.ask()


AGAIN = (
    "[slurmray   5.0 s] restart 1 of 3: the trainer exited with 85; on the same nodes\n",
    "[slurmray   5.0 s] start again: node2: GPUs: 7; node3 takes the place of node2\n",
)


@pytest.mark.parametrize("again", AGAIN)
@pytest.mark.parametrize("printed", ["", "KeyError: 'a'\n"])
def test_an_earlier_start_is_not_the_cause(case: Case, again: str, printed: str) -> None:
    case.log(f"{START}{TRAINER}{HEADER}{OOM}\n{again}{TRAINER}{printed}{LAST.format(1)}")
    shown = case.ask()
    assert "memory" not in shown
    assert UNKNOWN in shown
    assert (f"last lines of the job's log: {printed.strip()}" if printed else "nothing was printed") in shown
    case.log(f"{START}{TRAINER}{OOM}\n{again}{again}")
    assert "memory" not in case.ask()


def test_what_a_trainer_prints_is_no_restart(case: Case) -> None:
    case.log(f"{START}{TRAINER}{OOM}\nrestart 1 of 3: x\nstart again: x\n{LAST.format(1)}")
    assert "cause: A GPU had no memory left" in case.ask()


def test_the_last_lines_are_those_of_the_last_start(case: Case) -> None:
    def lost(node: str, printed: str) -> str:
        return f"[slurmray   4.0 s] last lines of /r/logs/{node}.log:\n{printed}\n"

    end = "[slurmray   9.0 s] failed (71 node lost): node1: gcs_server exited\n"
    first = f"{START}{TRAINER}{lost('node2', 'raylet: killed')}{AGAIN[0]}"
    case.log(f"{first}{TRAINER}{lost('node1', 'gcs_server: bus error')}{end}")
    shown = case.ask()
    assert "last lines of /r/logs/node1.log: gcs_server: bus error" in shown
    assert "raylet: killed" not in shown
    case.log(f"{first}{TRAINER}step\n{end}")
    assert "last lines of the job's log: step" in case.ask()


def test_the_head_node_of_the_last_start(case: Case) -> None:
    """Its address is not that of the head node before."""
    head = "head at 10.0.0.{}:6379, dashboard on port 8265"
    case.events(
        event_line("start", nodes=["node1", "node2"], head="node1"),
        event_line("phase", phase="ray", text=head.format(1)),
        event_line("restart", nodes=["node2", "node1"], failed=["node1"]),
        event_line("phase", phase="ray", text=head.format(2)),
    )
    case.node_logs(node1="Local node IP: 10.0.0.1\n")
    case.log(f"{START}{TRAINER}{AGAIN[0]}{TRAINER}(A pid=4301, ip=10.0.0.1) {OOM}\n{LAST.format(1)}")
    assert causes(case)[0]["node"] == "node1"


def test_the_kernel_has_killed_processes_of_an_earlier_start(case: Case) -> None:
    case.events(event_line("start", nodes=["node1", "node2"], head="node1"), event_line("trainer"))
    case.log(f"{START}{TRAINER}{AGAIN[0]}{TRAINER}step\n{LAST.format('137 (128 + signal KILL)')}")
    case.node_logs(node1=f"slurmray: memory ran out: the kernel {KILLED}\n{STEPS}")
    (found,) = causes(case)
    assert (found["name"], found["role"]) == ("slurm-oom-kill", "earlier")


@pytest.mark.parametrize("way", ["file", "-"])
def test_a_log_without_a_job(case: Case, monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    """No command of Slurm runs; only the last 4 MiB are read."""
    touch = f"touch {case.folder}/called"
    install(case.folder / "bin", scontrol=touch, squeue=touch, sacct=touch)
    text = f"{OOM}\n{MANY}[rank5]: {DISK}\x07\n".encode()
    (case.folder / "x.log").write_bytes(text)
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(text)))
    name = "x.log" if way == "file" else "-"
    code, out, err = main(["why", "--log", name], case.capsys)
    assert (code, err) == (0, "")
    shown = " ".join(out.split())
    title = "x.log" if way == "file" else "standard input"
    assert shown.startswith(f"{title}: it has no last line of slurmray ")
    assert f"log, rank 5: [rank5]: {DISK}\\x07 cause: A disk was full" in shown
    assert "memory" not in shown
    assert not (case.folder / "called").exists()


def test_a_log_of_a_job_that_succeeded(case: Case) -> None:
    case.log(f"{START}{TRAINER}{DISK}\n{LAST.format(0)}")
    code, out, _ = main(["why", "--log", "slurm-7.out"], case.capsys)
    assert (code, out) == (0, "slurm-7.out: COMPLETED. done: trainer exited with 0\n")


@pytest.mark.parametrize(
    ("args", "error"),
    [
        (["--log", "none.log"], "slurmray why: --log none.log: No such file or directory"),
        (["--log", "."], "slurmray why: --log .: Is a directory"),
        (["7", "--log", "x"], "slurmray why: give a job or --log, not both"),
    ],
)
def test_a_wrong_log_is_an_error(case: Case, args: list[str], error: str) -> None:
    code, out, err = main(["why", *args], case.capsys)
    assert (code, out) == (2, "")
    assert error in err
    assert len(err.splitlines()) == 1


def test_slurm_is_not_asked_for_each_node(case: Case) -> None:
    """Twice, as a job that slurmray submit has not made may be an array."""
    nodes = [f"node{number}" for number in range(1, 9)]
    case.events(event_line("start", nodes=nodes, head="node1"))
    case.node_logs(**dict.fromkeys((*nodes[:-1], "service-judge@node1"), "step\n"))
    case.node_logs(**{"service-judge@node2": f"{DISK}\n"})
    case.log(f"{START}{TRAINER}{LAST.format(1)}")
    program = case.folder / "bin/scontrol"
    program.write_text(program.read_text().replace("\n", f"\necho $* >>{case.folder}/asked\n", 1))
    assert [each["source"] for each in causes(case)] == ["log of judge"]
    assert (case.folder / "asked").read_text() == "show job 7\n" * 2 + "write batch_script 7 -\n"


@pytest.mark.attack("a log made to be slow, or large", inputs=1)
def test_a_node_s_log_of_blank_lines(case: Case) -> None:
    case.events(event_line("start", nodes=["node1"], head="node1"))
    case.node_logs(node1="\n" * 300_000)
    case.log(f"{START}{TRAINER}{LAST.format(1)}")
    assert UNKNOWN in case.ask()


@pytest.mark.attack("a log made to be slow, or large", inputs=1)
def test_a_log_of_a_cancelled_job_that_is_one_long_line() -> None:
    assert stopped_at("slurmstepd: error: *** JOB 1 " + "CANCELLED AT x " * 270_000) == ("", "")


DIGITS = "1" * 5000  # more than int() takes


@pytest.mark.attack("a log made to be slow, or large", inputs=1)
@pytest.mark.parametrize("text", [f"done: trainer exited with {DIGITS}", f"failed ({DIGITS} x): y"])
def test_an_exit_code_that_is_far_too_long(case: Case, text: str) -> None:
    """In a log without a job, and as the text of an event."""
    (case.folder / "x.log").write_text(f"[slurmray   1.0 s] {text}\n")
    code, out, err = main(["why", "--log", "x.log"], case.capsys)
    assert (code, err) == (0, "")
    assert out.startswith("x.log: it has no last line of slurmray\n")
    case.events(event_line("start"), event_line("end", exit_code=1, source="trainer", node="", text=text))
    assert case.ask().startswith("job 7, mine: FAILED. ")
