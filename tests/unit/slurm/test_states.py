"""States and ends of jobs, from records of Slurm and from events."""

from __future__ import annotations

from pathlib import Path

import pytest

import slurmray
from slurmray.slurm.states import (
    Event,
    current_nodes,
    is_last_attempt_over,
    parse_components,
    parse_end,
    parse_events,
    parse_job,
    parse_time,
    recorded_end,
)

from ..test_events import event_line


def test_a_comment_that_looks_like_a_field() -> None:
    # Slurm 22.05, after scancel.
    record = parse_job(
        "JobId=15 JobName=x JobState=FAILED ExitCode=9:9\n"
        "   JobState=CANCELLED Reason=None Dependency=(null)\n"
        "   Requeue=1 Restarts=0 BatchFlag=1 Reboot=0 ExitCode=0:15\n"
        "   Comment=a JobState=FAILED\n"
        "   WorkDir=/home/a b\n"
        "   StdOut=/home/a b/slurm-15.out\n"
    )
    assert (record["JobState"], record["ExitCode"], record["WorkDir"]) == ("CANCELLED", "0:15", "/home/a b")


RECORDS = sorted(path for path in (Path(__file__).parent / "records").iterdir())


@pytest.mark.parametrize("folder", RECORDS, ids=lambda folder: folder.name)
def test_records_of_real_jobs(folder: Path) -> None:
    """What each Slurm printed, for root's jobs in the rehearsal; 26.05 prints the line of sbatch, too."""

    def record(name: str, *fields: str) -> list[str]:
        job = parse_job((folder / f"scontrol-{name}.txt").read_text())
        return [job[field] for field in fields]

    names = ("JobId", "JobName", "JobState", "Reason", "ExitCode", "Restarts", "WorkDir")
    assert record("failed", *names) == ["1", "a job", "FAILED", "NonZeroExitCode", "3:0", "0", "/tmp"]
    assert record("failed", "StdOut") == ["/tmp/slurm-1.out"]
    assert record("pending", *names) == ["2", "wrap", "PENDING", "JobHeldUser", "0:0", "0", "/tmp"]
    assert record("running", *names) == ["3", "wrap", "RUNNING", "None", "0:0", "0", "/tmp"]
    assert record("running", "StdOut", "NodeList") == ["/tmp/a b-3.out", "node1"]
    assert record("cancelled", *names) == ["3", "wrap", "CANCELLED", "None", "0:15", "0", "/tmp"]
    assert record("heterogeneous", *names) == ["4", "wrap", "PENDING", "JobHeldUser", "0:0", "0", "/tmp"]
    assert record("array", *names) == ["6", "wrap", "PENDING", "JobHeldUser", "0:0", "0", "/tmp"]


def test_an_argument_of_sbatch_that_looks_like_a_field() -> None:
    text = (
        (RECORDS[-1] / "scontrol-failed.txt")
        .read_text()
        .replace("JobState=RUNNING or so", "x JobState=RUNNING")
    )
    assert "SubmitLine=sbatch" in text
    assert parse_job(text)["JobState"] == "FAILED"


@pytest.mark.parametrize(
    "folder", [path for path in RECORDS if path.name != "21.08"], ids=lambda path: path.name
)
def test_names_of_the_log(folder: Path) -> None:
    """The files that these Slurms made for --output r.%x.%j.%N.%n.%s.%t.%J.%A.%a.%b.%u.%%.%4j.%q.%12N.out."""
    job, task = (
        parse_job((folder / f"scontrol-{name}.txt").read_text()) for name in ("output", "output-array")
    )
    modulo = "%b" if folder.name == "22.05" else "4"  # of the task 4294967294; 22.05 does not know it
    number = "28" if folder.name == "22.05" else "27"
    name = f"r.wrap.{number}.gpu-0.0.batch.0.{number}.{number}.4294967294.{modulo}.root.%.00{number}.%q.gpu-0"
    assert (job["StdOut"], job["StdErr"]) == (f"/tmp/{name}.out", f"/tmp/re.gpu-0.{modulo}")
    if folder.name == "22.05":  # which makes 4b of %4b
        assert task["StdOut"] == "/tmp/ra.29.17.%b.gpu-0.017.29.%4b.out"
    else:
        assert task["StdOut"] == "/tmp/ra.28.17.7.gpu-0.017.28.0007.out"


def test_patterns_of_an_array_with_a_width() -> None:
    """A width of more than ten digits is ten for Slurm; names have none."""
    text = (RECORDS[1] / "scontrol-output-array.txt").read_text().replace("JobId=29 ", "JobId=30 ", 1)
    end = text.index("StdOut=")
    for pattern, name in {
        "%A_%a": "29_17",
        "%3A.%12a": "029.0000000017",
        "%j": "30",
        "%%%%A%%N": "%%A%N",
        "%9N": "gpu-0",
        "%": "%",
        "%5": "%5",
        "%q%": "%q%",
    }.items():
        assert parse_job(f"{text[:end]}StdOut=/tmp/{pattern}\n")["StdOut"] == f"/tmp/{name}", pattern
    single = (RECORDS[1] / "scontrol-output.txt").read_text()
    assert parse_job(f"{single[: single.index('StdOut=')]}StdOut=/%A\n")["StdOut"] == "/28"


