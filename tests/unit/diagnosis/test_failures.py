"""The first failure in logs: by time, with node and rank; and the traceback at the end."""

from __future__ import annotations

import pytest

from slurmray.diagnosis.entries import Message
from slurmray.diagnosis.failures import failures, literals
from slurmray.diagnosis.messages import MESSAGES
from slurmray.diagnosis.tracebacks import last_traceback

FULL = Message("full", "", "", r"the disk (\S+) is full now", "", "")
BROKEN = Message("broken", "", "", r"the card has broken|the fan has stopped", "", "")
GONE = Message("gone", "", "", r"another rank is gone", "", "", is_follow_up=True)
TABLE = (GONE, FULL, BROKEN)
STEPS = "".join(f"step {number}, loss 0.1\n" for number in range(20))


def names(*logs: str) -> list[str]:
    return [
        each.message.name
        for each in failures(TABLE, [(f"log {number}", log) for number, log in enumerate(logs)])
    ]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("[2026-11-26 18:00:00.123] ", "[2026-11-26 18:00:01.123] "),
        ("2026-11-26 18:00:00,123 ERROR ", "2026-11-26 18:00:00,124 ERROR "),
        ("2026-11-26 18:00:00.123 ", "2026-11-26 18:00:00,124 "),
        ("INFO 11-26 18:00:00 ", "ERROR 11-26 18:00:01 "),
        ("[2026-11-26 18:00:00,123 E 1 2] ", "[2026-11-26 18:00:00,200 E 1 2] "),
        ("*** JOB 7 CANCELLED AT 2026-11-26T18:00:00 ", "2026-11-26 18:00:01 "),
        ("[rank3]:[E1126 18:00:00.000000001 x.cpp:1] ", "[rank3]:[E1126 18:00:00.000000002 x.cpp:1] "),
        ("2026-09-30 23:59:59 ", "  time      : 2026-10-01_00:00:00 "),
    ],
)
def test_the_earliest_is_the_first(first: str, second: str) -> None:
    """Whatever the order of lines, of logs, or of the table."""
    full, broken = f"{first}the disk /ckpt is full now\n", f"{second}the card has broken\n"
    for logs in ((broken + full,), (full + broken,), (broken, full), (full, broken)):
        assert names(*logs) == ["full", "broken"]
    full, broken = f"{second}the disk /ckpt is full now\n", f"{first}the card has broken\n"
    for logs in ((broken + full,), (full + broken,), (broken, full), (full, broken)):
        assert names(*logs) == ["broken", "full"]


def test_without_times_the_order_of_lines_counts() -> None:
    full, broken = "the disk /a is full now\n", "the fan has stopped\n"
    assert names(broken + full) == ["broken", "full"]
    assert names(full, broken) == ["full", "broken"]
    # A line without a time is as old as the one above it.
    assert names(f"2026-11-26 18:00:05 x\n{broken}2026-11-26 18:00:00 {full}") == ["full", "broken"]
    assert names(f"2026-11-26 18:00:00 x\n{broken}2026-11-26 18:00:05 {full}") == ["broken", "full"]
    above = "2026-11-26 17:00:00 x\n2026-11-26 18:00:05 x\n"
    assert names(f"{above}{broken}", f"2026-11-26 18:00:00 {full}") == ["full", "broken"]
    # Of several times in a line, the first one is when it was printed.
    line = f"2026-11-26 18:00:05 since 2026-11-26 19:00:00 {broken}"
    assert names(line, f"2026-11-26 18:00:06 {full}") == ["broken", "full"]


@pytest.mark.parametrize(("plain", "is_last"), [(14, True), (15, False)])
def test_fifteen_lines_that_are_about_no_error_are_progress(plain: int, is_last: bool) -> None:
    lines = "".join(f"step {number}\n" for number in range(plain))
    (found,) = failures(TABLE, [("log", f"the card has broken\n{lines}KeyError: 'a'")])
    assert found.is_last == is_last


