"""The controller as a real process of a batch script; a stand-in for srun plays the node."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from slurmray.agent import loader
from slurmray.agent import script_parts as parts
from slurmray.agent.background_io import CallQueue
from slurmray.agent.controller import run_directory, step
from slurmray.agent.controller.job_run import LOST_OUTPUT_WAIT, JobRun
from slurmray.agent.controller.state import Requests
from slurmray.agent.job_log import event_line
from slurmray.agent.loop import Loop
from slurmray.loading.load import load_plan
from slurmray.loading.validate import make_plan
from slurmray.rendering.script import render_script
from slurmray.spec.job_spec import JobSpec
from tests.unit.agent.containers import job as make_job
from tests.unit.agent.containers import quick
from tests.unit.agent.simulation import RecordedLog
from tests.unit.agent.users import umask_is
from tests.unit.agent.waiting import wait_for_text, wait_until

HANG = 30  # seconds

# Plays the only node of a job: reads the script, then answers messages. plays: see Job.
SRUN = """
import json, os, shutil, sys, time, zlib
sys.path.insert(0, {root!r})
from tests.unit.agent.peer import Peer
from tests.unit.agent.wire_types import TO_CONTROLLER, TO_NODES
plays, folder = {plays!r}, {folder!r}
stream = zlib.decompressobj()
text = b""
while not stream.eof:
    text += stream.decompress(os.read(0, 65536))
peer = Peer(0, 1, TO_CONTROLLER, TO_NODES, node="node1")
peer.feed(stream.unused_data)
send = peer.send

def receive(kind):
    while (message := peer.next()) and message["type"] != kind:
        pass
    return message

send("started", step="0")
job = receive("job")["job"]
json.dump(dict(job, text=len(text), srun_env=dict(os.environ)), open(folder + "/job.json", "w"))
if plays == "nothing":
    sys.exit(3)
if plays == "asks":
    send("leftover_jobs", jobs=["5", "6"])
    json.dump(receive("ended_jobs"), open(folder + "/ended", "w"))
print("hello from somebody else", flush=True)
if plays == "hostile":
    for line in (b'{{"v":1,"type":"started"}}', b'{{"v":2,"type":"ready"}}', b"\\xff", b'{{"v":' * 600):
        os.write(1, line + b"\\n")
    send("started", step="0 --signal=KILL 9")
    os.mkdir(job["run_dir"] + "/prepared-x")
    send("prepared", name="x/../../../here")
    send("prepared", name="a\\0b")
if plays == "fails":
    send("failed", kind="image", message="no such image")
else:
    inside = job["run_dir"] + "/../../temp/ray-7-0-" + job["mark"][:6] + "/inside"
    os.makedirs(inside)
    for name in ("out", "err"):
        os.mkfifo(inside + "/" + name)
    send("checked", addresses=["10.0.0.1"], proxy=False, folder=os.path.dirname(inside))
    receive("start_ray")
    send("ready")
    receive("ready")
    send("prepared", name="data@node1")
    send("trainer", command="python3 train.py")
    with open(inside + "/out", "w") as out, open(inside + "/err", "w") as err:
        out.write("trained\\n")
        err.write("warned\\n")
    if plays == "waits":
        open(folder + "/waits", "w").close()
        open(folder + "/stop", "w").write(json.dumps(receive(sys.argv[-1])))
    send("exit", code=int(plays) if plays.isdigit() else 5)
    send("healthy")
    shutil.rmtree(inside)
if receive("succeeded"):
    open(folder + "/succeeded", "w").close()
