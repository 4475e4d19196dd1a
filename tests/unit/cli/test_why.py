"""What `slurmray why` and `status` print about jobs; Slurm's commands are stand-ins."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest

import slurmray
from slurmray import history
from slurmray.agent.controller.roster import TOO_FEW

from ..programs import FORGOTTEN, OWN, install
from ..test_events import event_line
from .command_line import main

START = "[slurmray   0.1 s] start: job 7 on 2 nodes, head node node1, logs in /runs/7-0/logs\n"
TRAINER = "[slurmray   1.0 s] trainer: python3 train.py\n"
UNKNOWN = "The cause is not known to slurmray."


class Case:
    """A job with id 7: its record, its line in the accounting, its log, its events, and what is asked."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
        self.folder, self.capsys = folder, capsys
        monkeypatch.setenv("PATH", f"{folder}/bin:/usr/bin:/bin")
        monkeypatch.setenv("XDG_STATE_HOME", str(folder / "state"))
        monkeypatch.chdir(folder)

    def slurm(self, record: str = "", accounting: str = "") -> None:
        """record: fields of scontrol besides folder and log; "": Slurm has forgotten the job."""
        fields = f"{record}\nWorkDir={self.folder}\nStdOut={self.folder}/slurm-7.out".replace("\n", "\n   ")
        fields = f"JobId=7 JobName=mine\n   {fields}\n"
        scontrol, squeue = (f"cat <<'END'\n{fields}END", OWN) if record else (FORGOTTEN, FORGOTTEN)
        sacct = f"printf '%s' '{accounting}'"
        install(self.folder / "bin", scontrol=scontrol, squeue=squeue, sacct=sacct)

    def log(self, text: str) -> None:
        (self.folder / "slurm-7.out").write_text(text)

    def events(self, *lines: str) -> None:
        run = self.folder / "slurmray-runs/7-0"
        run.mkdir(parents=True, exist_ok=True)
        (run / "events.jsonl").write_text("".join(lines))

    def node_logs(self, **texts: str) -> None:
        """Logs of nodes and of services, by their names without .log."""
        logs = self.folder / "slurmray-runs/7-0/logs"
        logs.mkdir(exist_ok=True)
        for name, text in texts.items():
            (logs / f"{name}.log").write_text(text)

    def ask(self, verb: str = "why") -> str:
        code, out, err = main([verb, "7"], self.capsys)
        assert code == 0, err
        for each in ("explain CODE", "JOBID", "Most often memory"):
            assert each not in out
        return " ".join(out.split())


