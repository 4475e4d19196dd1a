"""A submitted job; scontrol is a stand-in."""

from __future__ import annotations

import gzip
import json
import os
import resource
import signal
import subprocess
import tarfile
import time
from pathlib import Path
from typing import Any

import pytest

import slurmray
from slurmray import cli, history
from slurmray.agent import ray_logs
from slurmray.agent.container.ray import attach_programs
from slurmray.errors import SlurmError, UsageError
from slurmray.slurm import slurm_commands
from tests.attacks import tried

from ..cli.command_line import main
from ..programs import FORGOTTEN, OWN, install
from ..test_events import event_line
from .test_starts import T0, end, in_ray, start, trainer


@pytest.mark.parametrize("number", [0, -1, True, "7"])
def test_a_job_id_is_a_positive_number(number: int) -> None:
    with pytest.raises(UsageError, match="expected the number of a job"):
        slurmray.Job(number)


class Slurm:
    """Installs scontrol and squeue as the only commands of Slurm, with bash. The job's folder is `folder`."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch):
        self.folder = folder
        monkeypatch.setenv("PATH", f"{folder}/bin")

    def __call__(self, *record: str, owner: str = OWN) -> None:
        """record: its lines after the first, which is $HEAD or of job 7; Slurm has forgotten it without."""
        begin = r"1i JobId=${HEAD:-7} JobName=x\nRequeue=1 ExitCode=0:0"
        lines = "; ".join(f'echo "{line}"' for line in (*record, f"WorkDir={self.folder}"))
        text = f"{{ {lines}; }} | /bin/sed \"{begin}\" | /bin/sed '1!s/^ */   /'"
        script = f"*batch_script*) exec /bin/cat {self.folder}/script;;"
        others = f'case "$*" in {script} *hostnames*) echo gpu-1; echo gpu-2; exit;; esac'
        scontrol, squeue = (text, owner) if record else (FORGOTTEN, FORGOTTEN)
        folder = install(self.folder / "bin", scontrol=f"{others}\n{scontrol}", squeue=squeue)
        (folder / "bash").symlink_to("/bin/bash")


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Slurm:
    return Slurm(tmp_path, monkeypatch)


def make_logs(folder: Path, attempt: int = 0) -> Path:
    """The folder of logs of an attempt of job 7."""
    logs = folder / f"slurmray-runs/7-{attempt}/logs"
    logs.mkdir(parents=True)
    return logs


@pytest.mark.parametrize("state", ["NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED", "TIMEOUT"])
def test_final_states(state: str, slurm: Slurm) -> None:
    slurm(f"JobState={state} ExitCode=0:9")
    assert slurmray.Job(7).wait(timeout=0) == slurmray.End(state, 0, 9)


@pytest.mark.parametrize(("errors", "expected"), [("log", "text\n"), ("errors", "text\nbad\n")])
def test_logs_are_read_once_each(errors: str, expected: str, slurm: Slurm, tmp_path: Path) -> None:
    (tmp_path / "log").write_text("text\n")
    (tmp_path / "errors").write_text("bad\n")
    slurm("JobState=RUNNING", f"StdErr={tmp_path / errors}", f"StdOut={tmp_path}/log")
    assert slurmray.Job(7).logs() == expected


def test_the_run_directory_of_the_job_s_script(
    slurm: Slurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job that `sbatch generated.sh` submitted."""
    slurm("JobState=RUNNING")
    (tmp_path / "bin/env").symlink_to("/usr/bin/env")
    monkeypatch.setenv("PLACE", f"{tmp_path}/place")
    (tmp_path / "script").write_text(slurmray.render(slurmray.JobSpec(run_dir="$PLACE/runs")))
    (tmp_path / "place/runs/7-0").mkdir(parents=True)
    (tmp_path / "place/runs/7-0/events.jsonl").write_text(event_line("start", job="7"))
    assert [event["event"] for event in slurmray.Job(7).events()] == ["start"]


def test_the_log_of_a_waiting_job(slurm: Slurm, capsys: pytest.CaptureFixture[str]) -> None:
    slurm("JobState=PENDING ExitCode=0:0")
    assert main(["logs", "7"], capsys) == (0, "", "job 7: no log yet; slurmray status 7 shows why\n")


FOLDER = "/tmp/ray-7-1-0a1b2c"