send("gone")
"""

RECEIVE = "receive(sys.argv[-1])"
STOPPED = "stopped by Slurm: scancel, preemption or the time limit"

# Of `scontrol show job`. Job 14 was submitted from within job 12_3, and belongs to no array.
RECORD = (
    r"JobId=%s JobName=x\n   Requeue=1 Restarts=%d BatchFlag=1\n"
    r"   NumNodes=1 NumCPUs=2 NumTasks=1 CPUs/Task=2 ReqB:S:C:T=0:0:*:*\n"
    r"   TRES=cpu=2,mem=1G,node=1,billing=2\n"
    r"   MinCPUsNode=2 MinMemoryNode=1G MinTmpDiskNode=0\n\n"
)
ARRAY = RECORD % ("13 ArrayJobId=12 ArrayTaskId=0", 0), RECORD % ("12 ArrayJobId=12 ArrayTaskId=3", 0)
RECORDS = {"7": RECORD % ("7", 0), "8": RECORD % ("8", 3), "12": "".join(ARRAY), "13": ARRAY[0]}
RECORDS["14"] = RECORD % ("14", 0)


class Job:
    """A running batch script.

    plays: the trainer's exit code, `nothing` (the step ends), `fails` (the node fails), `asks` (the node
    has leftovers), `hostile` (a program prints messages) or `waits` (the trainer waits for a signal).
    answers: the beginning of scontrol, for sh. edit: of the settings, by hand. srun: what is other in SRUN.
    """

    def __init__(
        self,
        folder: Path,
        plays: str,
        variables: dict[str, str] | None = None,
        answers: str = "",
        edit: tuple[str, str] = ("", ""),
        srun: dict[str, str] | None = None,
        **spec: Any,
    ) -> None:
        self.folder = folder
        (folder / "bin").mkdir()
        root = str(Path(__file__).parents[4])
        program = SRUN.format(root=root, plays=plays, folder=str(folder))
        for old, new in (srun or {}).items():
            assert old in program
            program = program.replace(old, new)
        self.program("srun", program, f"#!{sys.executable}")
        answers += '[ -z "$SLURM_CLUSTERS" ] || exit 1\n'
        answers += 'case "$2" in hostnames) echo node1 ;; config) echo "KillWait = 30 sec" ;;'
        records = " ".join(f"{number}) printf '{text}' ;;" for number, text in RECORDS.items())
        answers += f' job) case "$3" in {records} esac ;; esac'
        self.program("scontrol", answers + '\necho "$*" >>"$CALLS"')
        settings = {"slurm": {"nodes": 1}, "container": {"runtime": "none"}, **spec}
        settings["ray"] = {"temp_dir": "/tmp"}
        (folder / "job.yaml").write_text(json.dumps(settings))
        text = quick(render_script(load_plan(folder / "job.yaml", [], [])))
        self.script = folder / "generated.sh"
        text = text.replace('"temp_dir": "/tmp"', f'"temp_dir": "{folder}/temp"')
        assert edit[0] in text
        self.script.write_text(text.replace(*edit, 1))
        self.process = subprocess.Popen(
            ["bash", str(self.script)],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=(folder / "log").open("wb"),
            stderr=subprocess.STDOUT,
            env={
                "PATH": f"{folder}/bin:{os.environ['PATH']}",
                "HOME": str(folder),
                "CALLS": str(folder / "calls"),
                "SLURMD_NODENAME": "node1",
                "SLURM_JOB_ID": "7",
                "SLURM_JOB_NODELIST": "node1",
                "SLURM_JOB_NUM_NODES": "1",
                "SLURM_JOB_CPUS_PER_NODE": "4(x2),2",
                "SLURM_SUBMIT_DIR": str(folder),
                **(variables or {}),
            },
        )

    def program(self, name: str, body: str, shebang: str = "#!/bin/sh") -> None:
        path = self.folder / "bin" / name
        path.write_text(f"{shebang}\n{body}\n")
        path.chmod(0o755)

    def wait(self) -> tuple[int, str]:
        """Return exit code and log."""
        try:
            code = self.process.wait(HANG)
        finally:
            self.process.kill()
        return code, self.log()

    def ends(self, code: int) -> Job:
        """Wait for its end with that exit code."""
        assert self.wait()[0] == code, self.log()
        return self

    def log(self) -> str:
        return (self.folder / "log").read_text()

    def wait_for(self, name: str) -> Path:
        wait_until((self.folder / name).exists, self.log)
        return self.folder / name

    def wait_for_log(self, text: str) -> None:
        wait_for_text(self.folder / "log", text)

    def wait_for_event(self, name: str) -> None:
        wait_until(lambda: name in [event["event"] for event in self.events()], self.log)

    def job(self) -> dict[str, Any]:
        """Return the field `job` of the message to the nodes, with environment and script size of srun."""
        job: dict[str, Any] = json.loads((self.folder / "job.json").read_text())
        return job

    def events(self, attempt: int = 0) -> list[dict[str, Any]]:
        lines = (self.folder / f"slurmray-runs/7-{attempt}/events.jsonl").read_text().splitlines()
        return [json.loads(line) for line in lines]


@pytest.mark.parametrize(
    ("before", "after", "part"),
    [
        ('"burn_in": 0', '"burn_in": 20', "burn_in, stages"),
        ('"exit_codes": []', '"exit_codes": [85]', "restart"),
        ('"gpus_per_node": 0', '"gpus_per_node": 8', "gpus, watch"),
    ],
)
def test_settings_that_need_a_part_which_the_script_lacks(
    tmp_path: Path, before: str, after: str, part: str
) -> None:
    """Somebody has edited them by hand."""
    job = Job(tmp_path, "0", edit=(before, after))
    log = job.ends(64).log()
    expected = f"the settings were edited, and need what this script does not have ({part}): "
    expected += "render it again: slurmray render"
    assert log.splitlines()[-1].endswith(f"failed (64 config): {expected}"), log
    assert not (tmp_path / "job.json").exists(), "no step was started"


@pytest.mark.parametrize("code", [0, 7])
def test_from_start_to_end(tmp_path: Path, code: int) -> None:
    job = Job(tmp_path, str(code)).ends(code)
    lines = job.log().splitlines()
    assert "trained" in lines
    assert "warned" in lines
    assert lines[-1].endswith(f"s] done: trainer exited with {code}")
    assert any(line.endswith("] hello from somebody else") for line in lines)
    sent = job.job()
    agent = parts.read_agent(job.script.read_text())
    saved = len(agent.encode()) - len(loader.remove_sections(agent, step.CONTROLLER_ONLY).encode())
    assert sent["text"] == len(job.script.read_bytes()) - saved
    assert (sent["nodes"], sent["cpus"], sent["memory"], sent["grace"]) == (["node1"], [2], [1024], 10)
    assert (sent["id"], sent["name_for_commands"]) == ("7", "7")
    assert (tmp_path / "slurmray-runs/7-0/mark").read_text() == sent["mark"] + "\n\n"
    events = job.events()
    nodes = [event for event in events if event["event"] == "nodes"]
    assert [(event["step"], event["nodes"]) for event in nodes] == [
        ("agent", ["node1"]),
        ("checks", ["node1"]),
    ]
    assert [event["event"] for event in events if event not in nodes] == ["start", "trainer", "end"]
    assert events[0]["ray_nodes"] == 1
    assert (events[-1]["exit_code"], events[-1]["source"]) == (code, "trainer")
    assert (tmp_path / "slurmray-runs/7-0/prepared-data@node1").exists()
    assert (tmp_path / "succeeded").exists() is (code == 0), "or nodes keep Ray's logs"


@pytest.mark.parametrize(("squeue", "ended"), [("echo 5 R", ["6"]), ("exit 0", ["5", "6"]), ("exit 1", [])])
def test_a_node_without_slurm_s_commands_has_leftovers(tmp_path: Path, squeue: str, ended: list[str]) -> None:
    job = Job(tmp_path, "asks")
    job.program("squeue", squeue)
    job.ends(5)
    assert json.loads((tmp_path / "ended").read_text()) == {
        "type": "ended_jobs",
        "node": "node1",
        "jobs": ended,
    }


def test_a_node_that_fails(tmp_path: Path) -> None:
    log = Job(tmp_path, "fails").ends(66).log()
    assert log.splitlines()[-1].endswith("failed (66 image): node1: no such image")


def test_a_log_that_cannot_be_read(tmp_path: Path) -> None:
    """Opening it hangs, as on a network file system without a server."""
    stalls = "os.mkfifo(job['run_dir'] + '/logs/node1.log'); send('failed', kind"
    Job(tmp_path, "fails", srun={'send("failed", kind': stalls}).ends(66)


SITE = """{% extends "job.sbatch.j2" %}
{% block site_epilogue %}
	cat "$1/heartbeat" >begin; sleep 2; cat "$1/heartbeat" >end
{% endblock %}
"""


def test_the_site_s_commands_take_long(tmp_path: Path) -> None:
    """Workers still see that this job runs."""
    (tmp_path / "site.j2").write_text(SITE)
    assert Job(tmp_path, "0", template=str(tmp_path / "site.j2")).wait()[0] == 0
    assert (tmp_path / "begin").read_text() != (tmp_path / "end").read_text()


def test_a_step_that_ends_by_itself(tmp_path: Path) -> None:
    log = Job(tmp_path, "nothing").ends(67).log()
    assert log.splitlines()[-1].endswith("node1: the step ended unexpectedly; srun exited with 3")


def test_what_srun_prints(tmp_path: Path) -> None:
    """It names a host that has rebooted, then ends all tasks."""
    lines = "srun: error: Aborting, io error and missing step on node 0\n" + "x" * 100_000 + "\n"
    stop = f"(sys.stderr.write({lines!r}), sys.stderr.flush(), send('tether_lost'), receive('end'))"
    log = Job(tmp_path, "waits", srun={RECEIVE: stop}).ends(71).log()
    assert log.count("x") >= 100_000
    assert log.splitlines()[-1].endswith("node1: its host closed the connection to srun. Has it rebooted?")


@pytest.mark.parametrize(("number", "kind"), [(signal.SIGTERM, "stop"), (signal.SIGURG, "stop_at_limit")])
def test_slurms_signals(tmp_path: Path, number: signal.Signals, kind: str) -> None:
    job = Job(tmp_path, "waits", srun={"sys.argv[-1]": repr(kind)})
    job.wait_for("waits")
    job.process.send_signal(number)
    job.ends(5 if kind == "stop" else 72)
    assert json.loads((tmp_path / "stop").read_text())["type"] == kind


def test_the_end_of_a_job_that_is_moved(tmp_path: Path) -> None:
    """Slurm is asked again; where it does not answer, the time stays as it was."""
    received = tmp_path / "received"  # a message, in which the time is as it was
    record = RECORD.replace(
        r"\n   NumNodes", r"\n   RunTime=1 TimeLimit=%s\n   StartTime=1 EndTime=%s\n   NumNodes"
    )
    first, second = (
        record % ("7", 0, *limit) for limit in (("01:00", 1795998000), ("UNLIMITED", 1827534000))
    )
    answers = f"""if [ "$2 $3" = "job 7" ]; then
    echo x >>"$CALLS.job"
    case $(wc -l <"$CALLS.job") in 1) printf '{first}' ;; *) test -e {received} && printf '{second}' ;; esac
    exit