def test_a_line_without_a_time_comes_first_in_the_jobs_log_and_last_in_others() -> None:
    """In the job's log it is from the begin of the output; a node's log says nothing about when it was."""
    timed, untimed = "2026-11-26 18:00:00 the disk /a is full now\n", "the card has broken\n"
    assert names(untimed, timed) == ["broken", "full"]
    assert names(timed, untimed) == ["full", "broken"]
    assert names("another rank is gone\n", untimed, timed) == ["full", "broken", "gone"]
    assert names("another rank is gone\n", f"2026-11-26 17:00:00 x\n{untimed}", timed) == [
        "broken",
        "full",
        "gone",
    ]


def test_the_last_errors_of_a_log_come_before_earlier_ones() -> None:
    """Whatever their times; and of a message, the last errors are shown."""
    early, late = "2026-11-26 18:00:00 the card has broken\n", "2026-11-26 19:00:00 the disk /a is full now\n"
    assert names("another rank is gone\n" + early + STEPS, late) == ["full", "broken", "gone"]
    again = failures(TABLE, [("log", f"{early}{STEPS}2026-11-26 19:00:00 the fan has stopped\n")])
    assert [each.line for each in again] == ["2026-11-26 19:00:00 the fan has stopped"]


def test_once_a_cause_is_known_only_last_errors_of_other_logs_count() -> None:
    cause, long_ago = "the card has broken\n", "the disk /a is full now\n" + STEPS
    assert names(cause, long_ago) == ["broken"]
    assert names("another rank is gone\n", long_ago) == ["full", "gone"], "what follows is no cause"
    assert names(cause + STEPS, long_ago) == ["broken", "full"]


LOST = Message("lost", "", "", r"the host (?P<node>\S+) was lost|a host was lost somewhere", "", "")


def test_a_line_about_another_node_has_that_node() -> None:
    """Not the one in whose log it is, nor the driver's, and none where it has no name."""
    (found,) = failures([LOST], [("log of a", "(raylet) the host b was lost\n")])
    assert (found.node, found.is_driver) == ("b", False)
    (found,) = failures([LOST], [("log of a", "(W pid=1, ip=10.0.0.2) a host was lost somewhere\n")])
    assert found.node is None
    (found,) = failures([BROKEN], [("log of a", "(raylet) the card has broken\n")])
    assert (found.node, found.is_driver) == ("", True)


@pytest.mark.parametrize("names_it_first", [True, False])
def test_of_lines_about_another_node_one_that_names_it_is_shown(names_it_first: bool) -> None:
    lines = ["the host b was lost", "2026-11-26 18:00:00 a host was lost somewhere", "the host c was lost"]
    lines = lines if names_it_first else [lines[1], lines[0], lines[2]]
    (found,) = failures([LOST], [("log", "\n".join(lines))])
    assert (found.node, found.line) == ("b", "the host b was lost")
    # Its place is that of the first one of both.
    after = f"{lines[0]}\n2026-11-26 18:00:01 the card has broken\n{lines[1]}\n"
    assert [each.message.name for each in failures([BROKEN, LOST], [("log", after)])] == ["lost", "broken"]


@pytest.mark.parametrize(
    ("line", "node"),
    [
        ("(raylet) The node with node id: 5a and address: 10.0.0.2 and node name: gpu-1 has been marked dead because "
         "the detector has missed too many heartbeats from it.", "gpu-1"),
        ("The node has been marked dead because the detector has missed too many heartbeats from it.", None),
        ("srun: error: Node failure on gpu-1", "gpu-1"),
        ("srun: error: Aborting, io error and missing step on node 1", None),
        ("srun: error: Task launch for StepId=7.0 failed on node gpu-1: Communication connection failure", "gpu-1"),
        ("srun: error: Task launch for StepId=7.0 failed on node gpu-1: Job credential expired", "gpu-1"),
        ("srun: error: Task launch for StepId=7.0 failed on node gpu-1: Job prolog failed", "gpu-1"),
        ("srun: error: task 0 launch failed: Plugin initialization failed", None),
        ("The actor died because its node has died. Node Id: 5ad7", None),
    ],
)  # fmt: skip
def test_messages_about_another_node(line: str, node: str | None) -> None:
    (found,) = failures(MESSAGES, [("log of gpu-0", f"{line}\n")])
    assert found.node == node