@pytest.fixture
def running(slurm: Slurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The events.jsonl of job 7, whose second attempt runs, with events of two more attempts."""
    slurm("JobState=$STATE Restarts=1 $MORE", f"StdOut={tmp_path}/log")
    monkeypatch.setenv("STATE", "RUNNING")
    (tmp_path / "script").write_text(slurmray.render(slurmray.JobSpec()))
    for attempt in (0, 1, 2):
        (tmp_path / f"runs/7-{attempt}").mkdir(parents=True)
        ready(tmp_path / f"runs/7-{attempt}/events.jsonl", folder=f"/tmp/ray-7-{attempt}-0a1b2c")
    return tmp_path / "runs/7-1/events.jsonl"


def ready(events: Path, **fields: Any) -> None:
    """Write the events of a ready cluster. fields: of the event `attach`."""
    facts = {"runtime": "podman", "folder": FOLDER, "unset": [], **fields}
    events.write_text(event_line("start", job="7", attempt=1) + event_line("attach", **facts))


def job(**more: Any) -> slurmray.Job:
    return slurmray.Job(7, run_dir="runs", **more)


def render(folder: Path, runtime: str) -> None:
    (folder / "script").write_text(slurmray.render(slurmray.JobSpec(container={"runtime": runtime})))


@pytest.mark.usefixtures("running")
def test_what_the_nodes_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of the last attempt of a job that runs, with the trainer's last line."""
    monkeypatch.setenv("MORE", "ExitCode=0:0")
    now = time.time()
    nodes = {
        "gpu-1": {"gpu": 96, "lowest": 91, "idlest": 2, "gpu_memory": 70, "age": 3},
        "gpu-2": {"gpu": 84, "lowest": 0, "idlest": 7, "idle": 720, "age": 3},
    }
    usage = tmp_path / "runs/7-2/usage.json"
    usage.write_text(json.dumps({"v": 1, "time": now, "output": now - 90, "nodes": nodes}))
    (tmp_path / "log").write_text(
        "step 40\r\x1b[36m(Worker pid=5)\x1b[0m step 41\x1b[2J\n[slurmray  3.0 s] set aside: gpu-9: x\n\n"
    )
    history.remember(history.Run(7, "a", None, str(tmp_path), "runs", 1.0, 1, 8, None))
    code, out, err = main(["status", "7"], capsys)
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert "  GPUs 90 % busy; their memory 70 % full" in lines
    assert "  gpu-2: GPU 7 has been at 0 % for 12 min" in lines
    (last,) = [line for line in lines if line.startswith("  last output ")]
    assert last.endswith(" ago: (Worker pid=5) step 41\\x1b[2J"), "without its colour"
    assert json.loads(main(["status", "7", "--json"], capsys)[1])["utilization"]["gpu-2"]["idle"] == 720
    assert job().utilization()["gpu-1"].gpu == 96
    monkeypatch.setattr(
        slurm_commands, "squeue", lambda *_: {"7": slurm_commands.Queued("RUNNING", "None", "(null)")}
    )
    header, row = main(["list"], capsys)[1].splitlines()
    assert (header.split()[6], row.split()[6:8]) == ("BUSY", ["90", "%"])
    usage.write_text("[")
    assert job().utilization() == {}
    usage.write_text(json.dumps({"v": 1, "time": now, "nodes": nodes}))
    assert job().utilization().keys() == {"gpu-1", "gpu-2"}
    monkeypatch.setenv("STATE", "COMPLETED")
    assert job().utilization() == {}, "the job has ended"


def test_what_gpu_hours_were_used_for(slurm: Slurm, tmp_path: Path) -> None:
    """By the samples of all attempts; the page has the utilization of the last one's nodes only."""
    slurm("JobState=COMPLETED Restarts=1 ExitCode=0:0")
    (tmp_path / "script").write_text("")
    assert job().account() is None
    columns = {"v": 1, "columns": ["utilization"]}
    for attempt, busy, after in ((0, 0, 0), (1, 90, 4 * 3600)):
        events = [
            start(after, attempt=attempt),
            in_ray(after + 5, "node1", "node2", gpus=2),
            trainer(after + 3600),
            end(after + 3 * 3600),
        ]
        logs = tmp_path / f"runs/7-{attempt}/logs"
        logs.mkdir(parents=True)
        (logs.parent / "events.jsonl").write_text("".join(json.dumps(each) + "\n" for each in events))
        for node in ("node1", f"node3-{attempt}"):
            sample = {"time": T0 + after + 2 * 3600, "gpus": [[busy], [100]]}
            (logs / f"{node}.samples.jsonl").write_text(f"{json.dumps(columns)}\n{json.dumps(sample)}\n")
    account = job().account()
    assert account
    assert (account.idle, account.training, account.bring_up, account.queue) == (2, 14, 8, 4)
    page = job().report()
    assert "node1: 95 % on average" in page
    assert "node3-1" in page
    assert "node3-0" not in page
    (tmp_path / "runs/7-0/logs/node1.samples.jsonl").write_text("[")
    unknown = job().account()
    assert unknown
    assert (unknown.idle, unknown.training) == (0, 16)


def test_attach_argv(running: Path, tmp_path: Path) -> None:
    """Of the running attempt, with each runtime."""
    srun = ["srun", "--overlap", "--jobid=7", "-N1", "-n1", "-w"]
    env = ["--env", "SLURMRAY_ATTACHED"]
    container = ["podman", "exec", "--interactive", *env, "slurmray-7-1-gpu-1", f"{FOLDER}/attach"]
    argv = job().attach_argv()
    assert (argv[:7], argv[7:9], argv[10:]) == ([*srun, "gpu-1"], ["/bin/sh", "-c"], [FOLDER, *container])
    assert job(cluster="c2").attach_argv()[:2] == ["srun", "--clusters=c2"]
    argv = job().attach_argv(["a", "b c"], node="gpu-2", is_terminal=True)
    container = ["podman", "exec", "--tty", "--interactive", *env, "slurmray-7-1-gpu-2", f"{FOLDER}/attach"]
    assert argv[:8] == ["srun", "--pty", *srun[1:], "gpu-2"]
    assert argv[12:] == [*container, "a", "b c"]
    ready(running, unset=["XDG_RUNTIME_DIR"])
    assert job().attach_argv()[11:14] == ["env", "--unset=XDG_RUNTIME_DIR", "podman"]
    ready(running, runtime="none", folder=f"{FOLDER}/inside")
    render(tmp_path, "none")
    argv = job().attach_argv(["a"])
    assert (argv[7:9], argv[-3:]) == (["/bin/sh", "-c"], [f"{FOLDER}/inside", "attach", "a"])
    ready(running, runtime="apptainer")
    render(tmp_path, "apptainer")
    assert job().attach_argv(["a"])[-4:] == [FOLDER, "enter", f"{FOLDER}/attach", "a"]


def test_attach_argv_of_pyxis(running: Path, tmp_path: Path) -> None:
    container = {"runtime": "pyxis", "image": "docker.io/a/b:1", "step_args": ["--container-writable"]}
    (tmp_path / "script").write_text(slurmray.render(slurmray.JobSpec(container=container)))
    ready(running, runtime="pyxis", folder=f"{FOLDER}/inside")
    argv = job().attach_argv()
    assert argv[7:11] == [
        "--container-image=a/b:1",
        "--container-mounts=/tmp:/tmp",
        "--container-writable",
        "/bin/sh",
    ]
    container["image"] = "a/$NAME:1"
    (tmp_path / "script").write_text(slurmray.render(slurmray.JobSpec(container=container)))
    with pytest.raises(SlurmError, match=r"container\.image has a variable: use the line `attach:`"):
        job().attach_argv()


def test_attach_argv_of_a_component_and_a_task(
    running: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "runs/5_2-1").symlink_to(running.parent)
    monkeypatch.setenv("HEAD", "7 ArrayJobId=5 ArrayTaskId=2")
    assert "--jobid=5_2" in job().attach_argv()
    nodes = "*hostnames*a*) echo gpu-1; exit;; *hostnames*b*) echo gpu-2; exit;;"
    fields = "JobState=RUNNING Reason=None\n   Requeue=1 Restarts=1 ExitCode=0:0"
    fields += f"\n   WorkDir={tmp_path}"
    text = "\n\n".join(
        f"JobId={7 + n} HetJobId=7 HetJobOffset={n} JobName=x\n   NodeList={name}\n   {fields}"
        for n, name in ((0, "a"), (1, "b"))
    )
    (tmp_path / "record").write_text(text)
    script = f"*batch_script*) exec /bin/cat {tmp_path}/script;;"
    install(tmp_path / "bin", scontrol=f'case "$*" in {script} {nodes} esac; exec /bin/cat {tmp_path}/record')
    for node, component in (("gpu-1", 0), ("gpu-2", 1)):
        argv = job().attach_argv(node=node)
        assert (argv[3], argv[7]) == (f"--het-group={component}", node)


def test_no_attach_argv(running: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match="job 7: --node: no node gpu-3; its nodes are gpu-1, gpu-2"):
        job().attach_argv(node="gpu-3")
    with pytest.raises(SlurmError, match=r"job 7: no events in .*/slurmray-runs/7-1 yet"):
        slurmray.Job(7).attach_argv()
    start = event_line("start")
    running.write_text(start)
    for act in (job().attach_argv, job().dashboard_address):
        with pytest.raises(SlurmError, match="job 7: cluster not ready"):
            act()
    (tmp_path / "script").write_text("#!/bin/sh\nsleep 60\n")
    with pytest.raises(SlurmError, match="job 7: its script was not rendered by slurmray"):
        job().attach_argv()
    monkeypatch.setenv("STATE", "PENDING")
    with pytest.raises(SlurmError, match="job 7: the job is PENDING; attach while it is RUNNING"):
        job().attach_argv()


def test_events_of_the_start_before_do_not_count(running: Path) -> None:
    with running.open("a") as file:
        file.write(event_line("dashboard", port=8265) + event_line("restart", nodes=["gpu-2"], spares=[]))
    for act in (job().attach_argv, job().dashboard_address):
        with pytest.raises(SlurmError, match="job 7: cluster not ready"):
            act()
    facts = {"runtime": "podman", "folder": "/tmp/ray-7-1-aaaaaa", "unset": []}
    with running.open("a") as file:
        file.write(event_line("attach", **facts) + event_line("dashboard", port=9000))
    argv = job().attach_argv()
    assert (argv[6], argv[10]) == ("gpu-2", "/tmp/ray-7-1-aaaaaa")
    assert argv[-2:] == ["slurmray-7-1-gpu-2", "/tmp/ray-7-1-aaaaaa/attach"]
    assert job().dashboard_address()[1] == 9000


HOSTILE_FACTS = [
    {"folder": "/tmp/bob/ray-7-1-0a1b2c"},
    {"folder": "/tmp/ray-7-1-0a1b2c/../ray-7-1-0a1b2d"},
    {"folder": "/tmp/ray-8-1-0a1b2c"},
    {"folder": "/tmp/ray-7-0-0a1b2c"},
    {"folder": "/tmp/ray-7-1-0a1b2c; id"},
    {"folder": "--help"},
    {"folder": ["/tmp/ray-7-1-0a1b2c"]},
    {"runtime": "/bin/sh"},
    {"runtime": "none"},
    {"runtime": ["podman"]},
    {"unset": ["PATH"]},
    {"unset": "XDG_RUNTIME_DIR"},
]


@pytest.mark.attack("argv or parts of it in the events of a job", inputs=1)
@pytest.mark.parametrize("facts", HOSTILE_FACTS, ids=repr)
def test_attach_runs_nothing_that_an_event_names(facts: dict[str, Any], running: Path) -> None:
    ready(running, **facts)
    lines = running.read_text().splitlines()
    event = json.loads(lines[1]) | {"argv": ["/bin/sh", "-c", "cp ~/.secret /tmp"]}
    running.write_text(f"{lines[0]}\n{json.dumps(event)}\n")
    with pytest.raises(SlurmError, match=r"another (folder|runtime) than this job's|cluster not ready"):
        job().attach_argv()


@pytest.mark.attack("argv or parts of it in the events of a job")
def test_the_job_s_folder_below_a_variable_or_a_pattern(running: Path, tmp_path: Path) -> None:
    """Nobody knows the value of a variable here, and the value of `temp_dir` is no pattern."""
    (tmp_path / "script").write_text(slurmray.render(slurmray.JobSpec(ray={"temp_dir": "/fast/$USER"})))
    ready(running, folder="/fast/me.1/ray-7-1-0a1b2c")
    assert job().attach_argv()[-1] == "/fast/me.1/ray-7-1-0a1b2c/attach"
    foreign = "/fast/../ray-7-1-0a1b2c", "/fast/.x/ray-7-1-0a1b2c", "/fast/ray-7-1-0a1b2c/inside/x"
    for folder in tried(foreign):
        ready(running, folder=folder)
        with pytest.raises(SlurmError, match=r"another folder than this job's"):
            job().attach_argv()
    (tmp_path / "script").write_text(slurmray.render(slurmray.JobSpec(ray={"temp_dir": "/fast/a.b"})))
    for folder in tried(("/fast/acb/ray-7-1-0a1b2c", "/other/a.b/ray-7-1-0a1b2c")):
        ready(running, folder=folder)
        with pytest.raises(SlurmError, match=r"another folder than this job's"):
            job().attach_argv()


@pytest.mark.attack("argv or parts of it in the events of a job", inputs=1)
def test_attach_takes_no_argv_from_an_event(running: Path) -> None:
    wanted = job().attach_argv()
    event = json.loads(running.read_text().splitlines()[1])
    event |= {"argv": ["/bin/sh", "-c", "id"], "command": "id"}
    running.write_text(event_line("start", nodes=["evil"], head="evil") + json.dumps(event) + "\n")
    assert job().attach_argv() == wanted


OTHERS = "echo 4294967294 bob"
VERBS = [
    *(["attach"], ["dashboard"], ["status"], ["status", "--json"], ["logs"], ["logs", "-f"]),
    *(["logs", "--node=gpu-1"], ["logs", "--service=a"], ["logs", "--node=gpu-1", "--ray"]),
    *(["report", "-o", "-"], ["why"], ["cancel"], ["cancel", "--now"]),
]


@pytest.mark.attack("a verb on another user's job", inputs=1)
@pytest.mark.parametrize("verb", VERBS, ids=" ".join)
def test_a_job_of_another_user(
    verb: list[str], slurm: Slurm, current_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One line, whatever the job's record says."""
    slurm(f"UserId=me({os.geteuid()}) JobState=RUNNING ExitCode=0:0", owner=OTHERS)
    (current_folder / "slurmray-runs/7-0").mkdir(parents=True)
    ready(current_folder / "slurmray-runs/7-0/events.jsonl", folder="/tmp/ray-7-0-0a1b2c")
    (current_folder / "script").write_text(slurmray.render(slurmray.JobSpec()))
    assert main([verb[0], "7", *verb[1:]], capsys) == (2, "", "job 7 is bob's, not yours\n")


@pytest.mark.attack("a verb on another user's job", inputs=1)
def test_a_job_of_another_user_is_not_cancelled(slurm: Slurm, tmp_path: Path) -> None:
    """By root, for example, whom Slurm lets."""
    slurm("JobState=RUNNING", owner=OTHERS)
    (tmp_path / "bin/scancel").symlink_to("/bin/true")
    with pytest.raises(UsageError, match="job 7 is bob's, not yours"):
        slurmray.Job(7).cancel()


def test_a_job_whose_owner_slurm_does_not_name_now(slurm: Slurm) -> None:
    silent = "echo 'slurm_load_jobs error: Unable to contact slurm controller' >&2; exit 1"
    slurm("JobState=RUNNING ExitCode=0:0", owner=silent)
    with pytest.raises(SlurmError, match=r"squeue: .*Unable to contact"):
        slurmray.Job(7).state()


@pytest.mark.attack("a verb on another user's job")
def test_another_user_s_job_that_slurm_has_forgotten(slurm: Slurm, tmp_path: Path) -> None:
    """By the accounting; and a number that another user's job gets later."""
    slurm()
    job = slurmray.Job(7, folder=tmp_path)
    with pytest.raises(SlurmError, match="unknown to Slurm"):
        job.state()
    for name, text in tried((("sacct", "echo '65534|bob|COMPLETED|0:0'"), ("squeue", OTHERS))):
        install(tmp_path / "bin", **{name: text})
        with pytest.raises(UsageError, match="job 7 is bob's, not yours"):
            job.state()
        (tmp_path / "bin" / name).unlink()


@pytest.mark.attack("argv or parts of it in the events of a job", inputs=1)
def test_a_port_of_the_job_spec_is_not_that_of_an_event(running: Path, tmp_path: Path) -> None:
    (tmp_path / "script").write_text(slurmray.render(slurmray.JobSpec(ray={"dashboard_port": 8265})))
    with running.open("a") as file:
        file.write(event_line("dashboard", port=1))
    assert job().dashboard_address()[1] == 8265


@pytest.mark.attack("a run directory that another user has made", inputs=1)
def test_a_foreign_run_directory_of_a_forgotten_job(
    slurm: Slurm, current_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    slurm()
    events = current_folder / "slurmray-runs/7-0/events.jsonl"
    events.parent.mkdir(parents=True)
    events.write_text(event_line("end", exit_code=0, source="trainer"))
    os.chown(events, 65534, -1)
    code, out, err = main(["status", "7"], capsys)
    assert (code, out, err) == (2, "", f"{events}: cannot be read: is another user's\n")


@pytest.fixture
def logs(slurm: Slurm, tmp_path: Path) -> Path:
    """The folder of logs of the last attempt of job 7, with logs of services."""
    slurm("JobState=RUNNING Restarts=1")
    logs = make_logs(tmp_path, 1)
    texts = {
        "gpu-1": "of the node\n",
        **{"service-judge@gpu-1": "one\n", "service-judge@gpu-2": "two\n", "service-judge": ""},
        **{"service-a-judge@gpu-1": "a", "service-web": "no such image\n", "service-web@gpu-9": "up\n"},
    }
    for name, text in texts.items():
        (logs / f"{name}.log").write_text(text)
    (logs / "service-judge@gpu-1-ray.tar.gz").touch()
    return logs


def test_logs_of_services(logs: Path) -> None:
    job = slurmray.Job(7, folder=logs.parents[2])
    assert job.services() == ["a-judge", "judge", "web"]
    assert job.service_log("judge") == "==> gpu-1 <==\none\n\n==> gpu-2 <==\ntwo\n"
    assert job.service_log("judge", "gpu-2") == "two\n"
    assert job.service_log("judge", "gpu-2", last=2) == "o\n"
    assert job.service_log("a-judge") == "a", "of one node without a header"
    # With pyxis: also why its step did not start.
    assert job.service_log("web") == "==> gpu-9 <==\nup\n\n==> srun <==\nno such image\n"
    (logs.parents[1] / "7-0/logs").mkdir(parents=True)
    (logs.parents[1] / "7-0/logs/service-judge@gpu-3.log").write_text("before\n")
    assert job.service_log("judge", attempt=0) == "before\n"


def test_logs_of_services_that_are_not_there(logs: Path) -> None:
    job = slurmray.Job(7)
    with pytest.raises(UsageError, match="no log of the service jud; there are those of a-judge, judge, web"):
        job.service_log("jud")
    with pytest.raises(UsageError, match="judge has no log on gpu-3, only on gpu-1, gpu-2"):
        job.service_log("judge", "gpu-3")
    for attempt in (0, 5):
        with pytest.raises(
            UsageError, match=rf"7-{attempt}/logs: no log of the service judge; it has none of"
        ):
            job.service_log("judge", attempt=attempt)
    with pytest.raises(UsageError, match="no log of the node gpu-3; there are those of gpu-1, service-judge"):
        job.node_log("gpu-3")
    (logs / "service-judge@gpu-1.log").unlink()
    (logs / "service-judge@gpu-1.log").mkdir()
    with pytest.raises(UsageError, match=r"service-judge@gpu-1\.log: cannot be read: Is a directory"):
        job.service_log("judge")


@pytest.mark.parametrize(
    ("state", "has_file", "is_short"),
    [
        ("RUNNING", True, True),
        ("COMPLETING", True, True),  # while the grace period runs
        ("COMPLETING", False, False),  # not yet visible here
        ("CANCELLED", False, True),  # it had not started
    ],
)
def test_cancel_now(
    state: str, has_file: bool, is_short: bool, slurm: Slurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Written after scancel: a job that Slurm does not cancel must keep its grace period."""
    slurm(f"JobState={state} Restarts=1")
    install(tmp_path / "bin", scancel='echo "$*" >>calls; exit $CODE')
    monkeypatch.chdir(tmp_path)
    for attempt in (0, 1, 2):
        (tmp_path / f"slurmray-runs/7-{attempt}").mkdir(parents=True)
    file = tmp_path / "slurmray-runs/7-1/cancel-now"
    if has_file:
        file.touch()
    monkeypatch.setenv("CODE", "1")
    with pytest.raises(SlurmError, match="scancel: "):
        slurmray.Job(7).cancel(now=True)
    monkeypatch.setenv("CODE", "0")
    assert not slurmray.Job(7).cancel()
    assert (file.read_text() if has_file else "") == ""
    assert slurmray.Job(7).cancel(now=True) == is_short
    assert file.exists() == has_file
    assert not has_file or file.read_text() == "now\n"
    assert (tmp_path / "calls").read_text() == "7\n" * 3
    assert not list(tmp_path.glob("slurmray-runs/7-[02]/*"))


def test_ray_s_logs(slurm: Slurm, tmp_path: Path) -> None:
    slurm("JobState=FAILED")
    session, logs = tmp_path / "ray-logs/old", make_logs(tmp_path, 1)
    session.mkdir(parents=True)
    (session / "x.log").write_text("of a subfolder")
    (tmp_path / "ray-logs/raylet.out").write_bytes(b"\xff one\n")
    assert ray_logs.archive(str(tmp_path), str(logs / "gpu-1-ray.tar.gz"))
    job = slurmray.Job(7)
    assert job.ray_logs("gpu-1") == {"raylet.out": "\ufffd one\n", "old/x.log": "of a subfolder"}
    assert job.ray_logs("gpu-1", 1) == job.ray_logs("gpu-1")
    with pytest.raises(UsageError, match=r"7-0/logs/gpu-1-ray\.tar\.gz: no such file; they are kept when"):
        job.ray_logs("gpu-1", 0)
    (logs / "gpu-2-ray.tar.gz").write_text("no archive")
    with pytest.raises(UsageError, match=r"gpu-2-ray\.tar\.gz: cannot be read: "):
        job.ray_logs("gpu-2")


def tar_gz(*members: tuple[bytes, int], size: int = 0) -> bytes:
    """An archive of members (type, size); their content is zeros. size: of all, without compression."""
    headers = []
    for kind, length in members:
        member = tarfile.TarInfo("a\x07")
        member.type, member.size, member.linkname = kind, length, "gone"
        headers.append(member.tobuf(tarfile.GNU_FORMAT))
    rest = gzip.compress(bytes(1 << 26))
    return gzip.compress(b"".join(headers) + bytes(1024)) + rest * (size >> 26)


REGULAR = tarfile.REGTYPE
ARCHIVES = {
    "no gzip": (b"x", "Not a gzipped file"),
    "no archive": (gzip.compress(b"x" * 600), "cannot be read"),
    "cut off": (tar_gz((REGULAR, 1))[:-20], "ended before"),
    "damaged": (gzip.compress(b"")[:10] + b"\xff" * 20, "Error -3"),
    "huge header": (tar_gz((tarfile.XHDTYPE, 1 << 70)), "cannot be read"),
    "large file": (bytes((64 << 20) + 1), "is larger than 64 MiB"),
    "large member": (tar_gz((REGULAR, 1 << 40)), "it has too much"),
    "bomb": (tar_gz((REGULAR, 1 << 31), size=1 << 32), "it has too much"),
}


@pytest.mark.attack("a damaged or endless archive of Ray's logs", inputs=1)
@pytest.mark.parametrize("kind", ARCHIVES)
def test_a_hostile_archive_of_logs(kind: str, slurm: Slurm, tmp_path: Path) -> None:
    slurm("JobState=FAILED")
    logs = make_logs(tmp_path)
    data, why = ARCHIVES[kind]
    (logs / "gpu-1-ray.tar.gz").write_bytes(data)
    limits = resource.getrlimit(resource.RLIMIT_AS)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + (1 << 30), limits[1]))
    try:
        with pytest.raises(UsageError, match=rf"gpu-1-ray\.tar\.gz: cannot be read: .*{why}|{why}"):
            slurmray.Job(7).ray_logs("gpu-1")
    finally:
        resource.setrlimit(resource.RLIMIT_AS, limits)


@pytest.mark.attack("a damaged or endless archive of Ray's logs", inputs=4)
def test_only_regular_files_of_an_archive_are_shown(
    slurm: Slurm, current_folder: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    slurm("JobState=FAILED")
    logs = make_logs(current_folder)
    kinds = (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, REGULAR)
    (logs / "gpu-1-ray.tar.gz").write_bytes(tar_gz(*((kind, 0) for kind in kinds)))
    assert slurmray.Job(7).ray_logs("gpu-1") == {"a\x07": ""}
    assert cli.main(["logs", "7", "--node=gpu-1", "--ray"]) == 0
    assert capsysbinary.readouterr().out == rb"==> a\x07 <==" + b"\n\n"


@pytest.mark.attack("names of nodes that lead out of the run directory")
def test_logs_are_those_of_the_run_directory(slurm: Slurm, tmp_path: Path) -> None:
    slurm("JobState=FAILED")
    (make_logs(tmp_path) / ".env.log").touch()
    (tmp_path / "secret.log").touch()
    for node in tried(("../../../secret", str(tmp_path / "secret"), ".env", "a\0")):
        for read in (slurmray.Job(7).node_log, slurmray.Job(7).ray_logs):
            with pytest.raises(UsageError, match="is no name of a node"):
                read(node)


@pytest.mark.attack("a FIFO, a device, a link or another user's file in place of a file of the job", inputs=1)
@pytest.mark.parametrize("kind", ["link", "fifo", "folder", "foreign"])
def test_cancel_now_writes_only_into_the_job_s_own_file(kind: str, slurm: Slurm, tmp_path: Path) -> None:
    slurm("JobState=RUNNING")
    (tmp_path / "bin/scancel").symlink_to("/bin/true")
    file, other = tmp_path / "slurmray-runs/7-0/cancel-now", tmp_path / "other"
    file.parent.mkdir(parents=True)
    other.touch()
    if kind == "link":
        file.symlink_to(other)
    elif kind == "fifo":
        os.mkfifo(file)
    elif kind == "folder":
        file.mkdir()
    else:
        file.touch()
        os.chown(file, 65534, -1)
    assert not slurmray.Job(7).cancel(now=True)
    assert (other.read_text(), file.is_file() and file.read_text()) == ("", "" if file.is_file() else False)


def test_a_run_directory_that_cannot_be_read(slurm: Slurm, tmp_path: Path) -> None:
    slurm("JobState=RUNNING")
    (tmp_path / "slurmray-runs/7-0/events.jsonl").mkdir(parents=True)
    with pytest.raises(UsageError, match=r"7-0/events\.jsonl: cannot be read: "):
        slurmray.Job(7).attach_argv()


def test_a_job_that_slurm_has_forgotten(slurm: Slurm, tmp_path: Path) -> None:
    """Slurm 22.05's message; there is no sacct. The log is where Slurm writes it by default, or unknown."""
    slurm()
    job = slurmray.Job(7, folder=tmp_path)
    with pytest.raises(SlurmError, match="check the number, or run this in the folder"):
        job.state()
    with pytest.raises(
        UsageError, match=r"slurm-7\.out: no such file: .* in the folder in which it was submitted"
    ):
        job.logs()
    for name, code in (("7-9", 71), ("7-10", 0), ("7-11.old", 5)):
        (tmp_path / "slurmray-runs" / name).mkdir(parents=True)
        event = event_line("end", exit_code=code, source="trainer")
        (tmp_path / "slurmray-runs" / name / "events.jsonl").write_text(event)
    (tmp_path / "slurm-7.out").write_text("text\n")
    assert job.wait() == slurmray.End("COMPLETED", 0, 0)
    assert job.logs() == "text\n"


def test_nodes_of_all_attempts_that_were_lost(slurm: Slurm, tmp_path: Path) -> None:
    slurm("JobState=FAILED ExitCode=71:0 Restarts=1")
    start = event_line("start", job="7", nodes=["gpu-1", "gpu-2"], spares=["gpu-3"])
    lost = {"exit_code": 71, "source": "slurmray", "kind": "node_lost"}
    text = "failed (71 node lost): gpu-1 and gpu-2: no power"
    both = event_line("end", node="gpu-[1-2]", text=text, **lost)
    again = {"nodes": ["gpu-1", "gpu-3"], "spares": [], "failed": ["gpu-2"], "text": "restart 1 of 3: x"}
    restart = event_line("restart", restart=1, **again)
    for attempt, text in enumerate((start + both, start + restart)):
        (tmp_path / f"runs/7-{attempt}").mkdir(parents=True)
        (tmp_path / f"runs/7-{attempt}/events.jsonl").write_text(text)
    assert job().bad_nodes() == {"gpu-1": "no power", "gpu-2": "restart 1 of 3: x"}
    assert job().restarts(0) == []
    (restarted,) = job().restarts()
    assert (restarted.number, restarted.nodes) == (1, ["gpu-1", "gpu-3"])
    assert restarted.failed == restarted.left == ["gpu-2"]


@pytest.mark.parametrize(
    ("state", "begin"),
    [("PENDING", "Unknown"), ("PENDING", "1000"), ("CANCELLED", "1000000"), ("RUNNING", "1000000")],
    ids=["waits", "waits, with an old estimate", "cancelled", "runs"],
)
def test_a_run_directory_of_an_earlier_job_with_the_same_id(
    state: str, begin: str, slurm: Slurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a reset of slurmctld, or of another cluster: it ends before this job starts, if it starts."""
    slurm(f"JobState={state} ExitCode=0:0 Restarts=$RESTARTS SubmitTime=1000 StartTime={begin}")
    monkeypatch.setenv("RESTARTS", "0")
    run = tmp_path / "runs/7-0"
    (run / "logs").mkdir(parents=True)
    for name in ("gpu-1.log", "service-judge@gpu-1.log"):
        (run / "logs" / name).write_text("text\n")

    def write(began: float) -> None:
        start = json.loads(event_line("start")) | {"time": began}
        end = json.loads(event_line("end", exit_code=0, source="trainer")) | {"time": began + 1}
        (run / "events.jsonl").write_text(f"{json.dumps(start)}\n{json.dumps(end)}\n")

    write(500000)
    this = job()
    status = this.status()
    assert (status.end, status.run_dir, status.nodes, this.services()) == (None, "", [], [])
    for read in (this.node_log, this.ray_logs):
        with pytest.raises(UsageError, match=r"runs/7-0/logs: is of an earlier job with the same id"):
            read("gpu-1")
    # An attempt before the last requeue began before the start that Slurm has.
    monkeypatch.setenv("RESTARTS", "1")
    this = job()
    assert (this.status().end or {})["exit_code"] == 0
    assert (this.services(), this.node_log("gpu-1")) == (["judge"], "text\n")
    monkeypatch.setenv("RESTARTS", "0")
    write(999990)  # clocks differ a little
    assert bool(job().status().end) == (state != "PENDING")
    (run / "events.jsonl").unlink()
    (run / "events.jsonl").mkdir()  # as they cannot be read, nothing says whose logs these are
    assert job().node_log("gpu-1") == "text\n"


def attached(running: Path, tmp_path: Path, command: str, owner: int = -1) -> list[str]:
    """argv of the task on a node; a stand-in for podman runs a real program `attach`, as conmon does.

    Its folder, and the path in the container, are below tmp_path. owner: of the job's folder.
    """
    ready(running)
    folder = tmp_path / "job"
    (folder / "inside").mkdir(parents=True)
    os.chown(folder, owner, -1)
    attach_programs.write_programs(str(folder / "inside"), str(tmp_path), 0o022, {})
    podman = tmp_path / "podman"
    podman.write_text(
        "#!/bin/bash\nwhile [[ $1 != */attach ]]; do shift; done\n"
        "export SLURMRAY_ATTACHED=${SLURMRAY_ATTACHED/attached-/inside/attached-}\n"
        f'setsid {folder}/inside/attach "${{@:2}}" <&0 &\nwait $!\n'
    )
    podman.chmod(0o755)
    argv = job().attach_argv(["sh", "-c", command])[7:]
    return [
        "/usr/bin/env",
        f"PATH={tmp_path}:/usr/bin:/bin",
        *(each.replace(FOLDER, str(folder)) for each in argv),
    ]


@pytest.mark.parametrize("killed", ["shell", "podman exec"])
@pytest.mark.parametrize("command", ["exec sleep 600", "trap '' HUP; sleep 600 & wait"])
def test_a_command_in_a_container_ends_with_the_step(
    running: Path, tmp_path: Path, command: str, killed: str
) -> None:
    """A killed `podman exec` leaves it running. The second does not care about SIGHUP.

    killed: what Slurm kills first.
    """
    out = tmp_path / "out"
    os.mkfifo(out)
    argv = attached(running, tmp_path, f"exec >{out}; echo $$; {command}")
    with subprocess.Popen(argv, start_new_session=True) as step, out.open() as output:
        assert output.readline()
        if killed == "shell":
            step.kill()
        else:
            (podman,) = Path(f"/proc/{step.pid}/task/{step.pid}/children").read_text().split()
            os.kill(int(podman), signal.SIGKILL)
        assert output.read() == ""  # nobody has it open any more
    left = [path.name for path in (tmp_path / "job/inside").glob("attached-*")]
    assert left == ([f"attached-{step.pid}"] if killed == "shell" else [])


def test_what_a_command_in_a_container_leaves(running: Path, tmp_path: Path) -> None:
    """When it ends by itself, its background processes go on. It has the step's exit code and input."""
    out = tmp_path / "out"
    os.mkfifo(out)
    argv = attached(
        running,
        tmp_path,
        f'(read -r _ <{out}; echo left >{out}.2) >/dev/null 2>&1 & read -r X; echo "$X"; exit 3',
    )
    done = subprocess.run(argv, input="in\n", capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (3, "in\n", "")
    assert list((tmp_path / "job/inside").glob("attached-*")) == []
    os.mkfifo(f"{out}.2")
    out.write_text("now\n")
    assert Path(f"{out}.2").read_text() == "left\n"


@pytest.mark.attack("a job's folder that another user has made on the node", inputs=1)
@pytest.mark.skipif(os.geteuid() != 0, reason="makes a folder of another user")
def test_no_fifo_in_a_folder_of_another_user(running: Path, tmp_path: Path) -> None:
    argv = attached(running, tmp_path, "echo ran", 65534)
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"{tmp_path}/job: no folder of yours\n"
    assert list((tmp_path / "job/inside").glob("attached-*")) == []


@pytest.mark.attack("a job's folder that another user has made on the node", inputs=3)
def test_no_program_of_another_user_runs_on_the_node(running: Path, tmp_path: Path) -> None:
    ready(running, runtime="none", folder=f"{FOLDER}/inside")
    render(tmp_path, "none")
    shell = job().attach_argv(["arg"])[7:]
    folder, theirs = tmp_path / "own", tmp_path / "theirs"
    for place in (folder, theirs):
        install(place, attach='echo "ran $1"')
    os.chown(theirs, 65534, -1)
    (tmp_path / "link").symlink_to(folder)

    def run(place: Path) -> tuple[int, str]:
        argv = [argument.replace(f"{FOLDER}/inside", str(place)) for argument in shell]
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout

    assert run(folder) == (0, "ran arg\n")
    assert run(theirs) == run(tmp_path / "link") == (1, "")
    os.chown(folder / "attach", 65534, -1)
    assert run(folder) == (1, "")