fi
"""
    more = f'open({str(received)!r}, "w").close(), *[receive("end_time") for _ in range(5)]'
    both = f'[receive("end_time"), {more}]'
    edit = ("END_TIME_INTERVAL = 120.0", "END_TIME_INTERVAL = 0.2")
    job = Job(tmp_path, "waits", answers=answers, edit=edit, srun={RECEIVE: both}).ends(5)
    assert job.job()["end_time"] == 1795998000
    first, _, *more = json.loads((tmp_path / "stop").read_text())
    assert (first["end_time"], more[-1]["end_time"]) == (1795998000, 0)


def test_slurmray_cancel_now(tmp_path: Path) -> None:
    """While the grace period runs. Slurm passes on no signals then."""
    both = 'json.dumps([receive("stop"), open(folder + "/stops", "w").close(), receive("stop")])'
    job = Job(tmp_path, "waits", srun={f"json.dumps({RECEIVE})": both})
    job.wait_for("waits")
    file = tmp_path / "slurmray-runs/7-0/cancel-now"
    assert file.read_text() == ""
    job.process.send_signal(signal.SIGTERM)
    job.wait_for("stops")
    file.write_text("now\n")
    job.ends(5)
    first, _, second = json.loads((tmp_path / "stop").read_text())
    assert (first["seconds"], second["seconds"]) == (10, 0)
    names = [event["event"] for event in job.events() if event["event"] != "nodes"]
    assert names == ["start", "trainer", "stop", "stop_now", "end"]


def test_a_job_that_is_not_cancelled_ignores_the_file(tmp_path: Path) -> None:
    job = Job(tmp_path, "waits", srun={RECEIVE: '[receive("heartbeat") for _ in range(4)][-1]'})
    job.wait_for("waits")
    (tmp_path / "slurmray-runs/7-0/cancel-now").write_text("now\n")
    job.ends(5)
    assert "stop" not in [event["event"] for event in job.events()]


def test_heartbeats_while_the_run_directory_stalls(tmp_path: Path) -> None:
    (tmp_path / "slurmray-runs/7-0").mkdir(parents=True)
    events = tmp_path / "slurmray-runs/7-0/events.jsonl"
    os.mkfifo(events)  # opening it to write waits for a reader
    job = Job(tmp_path, "waits", srun={RECEIVE: '[receive("heartbeat") for _ in range(3)][-1]'})
    job.wait_for("stop")
    reader = os.open(events, os.O_RDWR)  # the file system answers again
    job.ends(5)
    os.close(reader)


@pytest.mark.parametrize("way", ["removed", "emptied"])
def test_somebody_removes_the_events(tmp_path: Path, way: str) -> None:
    """The file begins again with `start`, without which its readers know nothing about the job."""
    # `grace` comes before `start`.
    job = Job(tmp_path, "waits", srun={"sys.argv[-1]": repr("stop")}, stop={"grace": 60})
    job.wait_for("waits")
    job.wait_for_event("trainer")
    events = tmp_path / "slurmray-runs/7-0/events.jsonl"
    first = next(event for event in job.events() if event["event"] == "start")
    events.unlink() if way == "removed" else events.write_text("")
    job.process.send_signal(signal.SIGTERM)
    job.ends(5)
    assert job.events()[0] == first
    assert [event["event"] for event in job.events()] == ["start", "stop", "end"]


@pytest.mark.parametrize(
    ("env", "code", "text"),
    [
        ({"SLURM_JOB_NUM_NODES": "2"}, 64, "the allocation has 2 nodes, the script is for 1"),
        ({"SLURM_CPUS_PER_TASK": "1"}, 64, "the allocation has 1 CPU, the script is for 2"),
        ({"SLURM_CPUS_PER_TASK": "3"}, 64, "the allocation has 3 CPUs, the script is for 2"),
        ({"SLURMD_NODENAME": "node9"}, 64, "scontrol show hostnames found 2 nodes, the script is for 1"),
        ({"SLURM_JOB_ID": "8", "SLURM_CLUSTERS": "other"}, 71, "Slurm has restarted the job 3 times"),
        ({"SLURM_JOB_ID": "8"}, 71, "Slurm has restarted the job 3 times; requeue.max is 2"),
        ({"SLURM_SUBMIT_DIR": "/proc"}, 64, "cannot make the run directory /proc/slurmray-runs/7-0"),
        ({"SLURM_JOB_CPUS_PER_NODE": "many"}, 79, "Please report it"),
    ],
)
def test_errors_before_the_step(tmp_path: Path, env: dict[str, str], code: int, text: str) -> None:
    cpus = {"cpus_per_task": 2} if "SLURM_CPUS_PER_TASK" in env else {}
    job = Job(tmp_path, "0", env, slurm={"nodes": 1, **cpus}, requeue={"max": 2}).ends(code)
    assert text in job.log().splitlines()[-1]
    assert not (tmp_path / "job.json").exists()


@pytest.mark.parametrize(
    ("number", "expected"),
    [("13", "12_0"), ("12", "12_3"), ("14", "14")],
)
def test_commands_name_only_this_job_of_an_array(number: str, expected: str, tmp_path: Path) -> None:
    """The array's own id would end or requeue all of its jobs."""
    job = Job(tmp_path, "fails", {"SLURM_JOB_ID": number, "SLURM_ARRAY_TASK_ID": "3"}).ends(66)
    assert (job.job()["id"], job.job()["name_for_commands"]) == (number, expected)


