"""The end of a job in its log; lines of Slurm as it has written them: records/VERSION/log-*.txt."""

from __future__ import annotations

from pathlib import Path

import pytest

from slurmray.diagnosis.failures import failures
from slurmray.diagnosis.messages import MESSAGES
from slurmray.diagnosis.tracebacks import last_traceback
from slurmray.slurm.log_end import end_in_log, last_trainer_line, log_end, stopped_at
from slurmray.slurm.states import End

# Logs of `srun sleep` on two nodes, one of which may lose its power, by the Slurm of Debian 12, 13 and sid.
RECORDS = sorted(path for path in (Path(__file__).parent / "records").iterdir() if [*path.glob("log-*")])
REASONS = {
    "scancel": "",
    "time-limit": "DUE TO TIME LIMIT",
    "node-failure": "DUE TO NODE FAILURE, SEE SLURMCTLD LOG FOR DETAILS",
    "requeue": "DUE TO JOB REQUEUE",
}
START = "[slurmray   0.1 s] start: job 7 on 2 nodes, head node node1, logs in /runs/7-0/logs\n"
TRAINER = "[slurmray   1.0 s] trainer: python3 train.py\n"
TRACEBACK = 'Traceback (most recent call last):\n  File "a.py", line 1, in f\n    f()\nValueError: bad\n'


def own(text: str) -> str:
    return f"[slurmray   9.0 s] {text}\n"


def read(version: Path, way: str) -> str:
    return (version / f"log-{way}.txt").read_text()


@pytest.mark.parametrize("version", RECORDS, ids=lambda path: path.name)
@pytest.mark.parametrize("way", REASONS)
def test_when_and_why_slurm_has_ended_a_job(version: Path, way: str) -> None:
    log = read(version, way)
    (line,) = (line for line in log.splitlines() if "*** JOB " in line)
    assert stopped_at(START + log) == (line.partition(" AT ")[2][:19], REASONS[way])
    steps = "".join(line for line in log.splitlines(keepends=True) if "*** JOB " not in line)
    assert stopped_at(START + steps) == ("", ""), "lines about steps do not count"
    assert stopped_at(START + log + START + "started\n") == ("", ""), "nor those of an earlier attempt"


@pytest.mark.parametrize("version", RECORDS, ids=lambda path: path.name)
@pytest.mark.parametrize("way", REASONS)
def test_lines_of_slurm_are_no_part_of_an_exception(version: Path, way: str) -> None:
    """Neither those of slurmstepd nor those of srun, whichever comes first."""
    lines = read(version, way).splitlines(keepends=True)
    for first in lines:
        assert last_traceback(TRACEBACK + first + "".join(lines))[-1] == "ValueError: bad", first
        assert last_traceback(TRACEBACK + first + "and more\n")[-1] == "ValueError: bad", first


@pytest.mark.parametrize("line", ["[2026-11-29T06:34:47.034] worker: bad", "[rank0]: error: *** bad"])
def test_what_only_begins_like_slurms_is(line: str) -> None:
    assert stopped_at(line.replace("bad", "JOB 7 ON x CANCELLED AT y ***")) == ("", "")


@pytest.mark.parametrize("version", RECORDS, ids=lambda path: path.name)
def test_the_node_that_slurm_has_lost_is_named(version: Path) -> None:
    """The other one has written the line about the end of the job."""
    found = failures(MESSAGES, [("log", read(version, "node-failure"))])
    assert [(each.message.name, each.node, each.line) for each in found][:1] == [
        ("slurm-node-failure", "node2", "srun: error: Node failure on node2")
    ]
    without = read(version, "node-failure").replace("srun: error: Node failure on node2\n", "")
    assert failures(MESSAGES, [("log", without)])[0].node is None


@pytest.mark.parametrize("version", RECORDS, ids=lambda path: path.name)
def test_scancel_is_a_consequence(version: Path) -> None:
    names = [each.message.name for each in failures(MESSAGES, [("log", read(version, "scancel"))])]
    assert "slurm-step-cancelled" in names


@pytest.mark.parametrize(
    ("log", "end"),
    [
        (START + own("done: trainer exited with 0"), End("COMPLETED", 0, 0)),
        (START + own("done: trainer exited with 3"), End("FAILED", 3, 0)),
        (START + own("done: the nodes are checked"), End("COMPLETED", 0, 0)),
        (START + own("failed (65 preflight): node1: GPUs: 7"), End("FAILED", 65, 0)),
        (START + own("stopped by Slurm: scancel, preemption or the time limit"), End("CANCELLED", 0, 0)),
        (START + own("stop: scancel") + own("done: trainer exited with 0"), End("CANCELLED", 0, 0)),
        (START + own("stop: scancel") + own("done: trainer exited with 143"), End("CANCELLED", 143, 0)),
        (START + own("stop: scancel") + own("failed (71 node lost): node2: x"), End("FAILED", 71, 0)),
        (START + own("time limit or preemption near") + own("failed (72 x): y"), End("FAILED", 72, 0)),
        (START + own("stop: scancel") + START + own("done: trainer exited with 3"), End("FAILED", 3, 0)),
        (START + own("failed (71 node lost): node2: exited with 9"), End("FAILED", 71, 0)),
        (START + own("done: trainer exited with 3") + START, None),
        (START + "done: trainer exited with 3\n", None),
        ("", None),
    ],
)  # fmt: skip
def test_the_end_by_the_last_line(log: str, end: End | None) -> None:
    assert end_in_log(log) == end


def test_what_is_shown_of_a_failure() -> None:
    """The first lines that slurmray shows, or what the trainer has printed; at most 15 that are not blank."""
    shown = own("last lines of /r/node2.log:") + "first\n\n" + own("last lines of /r/node3.log:") + "second\n"
    log = START + "finding\n" + TRAINER + "step\n" + shown + own("failed (71 node lost): node2: x")
    end = log_end(log)
    assert (end.text, end.source, end.lines) == ("failed (71 node lost): node2: x", "/r/node2.log", ["first"])
    assert end.printed == "first\n"
    again = log_end(log.replace("node3", "node2"))
    assert again.lines == ["first"], "each log once"
    end = log_end(START + "finding\n" + TRAINER + "step\n" * 20 + shown + own("done: trainer exited with 1"))
    assert (end.source, end.lines) == ("the job's log", ["step"] * 15)
    end = log_end(START + "finding\n" + TRAINER + "step\n" + own("done: trainer exited with 1"))
    assert end.lines == ["step"], "what the trainer has printed"
    assert log_end(START + "a\n" + own("x") + "b\n").lines[-1] == "b", "a job without a last line"


def test_what_was_printed_before_slurm_ended_the_job() -> None:
    log = START + TRAINER + "step\n" + own("stop: scancel") + "late\n" + own("done: trainer exited with 0")
    assert log_end(log).before == START + TRAINER + "step\n"
    assert log_end(log).is_stopped
    near = log.replace("stop: scancel", "time limit or preemption near: x")
    assert (log_end(near).before, log_end(near).is_stopped) == (log_end(log).before, False)


def test_the_last_line_of_the_trainer() -> None:
    """The last state of a progress bar counts; not slurmray's lines, nor blank ones."""
    assert last_trainer_line(f"{START}a\n 10%\r 20%\r\n\n{TRAINER}") == "20%"
    assert last_trainer_line(START) == ""