def test_components_of_a_heterogeneous_job() -> None:
    text = (RECORDS[-1] / "scontrol-heterogeneous.txt").read_text().replace("NodeList=\n", "NodeList=a\n", 1)
    assert parse_components(text) == {"0": "a", "1": ""}
    array = (RECORDS[-1] / "scontrol-array.txt").read_text()
    tasks = array.replace("NodeList=\n", "NodeList=a\n") + "\n" + array.replace("JobId=6", "JobId=7", 1)
    assert parse_components(tasks) == {None: "a"}, "the first record counts"


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        *(("0", 0), ("1700000000", 1.7e9), ("137438953471", 2**37 - 1), ("137438953472", None)),
        *(("Unknown", None), ("", None), ("-1", None), ("9" * 400, None), ("nan", None), ("1e5", None)),
        *(("2026-13-01T00:00:00", None), ("0001-01-01T00:00:00", None)),
    ],
)
def test_times(text: str, seconds: float | None) -> None:
    assert parse_time(text) == seconds


@pytest.mark.attack("texts of the user in Slurm's records", inputs=1)
def test_a_host_of_the_user_names_no_file() -> None:
    """A record that names the batch host twice, or has a path for it, is not known."""
    text = (RECORDS[1] / "scontrol-output.txt").read_text()
    assert "BatchHost=gpu-0\n" in text
    assert parse_job(text.replace("BatchHost=gpu-0\n", "BatchHost=../../etc/x\n")) == {}
    waits = parse_job(text.replace("   BatchHost=gpu-0\n", ""))
    assert waits["StdErr"] == "/tmp/re.%N.%b", "a job that waits has no host"


@pytest.mark.parametrize("missing", ["JobState", "ExitCode", "WorkDir"])
def test_a_record_without_what_every_job_has(missing: str) -> None:
    text = (RECORDS[1] / "scontrol-failed.txt").read_text()
    assert parse_job(text)
    assert parse_job(text.replace(f"{missing}=", "X=")) == {}


def test_parse_end() -> None:
    assert parse_end("CANCELLED by 1001", "0:15") == slurmray.End("CANCELLED", 0, 15)
    assert parse_end("FAILED", "7:0") == slurmray.End("FAILED", 7, 0)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"exit_code": 0, "source": "trainer"}, slurmray.End("COMPLETED", 0, 0)),
        ({"exit_code": 7, "source": "trainer"}, slurmray.End("FAILED", 7, 0)),
        ({"exit_code": 71, "source": "slurmray", "kind": "node_lost"}, slurmray.End("FAILED", 71, 0)),
        ({"exit_code": 143, "source": "slurm"}, slurmray.End("CANCELLED", 143, 0)),
    ],
)
def test_end_in_the_events(fields: dict[str, object], expected: slurmray.End) -> None:
    # The text is for people; the last line is cut off, as on a full file system.
    text = "done: trainer exited with 9"
    start = event_line("start")
    end = event_line("end", **fields, text=text) + event_line("phase")[:9]
    assert recorded_end(parse_events(start)) is None
    assert recorded_end(parse_events(start + end)) == expected
    stopped = recorded_end(parse_events(start + event_line("stop") + end))
    is_lost = fields["source"] == "slurmray"  # that is why Slurm has ended it
    assert stopped == (expected if is_lost else expected._replace(state="CANCELLED"))


def test_last_attempt() -> None:
    running, requeue, end = event_line("start"), event_line("requeue"), event_line("end")
    assert not is_last_attempt_over(parse_events(running))
    assert not is_last_attempt_over(parse_events(running + requeue))
    assert not is_last_attempt_over(parse_events(running + requeue + end))
    assert is_last_attempt_over(parse_events(running + end))


def test_damaged_events_are_left_out() -> None:
    """A line is half written, or the file system has lost a part; events of newer versions stay."""
    good = event_line("phase", phase="ray")
    newer = '{"v": 1, "time": 2.0, "event": "new"}\n'
    bad = [
        '{"v": 1, "time": 1.0, "event": "end"}',
        "[1]",
        '"x"',
        "null",
        "{}",
        '{"event": []}',
        good[:40],
        "\0\0",
    ]
    events = parse_events(good + "\n".join(bad) + "\n" + newer)
    assert [event["event"] for event in events] == ["phase", "new"]
    assert recorded_end(events) is None


@pytest.mark.attack("a damaged events.jsonl", inputs=1)
def test_very_many_replacements() -> None:
    nodes = [f"a{number}" for number in range(100_000)]
    events: list[Event] = [
        {"event": "start", "nodes": nodes, "spares": ["x"]},
        {"event": "set_aside", "node": "x"},
    ]
    events += [{"event": "replacement", "lost": node, "node": f"b{node}"} for node in nodes]
    assert current_nodes(events) == ([f"b{node}" for node in nodes], [])