def test_a_task_of_a_sweep_has_its_values(tmp_path: Path) -> None:
    """By Slurm's record: the variables may be those of another job, in which this one was submitted."""
    sweep = {"lr": ["1e-6", "$(exit)"], "batch": ["1", "2"]}
    job = Job(tmp_path, "fails", {"SLURM_JOB_ID": "12", "SLURM_ARRAY_TASK_ID": "0"}, sweep=sweep).ends(66)
    assert job.job()["env"] == {"lr": "$(exit)", "batch": "2"}
    assert "] task 12_3: lr=$(exit) batch=2\n" in job.log()
    assert Path(job.job()["run_dir"]).name == "12_3-0"


@pytest.mark.parametrize("number", ["12", "14"])
def test_a_job_that_is_no_task_of_the_sweep(number: str, tmp_path: Path) -> None:
    job = Job(tmp_path, "fails", {"SLURM_JOB_ID": number}, sweep={"lr": ["1e-6", "5e-6"]}).ends(64)
    assert " is no task of the sweep, which has 2: submit the script with --array=0-1" in job.log()


def test_a_job_of_an_array_that_slurm_does_not_know(tmp_path: Path) -> None:
    job = Job(tmp_path, "fails", {"SLURM_JOB_ID": "9", "SLURM_ARRAY_TASK_ID": "3"}).ends(64)
    assert "scontrol does not show the job 9, a task of an array" in job.log()