def test_what_follows_from_a_failure_comes_after_it() -> None:
    gone = "2026-11-26 18:00:00 another rank is gone\n"
    assert names(f"{gone}2026-11-26 18:00:01 the card has broken\n") == ["broken", "gone"]
    assert names(gone) == ["gone"]
    assert names(gone, "the card has broken\n") == ["broken", "gone"]


def test_progress_after_a_message_makes_it_less_likely() -> None:
    early = "the card has broken\n" + STEPS
    (found,) = failures(TABLE, [("log", early)])
    assert not found.is_last
    assert names(early + "the disk /a is full now\n") == ["full"]
    assert names(early, "the disk /a is full now\n") == ["full", "broken"]
    noise = "".join(
        f"  File {number}\nKilled worker {number}\nwandb: {number}\n\nfor more, see {number}\n"
        for number in range(20)
    )
    assert names("the card has broken\n" + noise + "the disk /a is full now\n") == ["broken", "full"]
    bar = "".join(f"\r  {number}%|###   | {number}/100" for number in range(20))
    assert not failures(TABLE, [("log", f"the card has broken\n{bar}\n")])[0].is_last


@pytest.mark.parametrize(
    "line",
    [
        "step 7 | loss 1.2 | error: 0.12",
        "(TaskRunner pid=1) step:41 - val/error: 3 - actor/loss:0.0021",
        "Epoch 2: 100%|####| 9/9 [00:11<00:00,  1.04it/s, reward Error: 0.2]",
        "  iteration  100/ 1000 | failed retries: 2 |",
        "rollout: ok=512 failed=0 timed out=0",
        "sandbox: 128 cases, 0 failed",
        "eval error: 0.125",
    ],
)
def test_progress_that_speaks_of_errors_is_progress(line: str) -> None:
    (found,) = failures(TABLE, [("log", "the card has broken\n" + f"{line}\n" * 20 + "KeyError: 'a'\n")])
    assert not found.is_last


@pytest.mark.parametrize(
    "line",
    [
        "error: cannot open 10.0.0.1",
        "connection failed: 10.0.0.1:6379",
        "RuntimeError: rank 3 failed at step 12",
        "pool: 3 workers failed",
        "Failed to load step 7",
    ],
)
def test_errors_with_numbers_are_errors(line: str) -> None:
    (found,) = failures(TABLE, [("log", "the card has broken\n" + f"{line}\n" * 20)])
    assert found.is_last


@pytest.mark.parametrize(
    ("line", "node", "rank"),
    [
        ("(WorkerDict pid=4301, ip=10.0.0.2) {}", "10.0.0.2", None),
        ("\x1b[36m(WorkerDict pid=4301, ip=10.0.0.2)\x1b[0m {}", "10.0.0.2", None),
        ("(EngineCore pid=1) (RayWorkerProc pid=2, ip=10.0.0.3) {}", "10.0.0.3", None),
        ("(raylet, ip=10.0.0.4) {}", "10.0.0.4", None),
        ("[rank3]: RuntimeError: {}", "", 3),
        ("[rank3]:[E ProcessGroupNCCL.cpp:632] [Rank 3] {}", "", 3),
        ("(F pid=1, ip=10.0.0.2) [rank11]: {}", "10.0.0.2", 11),
        ("node1:123:456 [0] NCCL WARN {}", "node1", None),
        ("node1:123:456 [0] /tmp/net_ib.cc:84 NCCL WARN {}", "node1", None),
        ("[2026-11-26 18:00:00] node1:123:456 [0] misc/socket.cc:1 NCCL WARN {}", "node1", None),
        ("(WorkerDict pid=4301) {}", "", None),
        ("{}, of (f pid=4301, ip=10.0.0.2)", "", None),
        (
            'ray.exceptions.RayTaskError(E): ray::A.f() (pid=1, ip=10.0.0.5, actor_id=a)\n  File "a.py"\nE: {}',
            "10.0.0.5",
            None,
        ),
        ("ray::A.f() (pid=1, ip=10.0.0.5)\n  x\nray::B.f() (pid=2, ip=10.0.0.6)\nE: {}", "10.0.0.6", None),
        ("ray::A.f() (pid=1, ip=10.0.0.5)\nE: x\nTraceback (most recent call last):\nE: {}", "", None),
        (
            "E: {}\nRoot Cause (first observed failure):\n[0]:\n  time      : 2026-11-26_18:00:00\n"
            "  host      : node2\n  rank      : 5 (local_rank: 1)\n",
            "node2",
            5,
        ),
    ],
)
def test_node_and_rank(line: str, node: str, rank: int | None) -> None:
    (found,) = failures(TABLE, [("log", line.format("the card has broken"))])
    assert (found.node, found.rank) == (node, rank)
    assert found.is_driver == (line == "(WorkerDict pid=4301) {}")
    assert "\x1b" not in found.line