@pytest.fixture
def case(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Case:
    return Case(tmp_path, monkeypatch, capsys)


CANCELLED = "JobState=CANCELLED ExitCode=0:15"
STEPD = "slurmstepd-node1: error: *** JOB 7 ON node1 CANCELLED AT 2026-11-26T10:31:05{} ***\n"


@pytest.mark.parametrize(
    ("accounting", "stepd", "expected"),
    [
        ("CANCELLED by 2|2\n", "", "CANCELLED by you at 2026-11-26 10:31, with scancel."),
        ("CANCELLED by 2|1001\n", "", "CANCELLED by the user bin at 2026-11-26 10:31."),
        ("CANCELLED by 987654|1001\n", "", "CANCELLED by the user uid 987654 at 2026-11-26 10:31."),
        (
            "CANCELLED by 0|2\n",
            "",
            "by the user root at 2026-11-26 10:31: an administrator, or Slurm itself.",
        ),
        (
            "",
            "",
            "at 2026-11-26 10:31 with scancel, by you or an administrator, or by Slurm: it does not record",
        ),
        ("CANCELLED by 2|2\n", " DUE TO TIME LIMIT", "by Slurm at 2026-11-26 10:31: due to time limit."),
    ],
)
def test_who_cancelled_it(case: Case, accounting: str, stepd: str, expected: str) -> None:
    """The trainer's end after that is no cause, whatever it printed meanwhile."""
    case.slurm(CANCELLED, accounting)
    stop = "[slurmray   9.0 s] stop: scancel, preemption or the time limit ends the job\n"
    end = "[slurmray  10.0 s] done: trainer exited with 137 (128 + signal KILL)\n"
    oom = "slurmstepd: error: Detected 1 oom_kill event in StepId=7.0. Some of the step tasks\n"
    case.log(START + TRAINER + STEPD.format(stepd) + stop + oom + end)
    shown = case.ask()
    assert shown.startswith("job 7, mine: CANCELLED ")
    assert expected in shown
    assert "cause" not in shown
    assert "memory" not in shown


def test_only_the_last_attempt_was_cancelled(case: Case) -> None:
    """Slurm has ended the attempt before, too, in order to requeue the job."""
    case.slurm(CANCELLED)
    earlier = STEPD.format(" DUE TO NODE FAILURE, SEE SLURMCTLD LOG FOR DETAILS").replace("T10", "T08")
    case.log(START + TRAINER + earlier + START + TRAINER + STEPD.format(""))
    shown = case.ask()
    assert "CANCELLED at 2026-11-26 10:31 with scancel, by you or an administrator" in shown
    assert "node failure" not in shown.lower()


def test_cancelled_with_slurmray(case: Case) -> None:
    """Only the last job of this number, on this cluster."""
    case.slurm(CANCELLED)
    then = time.mktime((2026, 11, 26, 10, 31, 0, 0, 0, -1))
    history.remember_cancel(7, None, "c2", None, then)
    history.remember_cancel(8, None, None, None, then)
    assert "by you or an administrator" in case.ask()
    history.remember_cancel(7, None, None, None, then)
    assert (
        case.ask() == "job 7, mine: CANCELLED by you, with slurmray, at 2026-11-26 10:31. It had not started"
    )
    history.remember(history.Run(7, "mine", None, str(case.folder), "slurmray-runs", then + 9, 1, 0))
    assert "with slurmray" not in case.ask()


def test_a_lost_head_node_cancels_no_job_of_its_owner(case: Case) -> None:
    case.slurm(CANCELLED, "CANCELLED by 2|2\n")
    case.log(START + TRAINER)
    text = "node2: no heartbeat from the head node node1 for 25 s. Has it lost power or its network?"
    start, loss = event_line("start", **NODES), event_line("node_loss", node="node1", text=text)
    case.events(start, loss, event_line("stop"))
    assert case.ask().startswith(
        f"job 7, mine: CANCELLED by slurmray on another node, after the loss of the head node. {text}"
    )


def test_a_lost_worker_cancels_nothing(case: Case) -> None:
    """With on_node_loss: continue."""
    case.slurm(CANCELLED, "CANCELLED by 2|2\n")
    case.log(START + TRAINER)
    start, loss = event_line("start", **NODES), event_line("node_loss", node="node2", text=LOSS)
    case.events(start, loss)
    shown = case.ask()
    assert shown.startswith("job 7, mine: CANCELLED by you, with scancel. ")
    assert LOSS not in shown


@pytest.mark.parametrize("verb", ["why", "status"])
def test_the_job_that_it_waited_for_has_failed(case: Case, verb: str) -> None:
    record = (
        "ExitCode=0:0 Reason=DependencyNeverSatisfied Dependency=afterok:41_*(failed),afterany:5(unfulfilled)"
    )
    case.slurm(f"JobState=CANCELLED {record}")
    expected = "the job that it waited for, 41_* (afterok), ended otherwise"
    assert expected in case.ask(verb)
    case.slurm(f"JobState=PENDING {record}")
    assert f"never starts, as {expected}: cancel it" in case.ask(verb)
    case.slurm("JobState=CANCELLED ExitCode=0:0 Reason=Dependency Dependency=afterok:41(unfulfilled)")
    assert "ended otherwise" not in case.ask(verb)


@pytest.mark.parametrize(
    ("record", "log", "expected"),
    [
        (
            "JobState=FAILED ExitCode=64:0",
            "[slurmray   0.1 s] failed (64 config): env.X is not set\n",
            "env.X is not set",
        ),
        (
            "",
            START + TRAINER + "bad\n[slurmray   9.0 s] done: trainer exited with 3\n",
            "done: trainer exited with 3",
        ),
        ("", START + "[slurmray   9.0 s] failed (66 image): node2: no such image\n", "node2: no such image"),
    ],
)
def test_the_log_has_the_end(case: Case, record: str, log: str, expected: str) -> None:
    """Without a run directory, whether Slurm knows the job or not."""
    case.slurm(record)
    case.log(log)
    shown = case.ask()
    assert shown.startswith(f"job 7{', mine' if record else ''}: FAILED. ")
    assert expected in shown
    assert "no last line" not in shown
    assert "FAILED" in case.ask("status")


@pytest.mark.parametrize(
    ("record", "expected", "is_known"),
    [
        ("JobState=FAILED ExitCode=0:53", "0:53: Slurm could not start the batch script", True),
        ("JobState=FAILED ExitCode=0:9", "0:9: SIGKILL ended the batch script", False),
        ("JobState=FAILED ExitCode=0:11", "0:11: SIGSEGV ended the batch script", False),
        ("JobState=FAILED ExitCode=1:0", "Slurm's exit code is 1:0; the job wrote no last line", False),
        ("JobState=TIMEOUT ExitCode=0:15", "TIMEOUT: the job reached its time limit", True),
        ("JobState=OUT_OF_MEMORY ExitCode=0:125", "because memory ran out", True),
        ("JobState=PREEMPTED ExitCode=0:15", "PREEMPTED: another job took the nodes", True),
        ("JobState=REVOKED ExitCode=0:0", "REVOKED: another cluster of the federation started the job", True),
    ],
)
def test_what_slurm_says(case: Case, record: str, expected: str, is_known: bool) -> None:
    case.slurm(record)
    shown = case.ask()
    assert expected in shown
    assert (UNKNOWN not in shown) == is_known


def failed(kind: str, code: int, node: str, text: str, shown: str = "") -> str:
    last = f"[slurmray   8.0 s] last lines of /runs/7-0/logs/{node}.log:\n{shown}" if shown else ""
    kind = kind.replace("_", " ")
    return f"{START}{last}[slurmray   9.0 s] failed ({code} {kind}): {node}: {text}\n"


@pytest.mark.parametrize(
    ("record", "is_remembered", "command"),
    [
        ("Command=/home/a/my jobs/x.sh", False, "sbatch --exclude=node2 '/home/a/my jobs/x.sh'"),
        (
            "ReqNodeList=(null) ExcNodeList=bad[1-2]\nCommand=/x.sh",
            False,
            "sbatch '--exclude=bad[1-2],node2' /x.sh",
        ),
        (
            "Command=(null)\nReqNodeList=(null) ExcNodeList=(null)",
            True,
            "slurmray submit ... --exclude=node2",
        ),
        ("Command=(null)", False, "sbatch --exclude=node2 generated.sh"),
    ],
)
def test_a_lost_node_is_left_out_by_a_command_to_copy(
    case: Case, record: str, is_remembered: bool, command: str
) -> None:
    if is_remembered:
        history.remember(history.Run(7, "mine", None, str(case.folder), "slurmray-runs", 1.0, 2, 0))
    case.slurm(f"JobState=FAILED ExitCode=71:0\n{record}")
    text = "no heartbeat for 25 s. Has it lost power or its network?"
    case.log(failed("node_lost", 71, "node2", text))
    end = {"source": "slurmray", "kind": "node_lost", "node": "node2"}
    case.events(event_line("end", exit_code=71, text=f"failed (71 node lost): node2: {text}", **end))
    shown = case.ask()
    assert UNKNOWN in shown
    assert f"Leave a bad node out: {command}." in shown
    assert f"Leave a bad node out: {command}." in case.ask("status")


STALE = (
    "Error: crun: cannot stat /usr/lib64/libcuda.so.575.1: No such file or directory: OCI runtime attempted\n"
)


@pytest.mark.parametrize(
    ("log", "lines", "cause"),
    [
        (failed("bring_up", 67, "node2", "podman exited with 127", STALE), STALE, "older than the driver"),
        (failed("service", 70, "node2", "service judge exited with 1", "no GPU\n"), "no GPU\n", ""),
        (
            START
            + "node | 1 | findings\n"
            + TRAINER
            + "step 1\nboom\n[slurmray   9.0 s] done: trainer exited with 2\n",
            "the job's log: step 1 boom\n",
            "",
        ),
        (
            # Said long ago; the job went on.
            START
            + TRAINER
            + "Address already in use\n"
            + "step\n" * 20
            + "[slurmray   9.0 s] done: trainer exited with 1\n",
            "the job's log: " + "step " * 15,
            "",
        ),
        (START + TRAINER + "[slurmray   9.0 s] done: trainer exited with 1\n", "nothing was printed", ""),
    ],
)
def test_the_last_lines_and_what_is_known_of_them(case: Case, log: str, lines: str, cause: str) -> None:
    case.slurm("JobState=FAILED ExitCode=1:0")
    case.log(log)
    shown = case.ask()
    assert " ".join(lines.split()) in shown, shown
    if cause:
        assert (
            f"cause: The node's CDI specification names files that are not there any more: it is {cause}"
            in shown
        )
        assert "ray.port" not in shown
    assert (UNKNOWN in shown) == (not cause)
    assert "job spec" not in shown
    assert " cause: A port" not in shown


@pytest.mark.attack("escape sequences in what a job prints")
@pytest.mark.parametrize("text", ["\x1b]0;title\x07", "\x1b[2J", "\x9b31m", "a\rb\x08"])
def test_no_control_character_reaches_the_terminal(
    case: Case, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    case.slurm("JobState=FAILED ExitCode=1:0")
    case.log(f"{START}{TRAINER}{text}[Errno 28]\n[slurmray   9.0 s] done: trainer exited with 1{text}\n")
    _, out, _ = main(["why", "7"], capsys)
    assert "[Errno 28]" in out
    assert not [each for each in out if not (each.isprintable() or each == "\n")]


NODES = {"attempt": 0, "nodes": ["node1", "node2"], "head": "node1", "ray_nodes": 2, "components": [2]}
LOSS = "no heartbeat for 25 s. Has it lost power or its network?"
RESTART = f"restart 1 of 3: node2: {LOSS}; node4 takes the place of node2"


def restarted(last_line: str) -> tuple[str, ...]:
    """Events of a job with two spare nodes: one is set aside, and one takes the place of node2."""
    again = {"nodes": ["node1", "node4"], "spares": [], "failed": ["node2"], "text": RESTART}
    lines = (
        event_line("start", spares=["node3", "node4"], **NODES),
        event_line("trainer"),
        event_line("set_aside", node="node3", text=LOSS),
        event_line("restart", restart=1, **again),
        event_line("trainer"),
    )
    end = {"exit_code": 71, "source": "slurmray", "kind": "node_lost", "node": "node4", "text": last_line}
    return (*lines, event_line("end", **end)) if last_line else lines


def test_restarts_and_nodes_that_were_set_aside(
    case: Case, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    case.slurm("JobState=RUNNING ExitCode=0:0")
    case.events(*restarted(""))
    monkeypatch.setattr("slurmray.cli.why.clock", lambda _: "2026-11-26 10:31")
    code, out, _ = main(["why", "7"], capsys)
    assert code == 0
    assert " ".join(out.split()) == (
        "job 7, mine has not ended: RUNNING, training "
        f"2026-11-26 10:31: set aside: node3: {LOSS} 2026-11-26 10:31: {RESTART}"
    )
    shown = json.loads(main(["why", "7", "--json"], capsys)[1])
    assert [(each["node"], each["text"]) for each in shown["restarts"]] == [("node2", RESTART)]
    assert [(each["node"], each["text"]) for each in shown["set_aside"]] == [("node3", LOSS)]
    shown = case.ask("status")
    assert "RUNNING on 2 nodes, head node node1, 1 restart" in shown
    assert f" {RESTART} " in shown
    assert "spare nodes: none left" in shown
    assert f"set aside: node3: {LOSS}" in shown
    case.events(event_line("start", spares=["node3", "node4"], **NODES))
    assert "spare nodes: node[3-4]" in case.ask("status")
    case.events(event_line("start", spares=[], **NODES))
    assert "spare nodes" not in case.ask("status")


def test_a_job_that_ends_without_a_spare_node(case: Case) -> None:
    """The command to copy leaves out all nodes that failed."""
    case.slurm("JobState=FAILED ExitCode=71:0\nCommand=/x.sh")
    text = f"failed (71 node lost): node4: {LOSS}; {TOO_FEW}"
    case.log(START + TRAINER + f"[slurmray   9.0 s] {text}\n")
    case.events(*restarted(text))
    shown = case.ask()
    assert shown.startswith(f"job 7, mine: FAILED. {text} ")
    assert UNKNOWN not in shown
    assert "cause: More nodes failed than the job had spare nodes." in shown
    assert shown.count("fix:") == 1
    for each in ("`sinfo -R`", "sbatch --exclude=node2,node3,node4 /x.sh", "`spares`"):
        assert each in shown
    assert "`spares`" in case.ask("status")


def test_a_node_that_failed_twice_is_left_out_once(case: Case) -> None:
    case.slurm("JobState=FAILED ExitCode=71:0\nCommand=/x.sh")
    text = "failed (71 node lost): node2: the raylet was killed"
    case.log(START + TRAINER + f"[slurmray   9.0 s] {text}\n")
    again = {"nodes": ["node1", "node2"], "spares": [], "failed": ["node2"], "text": "restart 1 of 3: x"}
    end = {"exit_code": 71, "source": "slurmray", "kind": "node_lost", "node": "node2", "text": text}
    case.events(event_line("start", **NODES), event_line("restart", **again), event_line("end", **end))
    assert "sbatch --exclude=node2 /x.sh" in case.ask()


@pytest.mark.parametrize(("node", "is_shown"), [("node2", True), ("node3", True), ("node4", False)])
def test_findings_hide_the_last_lines_only_if_they_ended_the_job(
    case: Case, node: str, is_shown: bool
) -> None:
    """Those of a node that was replaced, or of a spare node, did not."""
    case.slurm("JobState=FAILED ExitCode=1:0")
    case.log(f"{START}{TRAINER}FATAL: bad flag\n[slurmray   9.0 s] done: trainer exited with 1\n")
    again = {"nodes": ["node1", "node4"], "spares": [], "failed": ["node2"], "text": "start again: x"}
    case.events(
        event_line("start", spares=["node3", "node4"], **NODES),
        event_line("finding", node=node, kind="preflight"),
        event_line("set_aside", node="node3", text=LOSS),
        event_line("restart", restart=0, **again),
    )
    assert ("last lines of the job's log: FATAL: bad flag" in case.ask()) == is_shown


LOST = "failed (71 node lost): node2: Slurm has marked it down. Has it lost power or its network?"
WORKER_LOST = {"exit_code": 71, "source": "slurmray", "kind": "node_lost", "node": "node2", "text": LOST}
# Of `srun sleep` on two nodes.
RECORDS = Path(__file__).parents[1] / "slurm/records"
VERSIONS = ["22.05", "24.11", "26.05"]
NODE_FAIL = "JobState=NODE_FAIL ExitCode=71:0\nStartTime=1 EndTime=4102444800\nCommand=/x.sh"


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("has_end", [True, False])
def test_the_node_that_is_left_out_is_the_lost_one(case: Case, version: str, has_end: bool) -> None:
    """Slurm was first. The other node has written the line about the end of the job."""
    case.slurm(NODE_FAIL)
    slurms = (RECORDS / version / "log-node-failure.txt").read_text()
    case.log(START + TRAINER + slurms + f"[slurmray   9.0 s] {LOST}\n" * has_end)
    events = event_line("start", **NODES), event_line("trainer"), event_line("stop")
    case.events(*events, *[event_line("end", **WORKER_LOST)] * has_end)
    shown = case.ask()
    assert shown.startswith(f"job 7, mine: NODE_FAIL. {LOST if has_end else 'Slurm'}")
    assert "log, on node2: srun: error: Node failure on node2" in shown
    assert "sbatch --exclude=node2 /x.sh" in shown
    assert "exclude=node1" not in shown + case.ask("status")


@pytest.mark.parametrize("is_accounted", [False, True])
def test_only_slurm_has_noticed_the_loss_of_the_head_node(case: Case, is_accounted: bool) -> None:
    """The batch script ended with its host."""
    case.slurm("" if is_accounted else NODE_FAIL, f"{os.getuid()}|me|NODE_FAIL|0:0\n" if is_accounted else "")
    case.log(START + TRAINER)
    case.events(event_line("start", **NODES), event_line("trainer"))
    text = "node1: Slurm has marked the head node down. Has it lost power or its network?"
    assert case.ask().startswith(f"job 7{', mine' * (not is_accounted)}: NODE_FAIL. {text} ")
    for verb in ("why", "status"):
        shown = case.ask(verb)
        assert text in shown
        assert "--exclude=node1" in shown
    assert main(["report", "7"], case.capsys)[0] == 0
    page = (case.folder / "slurmray-7.html").read_text()
    assert f"<td>node loss: {text}</td>" in page
    assert "No node was lost" not in page
    if not is_accounted:
        assert slurmray.Job(7, folder=case.folder).bad_nodes() == {"node1": text}
        (start,) = slurmray.Job(7, folder=case.folder).status().starts
        assert (start.failed, start.ended) == ("node1", 4102444800.0)


@pytest.mark.parametrize(
    ("record", "events"),
    [
        ("JobState=FAILED ExitCode=0:9", []),
        ("JobState=NODE_FAIL ExitCode=0:15", [event_line("stop")]),
        ("JobState=RUNNING ExitCode=0:0", []),
    ],
)
def test_another_end_that_is_not_recorded_is_no_loss_of_the_head_node(
    case: Case, record: str, events: list[str]
) -> None:
    case.slurm(record)
    case.events(event_line("start", **NODES), *events)
    assert "head node down" not in case.ask() + case.ask("status")


@pytest.mark.parametrize("has_events", [True, False])
def test_while_slurm_waits_for_a_lost_node(case: Case, has_events: bool) -> None:
    """For up to SlurmdTimeout. The last line of the job's log is its end."""
    case.slurm("JobState=COMPLETING ExitCode=71:0\nCommand=/x.sh")
    case.log(START + TRAINER + f"[slurmray   9.0 s] {LOST}\n")
    if has_events:
        case.events(event_line("start", **NODES), event_line("end", **WORKER_LOST))
    shown = case.ask()
    assert shown.startswith(f"job 7, mine: FAILED. {LOST} ")
    assert "has not ended" not in shown
    assert has_events == ("sbatch --exclude=node2 /x.sh" in shown)
    assert json.loads(main(["why", "7", "--json"], case.capsys)[1])["state"] == "FAILED"


def test_a_job_that_slurm_is_ending_or_starts_again_has_not_ended(case: Case) -> None:
    case.slurm("JobState=COMPLETING ExitCode=0:0")
    start, end = event_line("start", **NODES), event_line("end", **WORKER_LOST)
    for log, events in (
        (START + TRAINER, [start]),
        (START + TRAINER + f"[slurmray   9.0 s] {LOST}\n", [start, event_line("requeue"), end]),
    ):
        case.log(log)
        case.events(*events)
        assert case.ask().startswith("job 7, mine has not ended: COMPLETING")


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("way", ["scancel", "time-limit"])
def test_what_follows_from_slurms_end_is_no_failure(case: Case, version: str, way: str) -> None:
    """srun's messages about tasks, and slurmstepd's, only tell that Slurm has ended the job."""
    case.slurm("JobState=CANCELLED ExitCode=0:15" if way == "scancel" else "JobState=TIMEOUT ExitCode=0:15")
    case.log(START + TRAINER + (RECORDS / version / f"log-{way}.txt").read_text())
    history.remember_cancel(7, None, None, None, time.mktime((2026, 11, 26, 10, 31, 0, 0, 0, -1)))
    shown = case.ask()
    assert "The failure before it" not in shown
    assert "Look for" not in shown
    assert "who cancelled" not in shown
    if way == "scancel":
        assert shown.startswith("job 7, mine: CANCELLED by you, with slurmray, at 2026-11-26 10:31.")
        assert "fix:" not in shown
    else:
        assert "Raise slurm.time." in shown


@pytest.mark.parametrize(("nodes", "is_left_out"), [(["node1"], True), (["node1", "node2"], False)])
def test_nodes_are_left_out_only_if_others_are_better(
    case: Case, nodes: list[str], is_left_out: bool
) -> None:
    case.slurm("JobState=FAILED ExitCode=65:0\nCommand=/x.sh")
    text = "failed (65 preflight): node1: container runtime: podman: not found"
    end = {"exit_code": 65, "source": "slurmray", "kind": "preflight", "node": "node1", "text": text}
    findings = [event_line("finding", node=node, kind="preflight") for node in nodes]
    warning = event_line("finding", node="node2", kind="warn")
    case.events(event_line("start", **NODES), *findings, warning, event_line("end", **end))
    shown = case.ask("status")
    assert "The log names the node, what is wrong and what to do about it." in shown
    assert ("exclude it: sbatch --exclude=node1 /x.sh." in shown) == is_left_out
    assert ("exclude" in shown) == is_left_out


def test_a_misspelt_command_is_a_known_cause(case: Case) -> None:
    case.slurm("JobState=FAILED ExitCode=127:0")
    end = "[slurmray   9.0 s] done: trainer exited with 127\n"
    case.log(START + TRAINER + "slurmray: pyhton3: No such file or directory\n" + end)
    shown = case.ask()
    assert "cause: A program is not installed where the command runs" in shown
    assert "fix: Check its name." in shown
    assert UNKNOWN not in shown