def test_a_number_of_restarts_of_another_job(tmp_path: Path) -> None:
    """As in a job that is submitted from inside a restarted one."""
    job = Job(tmp_path, "fails", {"SLURM_RESTART_COUNT": "3"}).ends(66)
    assert job.job()["attempt"] == 0


def test_the_grace_period_is_over_before_slurm_kills(tmp_path: Path) -> None:
    job = Job(tmp_path, "fails", stop={"grace": 60}).ends(66)
    assert job.job()["grace"] == 23
    assert "stop.grace is 23 s here: the cluster's KillWait is 30 s" in job.log()
    assert [event["event"] for event in job.events()] == ["grace", "start", "nodes", "end"]


def test_srun_gets_the_variables_of_the_submitter(tmp_path: Path) -> None:
    """Except variables that change how srun handles input and output."""
    theirs = {"SCRATCH": "/scratch/me", "NODES": "a b", "LINES": "a\nb"}
    unwanted = ("SRUN_LABEL", "SLURM_LABELIO", "SLURM_EXPORT_ENV", "SLURM_STDOUTMODE", "SLURM_UNBUFFEREDIO")
    job = Job(tmp_path, "fails", {**theirs, **dict.fromkeys(unwanted, "1")}).ends(66)
    srun_env = job.job()["srun_env"]
    assert {name: srun_env.get(name) for name in theirs} == theirs
    assert not set(unwanted) & srun_env.keys()