def test_marks_of_repetitions_are_left_out() -> None:
    line = (
        "(A pid=1, ip=10.0.0.2) the card has broken [repeated 7x across cluster] (Ray deduplicates logs...)"
    )
    assert failures(TABLE, [("log", line)])[0].line == "(A pid=1, ip=10.0.0.2) the card has broken"


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("a long text", ("a long text",)),
        (r"ab\d+ longer (x|y)", (" longer ",)),
        ("first one|second|", ("first one", "second", "")),
        ("first one|second two", ("first one", "second two")),
        ("(first one|second two) x", (" x",)),
        ("abc(de(f|g))?hijk", ("hijk",)),
        (r"a\.b.*[xyz]ccc", ("a.b",)),
        (r"abcde[]|)]fg|long \[?er\]{1,3}x", ("abcde", "long ")),
        (r"ab(?!longer|long)(?:cdef|ghi)?x{0,2}yz|(?<=long )abcd+e", ("ab", "abc")),
    ],
)
def test_literals(pattern: str, expected: tuple[str, ...]) -> None:
    assert literals(pattern) == expected


@pytest.mark.attack("a log made to be slow, or large")
def test_a_hostile_log_is_bounded() -> None:
    """Lines that nearly fit, a very long line, and a line that is a million messages."""
    near = "the disk " + "x" * 1000 + " is empty\n"
    log = near * 3000 + "the disk " * 100_000 + "\n" + "the card has broken" * 100_000
    (found,) = failures(TABLE, [("log", log)])
    assert len(found.line) == 300
    all_known = "".join(f"{message.example}\n" for message in MESSAGES)
    root = "Root Cause (first observed failure): " * 100_000
    assert len(failures(MESSAGES, [("log", all_known + root)])) == len(MESSAGES)


@pytest.mark.attack("a log made to be slow, or large", inputs=1)
@pytest.mark.parametrize(
    ("name", "begin", "repeated"),
    [
        ("deepspeed-batch-size", "train_batch_size is not equal to micro_batch_per_gpu ", "1"),
        ("ray-memory-monitor", " Workers (tasks / actors) killed due to memory pressure", "1"),
        ("trust-remote-code", "must be executed", "ValueError: contains custom code "),
        ("vllm-extension-missing", "' object has no attribute '_OpNamespace' '_", "C"),
    ],
)
def test_lines_that_nearly_have_a_message(name: str, begin: str, repeated: str) -> None:
    (message,) = (each for each in MESSAGES if each.name == name)
    line = (begin + repeated * 2000)[:2000]
    assert failures([message], [("log", f"{line}\n" * 1000)]) == []


FRAME = '  File "a.py", line {0}, in f{0}\n    f()\n'
FRAMES = "".join(FRAME.format(number) for number in range(8))
HEADER = "Traceback (most recent call last):\n"
SHOWN = [line for number in range(3, 8) for line in FRAME.format(number).splitlines()]