def test_srun_gets_no_options_of_another_allocation(tmp_path: Path) -> None:
    """As in a job that is submitted from inside another one."""
    foreign = {
        **{"SLURM_MEM_PER_CPU": "100", "SLURM_GRES": "gpu:1", "SLURM_GPUS_PER_TASK": "1"},
        **{"SLURM_NTASKS_PER_GPU": "1", "SLURM_TIMELIMIT": "1", "SLURM_DISTRIBUTION": "cyclic"},
        **{"SLURM_GPU_BIND": "single:1", "SLURM_STEP_GRES": "none", "SLURM_EXACT": "1"},
    }
    own = {"SLURM_MEM_PER_NODE": "1024", "SLURM_GPUS_PER_NODE": "4", "SLURM_HINT": "nomultithread"}
    slurm = {"nodes": 1, "mem": "1G", "gpus_per_node": 4, "hint": "nomultithread"}
    job = Job(tmp_path, "fails", {**foreign, **own, "SLURM_CPUS_PER_TASK": "64"}, slurm=slurm).ends(66)
    sent = job.job()
    assert sent["cpus"] == [2]
    assert not foreign.keys() & sent["srun_env"].keys()
    assert own.items() <= sent["srun_env"].items()


def test_a_value_of_the_submitter(tmp_path: Path) -> None:
    job = Job(tmp_path, "0", {"KEY": "secret"}, env={"KEY": None}).ends(0)
    assert job.job()["env"] == {"KEY": "secret"}
    assert "secret" not in job.log() + job.script.read_text()


def test_a_value_that_the_submitter_does_not_have(tmp_path: Path) -> None:
    job = Job(tmp_path, "0", env={"KEY": None}).ends(64)
    assert "env.KEY is not set where the job was submitted" in job.log()


@pytest.mark.attack("messages that a program in the container writes", inputs=7)
def test_a_program_that_prints_messages(tmp_path: Path) -> None:
    job = Job(tmp_path, "hostile").ends(5)
    assert "message of protocol version 2, this agent uses version 1" in job.log()
    assert not (tmp_path / "here").exists()
    assert (tmp_path / "slurmray-runs/7-0/prepared-data@node1").exists()


def test_a_restart_that_the_trainer_requests(tmp_path: Path) -> None:
    """Nobody else can write to files of the run directory, even without a umask."""
    with umask_is(0):
        job = Job(tmp_path, "75", requeue={"exit_code": 75})
    job.ends(75)
    paths = list((tmp_path / "slurmray-runs").rglob("*"))
    names = {"events.jsonl", "heartbeat", "requeue-requested", "prepared-data@node1"}
    assert names <= {path.name for path in paths}
    assert not [path for path in paths if path.stat().st_mode & 0o022]
    assert "requeue Incomplete 7\n" in (tmp_path / "calls").read_text()
    assert (tmp_path / "slurmray-runs/7-0/requeue-requested").exists()
    assert "requeue: requested by the trainer with exit code 75; attempt 1 follows" in job.log()


def test_an_exit_code_that_asks_for_another_start_in_the_allocation(tmp_path: Path) -> None:
    """It helps once: the next trainer exits in the same way within `restart.window`."""
    job = Job(tmp_path, "75", restart={"exit_codes": [75]}).ends(75)
    assert "] restart 1 of 3: the trainer exited with 75; on the same nodes\n" in job.log()
    assert "] not started again: the same has happened" in job.log()
    assert job.log().count("\ntrained\n") == 2
    assert job.job()["restart"] == 1
    assert run_directory.count_restarts(str(tmp_path / "slurmray-runs/7-0"), 3) == 1


def test_restarts_that_the_trainer_requested_do_not_count(tmp_path: Path) -> None:
    """Job 8 has been restarted 3 times: twice as its trainer requested, and once after a lost node."""
    for attempt in (0, 2):
        folder = tmp_path / f"slurmray-runs/8-{attempt}"
        folder.mkdir(parents=True)
        (folder / "requeue-requested").touch()
        (folder / "mark").write_text("0123\n\n")  # the second line is the cluster, which has no name
        (folder / "events.jsonl").write_text(event_line("restart", {"restart": attempt + 1, "nodes": []}))
    job = Job(tmp_path, "nothing", {"SLURM_JOB_ID": "8"}, requeue={"max": 1, "exit_code": 75})
    job.wait()
    sent = job.job()
    assert (sent["chances"], sent["attempt"], sent["restarts_before"]) == (0, 3, 4)


def make_run(files: CallQueue | None = None, spec: dict[str, Any] | None = None, **job: Any) -> JobRun:
    text = render_script(make_plan(JobSpec.model_validate(spec or {"ray": {"metrics": True}})))
    job = make_job(**{"nodes": ["node1"], "batch_host": "node1", **job})
    component: Any = SimpleNamespace(record="")
    files = files or CallQueue("the run directory")
    return JobRun(text, cast(Any, job), [component], RecordedLog(), files, Requests(), Loop(print))


def test_settings_of_a_start_on_fewer_nodes() -> None:
    spec = {"slurm": {"nodes": 3}, "on_node_loss": "restart", "restart": {"min_nodes": 1}}
    run = make_run(spec=spec, nodes=["node2", "node3"])
    assert run.controller.settings["ray"]["nodes"] == 2


def test_a_restart_while_slurmctld_does_not_answer(tmp_path: Path) -> None:
    (tmp_path / "is-down").touch()
    answers = """
    if [ "$1" = ping ]; then
        if [ -e is-down ]; then rm is-down; rm -f */*/heartbeat; exit 1; fi
        [ -e seen ] || ls */*/heartbeat >seen
    fi
    """
    job = Job(tmp_path, "5", restart={"exit_codes": [5], "max": 1}, answers=answers)
    log = job.ends(5).log()
    assert log.count("] slurmctld does not answer; the next start waits for it\n") == 1, log
    assert log.count("] trainer: ") == 2, log
    assert "heartbeat" in (tmp_path / "seen").read_text(), "or a worker that was cut off ends the job"


@pytest.mark.parametrize(
    ("number", "expected", "last"),
    [
        (signal.SIGTERM, 143, STOPPED),
        (signal.SIGURG, 72, "the trainer had not started, or ended without an exit code"),
    ],
)
def test_the_end_of_a_job_that_waits_for_slurmctld(
    tmp_path: Path, number: signal.Signals, expected: int, last: str
) -> None:
    """At once, while a ping hangs, and without another step."""
    answers = 'if [ "$1" = ping ]; then touch asked; exec sleep 1000; fi\n'
    job = Job(tmp_path, "5", restart={"exit_codes": [5]}, answers=answers)
    job.wait_for("asked")
    (tmp_path / "job.json").unlink()
    job.process.send_signal(number)
    log = job.ends(expected).log()
    assert log.splitlines()[-1].endswith(last), log
    assert "the trainer gets" not in log, "none runs"
    assert "slurmctld does not answer" not in log, "nobody has waited for its answer"
    assert not (tmp_path / "job.json").exists(), "a step was started"


def test_the_end_of_a_job_before_its_first_step(tmp_path: Path) -> None:
    answers = 'if [ "$2" = config ]; then touch asked; until [ -e go ]; do sleep 0.1; done; fi\n'
    job = Job(tmp_path, "5", answers=answers)
    job.wait_for("asked")
    job.process.send_signal(signal.SIGTERM)
    (tmp_path / "go").touch()
    code, log = job.wait()
    assert (code, log.splitlines()[-1].partition("] ")[2]) == (143, STOPPED), log
    assert not (tmp_path / "job.json").exists(), "a step was started"


def test_tasks_are_in_slurm_s_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """srun names them by their place in it, and `slurm.batch` puts another node first."""
    outbox = SimpleNamespace(send=lambda _: None)
    seen: list[tuple[list[str], list[str]]] = []

    def start(argv: list[str], _env: dict[str, str], _job: str, nodes: list[str]) -> SimpleNamespace:
        seen.append((argv, nodes))
        return SimpleNamespace(outbox=outbox)

    monkeypatch.setattr(step, "Step", start)
    text = render_script(make_plan(JobSpec.model_validate({"slurm": {"nodes": 2}, "spares": 1})))
    part: Any = SimpleNamespace(env={"SLURM_JOB_ID": "7"}, cpus=1, record="")
    part.nodes, part.in_order = ["node3", "node1", "node2"], ["node1", "node2", "node3"]
    job: Any = make_job(nodes=["node3", "node1"], spares=["node2"])
    step.start_steps(text, job, [part])
    job["spares"] = []
    step.start_steps(text, job, [part])
    assert [nodes for _, nodes in seen] == [["node1", "node2", "node3"], ["node1", "node3"]]
    assert ["--nodelist=node1,node3" in argv for argv, _ in seen] == [False, True]


def test_a_step_that_reads_the_trainer_s_output_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """srun prints why, and nobody else would notice."""
    monkeypatch.setattr(parts, "story_command", lambda *_: ["bash", "-c", "exit 1"])
    run = make_run(batch_host="node2")
    seen: list[int] = []
    monkeypatch.setattr(run.controller.losses, "on_output_step_over", lambda code, _now: seen.append(code))
    monkeypatch.setattr(run.controller, "tick", lambda _now: None)
    run.read_trainer_output("/nowhere")
    until = time.monotonic() + HANG
    while not seen and time.monotonic() < until:
        run._run_once()
    assert seen[:1] == [1]