def prefixed(text: str, prefix: str) -> str:
    return "".join(f"{prefix}{line}\n" for line in text.splitlines())


@pytest.mark.parametrize(
    "prefix", ["", "[rank3]: ", "\x1b[36m(W pid=1, ip=10.0.0.2)\x1b[0m ", "ERROR 01-02 [a.py:1] "]
)
def test_the_last_traceback(prefix: str) -> None:
    """Five frames, without what Ray, PyTorch or vLLM put in front, and without others' lines in between."""
    first, _, second = prefixed(f"{HEADER}{FRAMES}KeyError: 'a'\nwandb: run x", prefix).partition("f1\n")
    log = f"step 1\n{first}f1\n(other pid=2) step\n{second}\nsrun: error: node1\n"
    assert last_traceback(log) == [HEADER.strip(), "  ...", *SHOWN, "KeyError: 'a'"]


@pytest.mark.parametrize("stamp", ["2025-07-31T08:28:47.91110939{0}Z ", "[2026-03-11 17:47:5{0}] (W pid=1) "])
def test_lines_of_a_traceback_may_have_different_times(stamp: str) -> None:
    """As `kubectl logs --timestamps` and others write them."""
    lines = f"{HEADER}{FRAMES}KeyError: 'a'\nsrun: error: node1".splitlines()
    log = "".join(f"{stamp.format(number % 10)}{line}\n" for number, line in enumerate(lines))
    assert last_traceback(log) == [HEADER.strip(), "  ...", *SHOWN, "KeyError: 'a'"]


def test_of_a_frame_its_place_and_two_more_lines_are_shown() -> None:
    place = '  File "a.py", line 1, in f\n    f(\n      ^\n'
    log = f"{HEADER}{place}      more\nE: 1\nE: 2\nE: 3\nE: 4\nE: 5\n"
    assert last_traceback(log) == [HEADER.strip(), *place.splitlines(), "E: 1", "E: 2", "E: 3", "E: 4"]
    five = "".join(FRAME.format(number) for number in range(5))
    assert "  ..." not in last_traceback(f"{HEADER}{five}E: x\n")


def test_of_a_chain_the_first_message_is_shown() -> None:
    link = "\nDuring handling of the above exception, another exception occurred:\n\n"
    log = f"{HEADER}{FRAMES}KeyError: 'a'\n{link}{HEADER}{FRAMES}TypeError: b\n{link}{HEADER}{FRAMES}ValueError: c\n"
    shown = [HEADER.strip(), "  ...", *SHOWN, "ValueError: c"]
    assert last_traceback(log) == ["KeyError: 'a'", link.strip(), *shown]
    assert last_traceback(log.replace("'a'\n", "'a'\nmore of it\n"))[:2] == ["KeyError: 'a'", link.strip()]
    many = "".join(f"{HEADER}{FRAME.format(1)}E: {number}\n" for number in range(120))
    assert last_traceback(many)[-1] == "E: 119"


def test_of_a_ray_task_the_frames_of_the_task_are_shown() -> None:
    log = f"{HEADER}{FRAME.format(9)}ray.exceptions.RayTaskError(E): ray::f() (pid=1, ip=10.0.0.1)\n{FRAMES}E: x\n"
    assert last_traceback(log) == [HEADER.strip(), "  ...", *SHOWN, "E: x"]


def test_other_tracebacks_are_not_shown() -> None:
    """Of torchrun, if there is another one; and of long ago."""
    own, torchrun = f"{HEADER}{FRAMES}E: own\n", f"{HEADER}{FRAMES}x.ChildFailedError:\n"
    assert last_traceback(own + torchrun)[-1] == "E: own"
    assert last_traceback(torchrun)[-1] == "x.ChildFailedError:"
    assert last_traceback(torchrun + torchrun.replace("x.", "y."))[-1] == "y.ChildFailedError:"
    assert last_traceback(own + STEPS) == []
    assert last_traceback("") == []