@pytest.mark.parametrize(
    ("plays", "variables", "code"),
    [
        ("0", {"SLURM_JOB_CPUS_PER_NODE": "many"}, 65),  # an error: the job is recorded all the same
        ("5", {}, 5),
    ],
)
def test_a_log_on_a_full_disk(tmp_path: Path, plays: str, variables: dict[str, str], code: int) -> None:
    (tmp_path / "log").symlink_to("/dev/full")
    job = Job(tmp_path, plays, variables)
    try:
        assert job.process.wait(HANG) == code
    finally:
        job.process.kill()


def test_writes_after_one_that_fails(
    tmp_path: Path, thread_errors: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever it raises: the same thread writes heartbeats, and reads what `cancel --now` has written."""

    def write_metrics(*_: object) -> None:
        raise UnicodeEncodeError("utf-8", "job\udce9", 3, 4, "surrogates not allowed")

    monkeypatch.setattr(run_directory, "write_metrics", write_metrics)
    files = CallQueue("the run directory")
    run = make_run(files, id="7", name="job\udce9", run_dir=str(tmp_path))
    for _ in range(2):
        run.write_usage({"node1": {"gpu": 97}})
    run.write_heartbeat_file()
    (tmp_path / "cancel-now").write_text("now\n")
    files.submit(run._read_cancel)
    files.finish(HANG)
    assert (tmp_path / "heartbeat").exists()
    assert (tmp_path / "usage.json").exists()
    assert run.requests.is_grace_over
    assert len(thread_errors) == 1


@pytest.mark.parametrize("is_stopped", [False, True])
def test_output_of_a_trainer_without_an_exit_code(tmp_path: Path, is_stopped: bool) -> None:
    """Its last lines are copied, also by a process that was not scheduled, but not waited for for ever."""
    (tmp_path / "inside").mkdir()
    for name in ("out", "err"):
        os.mkfifo(tmp_path / "inside" / name)
    log = os.open(tmp_path / "log", os.O_WRONLY | os.O_CREAT)
    run = make_run(run_dir=str(tmp_path))
    saved = os.dup(1)
    os.dup2(log, 1)
    try:
        run.read_trainer_output(str(tmp_path))
    finally:
        os.dup2(saved, 1)
    (tmp_path / "inside/err").open("wb").close()
    with (tmp_path / "inside/out").open("wb") as out:  # once it is read
        pid = run._readers[0].pid
        os.kill(pid, signal.SIGSTOP)
        out.write(b"Traceback (most recent call last):\n" * 1000)
    if not is_stopped:
        threading.Timer(0.5, os.kill, [pid, signal.SIGCONT]).start()
    begin = time.monotonic()
    run._end_output(LOST_OUTPUT_WAIT)
    assert time.monotonic() - begin < HANG
    for reader in run._readers:
        reader.wait(HANG)
    assert (tmp_path / "log").stat().st_size == (0 if is_stopped else 35000)


@pytest.mark.parametrize("stream", ["out", "err"])
def test_a_trainer_whose_last_line_has_no_newline(tmp_path: Path, stream: str) -> None:
    ends = {
        f'{name}.write("{word}\\n")': f'{name}.write("no newline")' if name == stream else "0"
        for name, word in (("out", "trained"), ("err", "warned"))
    }
    job = Job(tmp_path, "waits", srun={RECEIVE: "0", **ends}).ends(5)
    assert "\nno newline\n" in job.log()
    assert job.log().splitlines()[-1].startswith("[slurmray ")


def test_a_log_whose_file_system_stalls(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its size is read in a thread: the controller goes on, and sends heartbeats."""
    files, is_back, sizes = CallQueue("the run directory"), threading.Event(), []
    run = make_run(files, {"slurm": {"gpus_per_node": 1}}, batch_host="", run_dir="/")
    monkeypatch.setattr(run.controller, "tick", lambda _now: None)
    monkeypatch.setattr(run.controller, "on_log_size", lambda size, _now: sizes.append(size))
    with tempfile.TemporaryFile() as log:
        log.write(b"text")
        log.flush()
        status = os.fstat(log.fileno())

    def fstat(_: int) -> os.stat_result:
        is_back.wait(HANG)
        return status

    monkeypatch.setattr(os, "fstat", fstat)
    begin = time.monotonic()
    run._run_once()
    assert time.monotonic() - begin < HANG / 2
    assert sizes == []
    is_back.set()
    files.finish(HANG)
    run._run_once()
    assert sizes == [4]
