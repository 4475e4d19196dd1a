"""From slurmray submit to cancel, with the login host's Slurm commands."""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import json
import os
import pty
import re
import shlex
import subprocess
import sys
import termios
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from slurmray.agent.job_log import event_line
from slurmray.rehearsal import machine
from slurmray.rehearsal.cluster.layout import Layout
from slurmray.rehearsal.cluster.slurm_cluster import SlurmCluster
from slurmray.rehearsal.cluster.slurm_conf import ClusterConfig
from slurmray.rehearsal.images import suites
from slurmray.slurm.submitted_job import Job
from slurmray.slurm.timeline import STEPS
from slurmray.spec.container import DEFAULT_IMAGE

from .jobs import HANG, Jobs, path_with_slurm, wait_clean, wait_until
from .jobs import Job as EndedJob

ROOT = Path(__file__).parents[2]
ONE = ("--nodes=1", "--cpus-per-task=2", "--mem=1G")


def argv_of(*args: str) -> list[str]:
    return [sys.executable, "-m", "slurmray", *args]


def slurmray(*args: str) -> subprocess.CompletedProcess[str]:
    """Run a command line in the current folder."""
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        argv_of(*args),
        env=env,
        capture_output=True,
        text=True,
        check=False,
        timeout=HANG,
        stdin=subprocess.DEVNULL,
    )


def submit(*args: str) -> int:
    """Submit a job; return its id."""
    done = slurmray("submit", "--json", *args)
    assert done.returncode == 0, done.stderr
    return int(json.loads(done.stdout)["id"])


def listed(*args: str) -> list[dict[str, Any]]:
    return json.loads(slurmray("list", "--json", *args).stdout)  # type: ignore[no-any-return]


@pytest.fixture(
    scope="module",
    params=["own", *(pytest.param(each, marks=pytest.mark.full) for each in ("trixie", "sid"))],
)
def cluster(podman_layout: Layout, request: pytest.FixtureRequest) -> Iterator[SlurmCluster]:
    """This machine's Slurm, and 24.11 and 26.05, whose commands print other things."""
    if request.param == "own":
        yield request.getfixturevalue("podman_cluster")
        return
    root = suites.hosts_root(machine.cache_folder(), request.param, print)
    layout = dataclasses.replace(podman_layout, root=root)
    with SlurmCluster(ClusterConfig(nodes=("node1", "node2")), layout) as cluster:
        yield cluster


@pytest.fixture
def jobs(cluster: SlurmCluster, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Jobs:
    """Jobs of root, submitted from the current folder."""
    monkeypatch.setenv("PATH", path_with_slurm(cluster, tmp_path / "commands"))
    monkeypatch.chdir(folder)
    return Jobs(cluster, folder)


def test_a_sweep_and_a_job_after_it(jobs: Jobs, folder: Path) -> None:
    """A job for each value: the first ends well, the second fails, the third is cancelled."""
    (folder / "sweep.yaml").write_text(
        "name: lrs\n"
        "slurm: {nodes: 1, cpus_per_task: 1, mem: 1G, time: 30}\n"
        "sweep: {lr: [1e-6, 5e-6, 9e-6], batch: [8]}\n"
        "run: echo lr $lr batch $batch; echo left $((SLURMRAY_END_TIME - $(date +%s))); "
        "[[ $lr != 5e-6 ]] || exit 3; [[ $lr != 9e-6 ]] || sleep 600\n"
    )
    done = slurmray("submit", "sweep.yaml")
    assert ", lrs: 3 tasks of 1 node, " in done.stdout, done.stderr
    number = int(re.search(r"submitted job (\d+)", done.stdout)[1])  # type: ignore[index]
    after = submit("--job-name=evaluate", "--after=lrs", *ONE, "--", "true")

    def states() -> list[str]:
        shown = json.loads(slurmray("status", str(number), "--json").stdout)
        return [task["state"] for task in shown["tasks"]]

    def log(task: int) -> str:
        return slurmray("logs", f"{number}_{task}").stdout

    wait_until(
        lambda: states() == ["COMPLETED", "FAILED", "RUNNING"] and "\nlr 9e-6 batch 8\n" in log(2),
        lambda: slurmray("status", str(number)).stdout + log(0) + log(1) + log(2),
    )
    assert "\nlr 1e-6 batch 8\n" in log(0)
    assert 0 < int(re.search(r"^left (\d+)$", log(1), re.MULTILINE)[1]) <= 1800  # type: ignore[index]
    assert f"] task {number}_1: lr=5e-6 batch=8\n" in log(1)
    row = rf"  {number}_1  FAILED  lr=5e-6 batch=8  done: trainer exited with 3\n"
    assert re.fullmatch(rf"job {number} lrs: 3 tasks: .*\n{row}", slurmray("why", str(number)).stdout)
    assert slurmray("why", f"{number}_1").stdout.startswith(f"job {number}_1, lrs: FAILED. done: trainer exi")
    assert slurmray("report", f"{number}_2", "-o", "page.html").returncode == 0
    (running,) = (each for each in listed() if each["id"] == number)
    assert (running["job"], running["phase"], running["sweep"]) == (
        f"{number}_2",
        "training",
        {"lr": "9e-6", "batch": "8"},
    )
    assert slurmray("cancel", "--now", "lrs").returncode == 0
    wait_until(lambda: states()[2] == "CANCELLED", lambda: str(states()))
    # Slurm cancels the job after the sweep once all tasks have ended, as one has failed.
    wait_until(lambda: Job(after).state() == "CANCELLED", lambda: slurmray("status", str(after)).stdout)
    text = f"the job that it waited for, {number}_* (afterok), ended otherwise"
    for shown in (slurmray("status", str(after)), slurmray("why", str(after)), slurmray("list", "--all")):
        assert text in " ".join(shown.stdout.split()), shown
    wait_clean(jobs.cluster)
    runs = sorted(path.name for path in (folder / "slurmray-runs").iterdir())
    assert runs == [f"{number}_{task}-0" for task in range(3)]


def test_from_submit_to_result(jobs: Jobs) -> None:
    trainer = ("bash", "-c", "echo trained; exit 3")
    done = slurmray("check", *ONE, "--", *trainer)
    start = r"Slurm: Job \d+ to start at .* on nodes node1 "
    assert re.match(rf"slurmray: 1 node, .*, your command\n{start}", done.stdout), done.stdout
    done = slurmray("submit", *ONE, "--job-name=first", "--follow", "--", *trainer)
    assert done.returncode == 3, done.stderr
    number = int(re.search(r"submitted job (\d+), first: 1 node, ", done.stderr)[1])  # type: ignore[index]
    assert done.stdout == jobs.log(number)
    assert "\ntrained\n" in done.stdout
    assert done.stderr.endswith(f"job {number}: FAILED\n")
    job = jobs.wait_end(number)
    # The same job, by name, and as the newest one.
    for name in ("first", str(number), None):
        arguments = [name] if name else []
        shown = slurmray("status", *arguments).stdout
        assert shown.startswith(f"job {number} first: FAILED on 1 node, head node node1\n"), shown
        assert "\n  done: trainer exited with 3\n" in shown
        assert slurmray("logs", *arguments).stdout == job.log
    assert "ray start --block" in slurmray("logs", "--node=node1").stdout
    assert "==> raylet.out <==\n[" in slurmray("logs", "--node=node1", "--ray").stdout
    status = json.loads(slurmray("status", "--json").stdout)
    names = [step["name"] for step in status["steps"]]
    assert [name for name in names if name != "end"] == [
        "queued",
        "preflight",
        "container",
        "ray",
        "probe",
        "training",
    ]
    # They follow one another without gaps until the end.
    assert sum(step["seconds"] for step in status["steps"]) == pytest.approx(
        status["end"]["time"] - status["steps"][0]["began"]
    )
    assert status["end"]["exit_code"] == 3
    check_report(job, jobs.folder / f"slurmray-{number}.html")
    assert listed() == []
    (row,) = listed("--all")
    assert (row["id"], row["name"], row["state"], row["nodes"], row["gpus"]) == (
        number,
        "first",
        "FAILED",
        1,
        0,
    )
    assert re.match(r"JOB +NAME +STATE +PHASE .*\n\d+ +first +FAILED ", slurmray("list", "--all").stdout)
    done = slurmray("clean", "--older-than=0", "--yes")
    assert done.stdout.startswith(f"{jobs.folder}/slurmray-runs/{number}-0  "), done.stderr
    assert list((jobs.folder / "slurmray-runs").iterdir()) == []


def check_report(job: EndedJob, page: Path) -> None:
    """Write the page about a job of one node, and compare its numbers with events.jsonl."""
    assert slurmray("report").stderr == f"wrote {page.name}\n"
    text = page.read_text()
    start = next(event for event in job.events if event["event"] == "start")
    done = {event["step"]: event for event in job.events if event["event"] == "nodes"}
    assert [(step, event["nodes"]) for step, event in done.items()] == [(step, ["node1"]) for step in STEPS]
    times = [f"{event['time'] - start['time']:.3f}" for event in done.values()]
    cells = "".join(f'<td class="number">{each}</td>' for each in times)
    assert f'<tr><th scope="row">node1</th>{cells}</tr>' in text
    assert f'{times[-1]}</td><td class="number">1</td><td class="number">0</td></tr>' in text
    assert "<strong>done: trainer exited with 3</strong>" in text
    assert "&#34;echo trained; exit 3&#34;" in text  # of the settings
    assert re.search(r"^  ray +1/1 +(\d+\.\d) s +\1 s  node1 was last$", slurmray("status").stdout, re.M)


def test_a_job_that_waits(jobs: Jobs) -> None:
    number = submit(*ONE, "--hold", "--job-name=held")
    after = submit(*ONE, "--job-name=later", "--after=held")
    run = jobs.folder / f"slurmray-runs/{number}-0"  # of an earlier job with the same id
    run.mkdir(parents=True)
    end = {"kind": "done", "node": "", "text": "done", "exit_code": 0, "source": "trainer"}
    (run / "events.jsonl").write_text(json.dumps({"v": 1, "time": time.time() - 3600, "event": "end", **end}))
    shown = slurmray("status", "held").stdout
    assert "held by you: scontrol release lets it start (JobHeldUser)" in shown
    assert "done" not in shown
    waiting = json.loads(slurmray("status", "later", "--json").stdout)
    assert (waiting["state"], waiting["reason"]) == (
        "PENDING",
        "waits for another job: slurm.dependency (Dependency)",
    )
    record = jobs.cluster.job(after)
    assert record["Dependency"].startswith(f"afterok:{number}")
    assert [(row["id"], row["state"]) for row in listed()] == [(after, "PENDING"), (number, "PENDING")]
    done = slurmray("cancel", str(after), "held", "--now")
    assert (done.returncode, done.stderr) == (
        0,
        f"cancelled job {after}, later\ncancelled job {number}, held\n",
    )
    assert "held: has ended already, CANCELLED" in slurmray("cancel", "held").stderr
    assert listed() == []
    assert json.loads(slurmray("status", "held", "--json").stdout)["end"] is None


@pytest.mark.full
def test_why(jobs: Jobs) -> None:
    """The words of the trainer, else its exit code; a job that goes on, or went well, has no cause."""
    trainer = "echo >&2 \"OSError: [Errno 28] No space left on device: '/ckpt'\"; exit 1"
    known = submit(*ONE, "--", "bash", "-c", trainer)
    unknown = submit(*ONE, "--", "bash", "-c", "kill -SEGV $$")
    good = submit(*ONE, "--", "true")
    held = submit(*ONE, "--hold")
    for number in (known, unknown, good):
        jobs.cluster.wait(number, HANG)
    wait_clean(jobs.cluster)
    *lines, cause, fix = slurmray("why", str(known)).stdout.splitlines()[:6]
    assert lines == [
        f"job {known}, slurmray: FAILED. done: trainer exited with 1",
        "last lines of the job's log:",
        "  OSError: [Errno 28] No space left on device: '/ckpt'",
        "log: OSError: [Errno 28] No space left on device: '/ckpt'",
    ]
    assert cause.startswith("cause: A disk was full")
    assert fix.startswith("fix: Free space")
    (cause,) = json.loads(slurmray("why", str(known), "--json").stdout)["causes"]
    assert cause["evidence"] == "OSError: [Errno 28] No space left on device: '/ckpt'"
    shown = slurmray("why", str(unknown)).stdout
    assert "The cause is not known to slurmray." in shown
    assert "139: means SIGSEGV (128 + 11)" in shown
    assert "\nfix: Read the trainer's last lines." in shown
    assert (
        slurmray("why", str(good)).stdout == f"job {good}, slurmray: COMPLETED. done: trainer exited with 0\n"
    )
    shown = slurmray("why", str(held)).stdout
    assert shown.startswith(f"job {held}, slurmray has not ended: PENDING, held by you: ")
    slurmray("cancel", str(held))


def test_a_failed_check(jobs: Jobs) -> None:
    number = submit(*ONE, "--set=checks.paths=[/no/such/path]")
    jobs.wait_end(number)
    shown = slurmray("status").stdout
    assert f"job {number} slurmray: FAILED" in shown
    assert "node1: checks.paths: /no/such/path" in shown
    assert "failed (65 preflight): " in shown
    assert "exclude it: slurmray submit ... --exclude=node1" in shown, "the fix of the exit code"


def test_nothing_is_submitted(jobs: Jobs) -> None:
    done = slurmray("submit", *ONE, "--test-only")
    assert re.match(r"Job \d+ to start at ", done.stdout), done
    done = slurmray("submit", *ONE, "--dry-run")
    assert done.stdout.startswith("#!/bin/bash\n#SBATCH --job-name=slurmray\n")
    refused = slurmray("submit", *ONE, "--partition=nope")
    assert refused.returncode == 64
    assert refused.stderr.splitlines()[-1].startswith("sbatch: ")
    for options, text in (
        (["--nodes=9"], "no partition has more than"),
        (["--nodes=9", "--partition=batch"], "the partition batch has"),
    ):
        refused = slurmray("submit", *ONE, *options)
        assert refused.returncode == 2
        assert re.fullmatch(rf"slurm\.nodes: 9 nodes, but {text} [23]\n", refused.stderr), refused.stderr
    assert listed("--all") == []
    assert list(jobs.folder.iterdir()) == []


@pytest.mark.full
def test_exclude_bad(jobs: Jobs) -> None:
    """In all groups of the next job."""
    number = submit(*ONE, "--job-name=bad", "--", "true")
    events = jobs.wait_end(number).run / "events.jsonl"
    (node,) = json.loads(events.read_text().splitlines()[0])["nodes"]
    with events.open("a") as file:
        file.write(event_line("node_loss", {"node": node, "text": "gone"}))
    groups = "[{name: a, cpus_per_task: 1, mem: 1G}, {name: b, cpus_per_task: 1, mem: 1G}]"
    (jobs.folder / "job.yaml").write_text(
        f"name: bad\nslurm: {{groups: {groups}, hold: true}}\nrun: ['true']\n"
    )
    done = slurmray("submit", "job.yaml", "--exclude-bad", "--json")
    assert f"--exclude={node}, because of job {number}: {node} (gone)\n" in done.stderr
    shown = jobs.cluster.run(["scontrol", "show", "job", str(json.loads(done.stdout)["id"])]).stdout
    assert shown.count(f"ExcNodeList={node}\n") == shown.count("HetJobOffset=") == 2, shown
    assert slurmray("cancel", "bad").returncode == 0


@pytest.mark.parametrize("is_cancelled_before", [pytest.param(False, marks=pytest.mark.full), True])
def test_cancel_now(jobs: Jobs, is_cancelled_before: bool) -> None:
    """A trainer that ignores its signal."""
    (jobs.folder / "job.yaml").write_text("stop: {grace: 60}\n")
    deaf = "trap '' TERM; echo up; while :; do sleep 0.1; done"
    number = submit("job.yaml", "--nodes=2", *ONE[1:], "--job-name=deaf", "--", "bash", "-c", deaf)
    jobs.wait_for(number, "\nup\n")
    if is_cancelled_before:
        assert slurmray("cancel", "deaf").stderr == f"cancelled job {number}, deaf\n"
        jobs.wait_for(number, "] stop: scancel")
        time.sleep(1)
        assert jobs.cluster.job(number)["JobState"] == "COMPLETING"
    done = slurmray("cancel", "deaf", "--now")
    assert (done.returncode, done.stderr) == (0, f"cancelled job {number}, deaf\n")
    job = jobs.wait_end(number)
    assert (job.state, job.last_line) == ("CANCELLED", "done: trainer exited with 137 (128 + signal KILL)")
    events = {event["event"]: event for event in job.events}
    assert events["end"]["time"] - events["stop_now"]["time"] < events["grace"]["seconds"] / 2


@pytest.mark.full
def test_a_job_of_an_older_version(jobs: Jobs) -> None:
    """It has no SLURMRAY_END_TIME, and does not know `cancel --now`: the trainer keeps its grace period."""
    save = "trap 'sleep 2; echo saved; exit 3' TERM; echo end ${SLURMRAY_END_TIME-unknown}"
    run = ["bash", "-c", f"{save}; while :; do sleep 0.1; done"]
    script = jobs.script("slurm: {nodes: 1, cpus_per_task: 2, mem: 1G}", run)
    text = script.read_text()
    for line, older in (('"SLURMRAY_END_TIME": context.end_time,', ""), (".write_end_time()", ".rank")):
        assert line in text
        text = text.replace(line, older)
    script.write_text(text)
    number = jobs.cluster.sbatch(script, "root", folder=jobs.folder)
    jobs.wait_for(number, "\nend unknown\n")
    (jobs.folder / f"slurmray-runs/{number}-0/cancel-now").unlink()
    for verb in ("status", "why", "logs", "report"):
        done = slurmray(verb, str(number), *(["--output=page.html"] if verb == "report" else []))
        assert done.returncode == 0, done
    assert slurmray("attach", str(number), "--", "echo", "attached").stdout == "attached\n"
    first, second = slurmray("cancel", str(number), "--now").stderr.splitlines()
    assert first == f"cancelled job {number}"
    assert second.startswith(f"job {number}: its trainer has its grace period: an older slurmray ")
    job = jobs.wait_end(number)
    assert (job.state, job.last_line) == ("CANCELLED", "done: trainer exited with 3")
    assert "\nsaved\n" in job.log


def test_the_log_of_a_service(jobs: Jobs) -> None:
    (jobs.folder / "job.yaml").write_text("services: [{name: judge, run: echo judged; exec sleep 1000}]\n")
    number = submit("job.yaml", *ONE, "--", "sleep", "1")
    jobs.wait_end(number)
    text = slurmray("logs", "--service=judge").stdout
    assert re.fullmatch(r"service judge: bash /tmp/ray-\S+/run-service-judge\njudged\n", text)
    assert slurmray("logs", str(number), "--service=judge", "--node=node1", "--attempt=0").stdout == text
    assert "judged\n" not in slurmray("logs", "--node=node1").stdout
    unknown = slurmray("logs", "--service=jugde")
    assert unknown.returncode == 2
    assert unknown.stderr.endswith("no log of the service jugde; there are those of judge\n")
    for option in ("--follow", "--ray"):
        assert slurmray("logs", "--service=judge", option).returncode == 2


class Terminal:
    """A command line on a terminal of its own."""

    def __init__(self, *args: str) -> None:
        self._screen, inside = pty.openpty()
        self._seen = b""
        self.process = subprocess.Popen(
            argv_of(*args),
            env={**os.environ, "PYTHONPATH": str(ROOT), "TERM": "xterm"},
            stdin=inside,
            stdout=inside,
            stderr=inside,
            preexec_fn=_lead_session,  # noqa: PLW1509 - no threads here
        )
        os.close(inside)
        os.set_blocking(self._screen, False)

    def wait_for(self, text: str) -> str:
        """Wait until a text is on the screen; return all that was there."""
        wait_until(lambda: text in self._read(), self._read)
        return self._read()

    def type(self, text: str) -> None:
        os.write(self._screen, text.encode())

    def close(self) -> None:
        self.process.kill()
        os.close(self._screen)

    def _read(self) -> str:
        with contextlib.suppress(OSError):  # nothing new
            self._seen += os.read(self._screen, 1 << 16)
        return self._seen.decode().replace("\r\n", "\n")


def _lead_session() -> None:
    os.setsid()
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def test_ctrl_c_asks(jobs: Jobs) -> None:
    follow = ["submit", *ONE, "-f", "--", "bash", "-c", "echo up; sleep 600"]
    for answer, states in (("n", ["RUNNING"]), ("y", ["COMPLETING", "CANCELLED"])):
        terminal = Terminal(*follow)
        try:
            terminal.wait_for("\nup\n")
            terminal.type("\x03")
            terminal.wait_for("Cancel job ")
            terminal.type(f"{answer}\n")
            assert terminal.process.wait(HANG) == 130
            time.sleep(1)
            number = json.loads(slurmray("status", "--json").stdout)["id"]
            assert jobs.cluster.job(number)["JobState"] in states
        finally:
            terminal.close()
        follow = ["logs", "-f"]
    assert jobs.wait_end(number).state == "CANCELLED"


def test_attach(jobs: Jobs) -> None:
    """A command and a shell in the head node's container and in another one, with the job's environment."""
    wait = "echo up; until [[ -e go ]]; do sleep 0.1; done"
    number = submit("--nodes=2", *ONE[1:], "--env=MINE=it's", "--", "bash", "-c", wait)
    jobs.wait_for(number, "\nup\n")
    show = 'echo "$MINE"; ray list nodes --format=json; exit 5'
    done = slurmray("attach", "--", "bash", "-c", show)
    assert done.returncode == 5, done.stderr
    mine, _, nodes = done.stdout.partition("\n")
    assert mine == "it's"
    (start,) = [event for event in Job(number).events() if event["event"] == "start"]
    assert {node["node_name"] for node in json.loads(nodes)} == set(start["nodes"]), done.stderr
    for node in start["nodes"]:
        hostname = slurmray("attach", str(number), f"--node={node}", "--", "cat", "/proc/sys/kernel/hostname")
        assert hostname.stdout == f"{node}\n", hostname.stderr
    terminal = Terminal("attach")
    try:
        terminal.type("tty; ray status && echo $((6 * 7))-$MINE; exit 3\n")
        seen = terminal.wait_for("42-it's")
        assert "/dev/pts/" in seen
        assert "Autoscaler status" in seen
        assert terminal.process.wait(HANG) == 3
    finally:
        terminal.close()
    of_bob = jobs.cluster.run(Job(number).attach_argv(["cat", "/proc/self/environ"]), "bob")
    assert (of_bob.stdout, "Access/permission denied" in of_bob.stderr) == ("", True)
    refused = slurmray("attach", "--node=node9")
    assert (refused.returncode, refused.stderr) == (
        2,
        f"job {number}: --node: no node node9; its nodes are {', '.join(start['nodes'])}\n",
    )
    (jobs.folder / "go").touch()
    assert jobs.wait_end(number).code == "0:0"
    ended = slurmray("attach")
    assert ended.stderr == f"job {number}: the job is COMPLETED; attach while it is RUNNING\n"


def test_an_attached_command_ends_with_its_client(jobs: Jobs) -> None:
    """With a client that is terminated, and with a terminal that is closed: `podman exec` would leave it."""
    job = submit(*ONE, "--", "bash", "-c", "echo up; until [[ -e go ]]; do sleep 0.1; done")
    jobs.wait_for(job, "\nup\n")
    (start,) = [event for event in Job(job).events() if event["event"] == "start"]

    def running(seconds: int) -> bool:
        found = jobs.cluster.run(["pgrep", "-fx", f"sleep {seconds}"], host=start["nodes"][0])
        return found.returncode == 0

    def attach(seconds: int) -> list[str]:
        return ["attach", "--", "sh", "-c", f"touch begun-{seconds}; sleep {seconds}; true"]

    client = subprocess.Popen(
        argv_of(*attach(98765)), env={**os.environ, "PYTHONPATH": str(ROOT)}, stdin=subprocess.DEVNULL
    )
    terminal = Terminal(*attach(98766))
    try:
        for seconds in (98765, 98766):
            wait_until((jobs.folder / f"begun-{seconds}").exists, lambda: jobs.log(job))
            assert running(seconds)
        client.terminate()
        assert client.wait(HANG) == 143
    finally:
        client.kill()
        terminal.close()
    processes = ["ps", "-eo", "pid,ppid,pgid,sid,stat,etimes,args"]
    for seconds in (98765, 98766):
        wait_until(
            lambda seconds=seconds: not running(seconds),  # type: ignore[misc]
            lambda: jobs.cluster.run(processes, host=start["nodes"][0]).stdout,
        )
    (jobs.folder / "go").touch()
    assert jobs.wait_end(job).code == "0:0"


def test_dashboard_and_an_attached_command(jobs: Jobs) -> None:
    """Its address is signed in; without it nobody sees anything. The command ends with its container."""
    number = submit(*ONE, "--", "bash", "-c", "echo up; until [[ -e go ]]; do sleep 0.1; done")
    jobs.wait_for(number, "\nup\n")
    terminal = Terminal("dashboard", "--port=0")
    try:
        seen = terminal.wait_for("?key=")
        port, address, path = re.search(r": ssh -L (\d+):.*\n(http://127\.0\.0\.1:\d+)(/.+)\n", seen).groups()  # type: ignore[union-attr]
        assert address.endswith(f":{port}")
        browser = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
        browser.open(address + path, timeout=HANG)
        assert b"<title>Ray Dashboard</title>" in browser.open(address, timeout=HANG).read()
        (start,) = [event for event in Job(number).events() if event["event"] == "start"]
        nodes = json.load(browser.open(f"{address}/api/v0/nodes", timeout=HANG))["data"]["result"]["result"]
        assert [node["node_name"] for node in nodes] == start["nodes"]
        with pytest.raises(urllib.error.HTTPError, match="403"):
            urllib.request.build_opener().open(address, timeout=HANG)
        taken = slurmray("dashboard", f"--port={port}")
        assert (taken.returncode, taken.stderr) == (
            2,
            f"--port {port}: Address already in use; use another one, or 0 for any\n",
        )
        terminal.type("\x03")
        assert terminal.process.wait(HANG) == 130
    finally:
        terminal.close()
    own = slurmray("attach", "--", "bash", "-c", "exit 137")
    assert (own.returncode, own.stdout) == (137, ""), "the command's own end"
    assert "slurmray" not in own.stderr
    done = slurmray("attach", "--", "bash", "-c", "touch go; exec sleep 1000")
    assert jobs.wait_end(number).code == "0:0"
    assert done.returncode in (137, 255), "of the runtime"
    text = f"its container has ended or cannot be reached; slurmray status {number} shows the job"
    assert done.stderr.endswith(f"\njob {number}: {text}\n")
    assert "the job is COMPLETED; attach while it is RUNNING" in slurmray("dashboard").stderr


def test_doctor(jobs: Jobs) -> None:
    rows = {row["check"]: row for row in json.loads(slurmray("doctor", "--json", *ONE).stdout)}
    assert rows["Slurm"]["found"].startswith(("22.05.", "24.11.", "26.05."))
    options = rows["partition batch"]["fix"].removeprefix("a whole node: ").split()
    assert listed("--all") == [], "nothing was submitted"
    done = slurmray("doctor", *options)
    assert done.returncode == 0, done.stdout
    times = r"requeue: Slurm counts a silent node as down after \d+ s .* waits at least \d+ s .*"
    partition = "partition batch: [23] nodes, each 4 CPUs, "
    assert re.match(rf"Slurm: 2\d\.\d\d\.\d+\n{times}\n{partition}", done.stdout)
    assert "probe: 1/1 node" in done.stdout
    assert done.stdout.endswith("done: trainer exited with 0\n")
    (row,) = listed("--all")
    assert jobs.wait_end(row["id"]).code == "0:0"


def test_clean_nodes(jobs: Jobs) -> None:
    """A container and a folder of a job that Slurm does not know go; those of a job that runs stay."""
    name, folder = "slurmray-999999-0-node2", "/tmp/ray-999999-0-0a1b2c"
    wait = "echo up; until [[ -e go ]]; do sleep 0.1; done"
    running = submit(*ONE, "--nodelist=node2", "--", "bash", "-c", wait)
    jobs.wait_for(running, "\nup\n")
    options = ["--name", name, "--label", "slurmray.user=root", "--label", "slurmray.node=node2"]
    argv = ["podman", "run", "--detach", "--network=host", *options, DEFAULT_IMAGE, "sleep", "600"]
    for command in (argv, ["mkdir", "-p", f"{folder}/inside"]):
        done = jobs.cluster.run(command, host="node2")
        assert done.returncode == 0, done.stderr
    done = slurmray("clean", "--nodelist=node[1-2]", "--set=slurm.mem=500M")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "leftovers: removed 1 folder of ended jobs from node2" in done.stdout
    assert f"leftovers: removed {name} of an ended job from node2" in done.stdout
    assert done.stdout.endswith("done: the nodes are checked\n")
    assert "nothing of ended jobs was left" not in done.stderr
    again = slurmray("clean", "--nodelist=node2", "--set=slurm.mem=500M")
    assert again.stderr.endswith("nothing of ended jobs was left on node2\n"), again.stderr
    status = json.loads(slurmray("status", "clean", "--json").stdout)
    assert ("ray" in {step["name"] for step in status["steps"]}, status["bring_up"]) == (False, [])
    (jobs.folder / "go").touch()
    assert jobs.wait_end(running).code == "0:0"  # waits until nothing is left on any host


def test_up(jobs: Jobs) -> None:
    """A cluster without the trainer of its job spec, until Slurm signals that the time limit is near."""
    (jobs.folder / "job.yaml").write_text(
        "preset: verl\nlaunch: ray-job\nray: {runtime_env: {}}\nstop: {signal: USR2}\n"
        "run: [python3, -m, verl.trainer.main_ppo]\n"
    )
    done = slurmray("up", "job.yaml", *ONE)
    assert done.returncode == 0, done.stderr
    number = int(re.search(r"submitted job (\d+), ", done.stderr)[1])  # type: ignore[index]
    usage = done.stdout[done.stdout.index("the Ray cluster is ready:\n") :].splitlines()
    how = dict(line.split(maxsplit=1) for line in usage if "  slurmray " in line)
    ray_job = shlex.split(how["Ray"].removeprefix("job").strip())[1:-2]
    look = "import os; print('a job of Ray', repr(open(os.environ['RAY_TMPDIR'] + '/end_time').read()))"
    submitted = slurmray(*ray_job, "python3", "-c", look)
    assert submitted.returncode == 0, submitted.stderr
    assert "\na job of Ray '\\n'\n" in submitted.stdout
    jobs.cluster.run(["scancel", "--batch", "--signal=URG", str(number)])  # as Slurm does
    job = jobs.wait_end(number)
    assert (job.state, job.code) == ("COMPLETED", "0:0"), job.log
    assert "using Ray's own start: ray.start is standard\n" in job.log, "with the dashboard at once"


def test_up_of_a_job_that_fails(jobs: Jobs) -> None:
    done = slurmray("up", *ONE, "--set=checks.paths=[/no/such/path]")
    assert done.returncode == 65, done.stdout
    number = int(re.search(r"\njob (\d+): FAILED\n$", done.stderr)[1])  # type: ignore[index]
    assert jobs.wait_end(number).log == done.stdout, "the log only"


def test_watch(jobs: Jobs) -> None:
    number = submit(*ONE, "--hold")
    assert slurmray("status", "--watch").returncode == 2, "it is for a terminal"
    terminal = Terminal("status", "--watch", str(number))
    try:
        assert "\x1b[33mPENDING\x1b[0m" in terminal.wait_for("held by you"), "in colour"
        jobs.cluster.run(["scancel", str(number)])
        terminal.wait_for("CANCELLED")
        assert terminal.process.wait(HANG) == 0
    finally:
        terminal.close()


@pytest.mark.full
def test_a_job_that_slurm_has_forgotten(
    jobs: Jobs, podman_layout: Layout, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    number = submit(*ONE, "--", "true")
    jobs.wait_end(number)
    with SlurmCluster(ClusterConfig(nodes=("node1",)), podman_layout) as cluster:  # does not know the job
        monkeypatch.setenv("PATH", path_with_slurm(cluster, tmp_path / "of-another-slurm"))
        shown = slurmray("status", str(number)).stdout
        assert re.match(rf"job {number}: COMPLETED on 1 node, head node node1\n", shown), shown
        assert re.search(r"^  training +[\d.]+ s  true$", shown, re.MULTILINE)
        assert [row["state"] for row in listed("--all")] == ["COMPLETED"]
        (jobs.folder / f"slurmray-runs/{number}-0/events.jsonl").unlink()
        assert [row["state"] for row in listed("--all")] == ["UNKNOWN"]
        assert slurmray("status", str(number)).stdout == f"job {number}: COMPLETED\n", "by the job's log"
        (jobs.folder / f"slurm-{number}.out").unlink()
        done = slurmray("status", str(number))
        assert done.returncode == 64
        assert "unknown to Slurm, and " in done.stderr


@pytest.mark.attack("texts of the user in Slurm's records", inputs=6)
def test_names_and_comments_that_look_like_records(jobs: Jobs) -> None:
    """Slurm prints them as they are, also with line breaks. Commands are about the job that they name."""

    def sleeper(*args: str) -> int:
        text = "#!/bin/sh\nexec sleep 600\n"
        return jobs.cluster.sbatch("", "root", ["-n1", "--mem=10M", *args], text=text, folder=jobs.folder)

    other = sleeper("--array=0,3")
    fields = f"ArrayJobId={other} JobState=COMPLETED Restarts=x ExitCode= StartTime=x WorkDir=/x"
    numbers = [
        sleeper(f"--job-name=x ArrayTaskId=3 {fields}", f"--comment=ArrayTaskId=3 {fields}"),
        sleeper(f"--job-name=x ArrayTaskId=0 {fields}", f"--account=x {fields}", f"--network=x {fields}"),
        sleeper("--job-name=a\n\nb=c", "--comment=a\nb\n\nJobName=c"),
    ]
    for number in numbers:
        assert json.loads(slurmray("status", str(number), "--json").stdout)["state"] in ("PENDING", "RUNNING")
        for verb in (["why"], ["logs"], ["report", "-o", "-"], ["attach", "--", "id"], ["dashboard"]):
            assert slurmray(verb[0], str(number), *verb[1:]).returncode not in (79, 1), verb
        done = slurmray("cancel", str(number))
        assert (done.returncode, done.stderr) == (0, f"cancelled job {number}\n")
        assert Job(number).wait(HANG).state == "CANCELLED"
    states = [task.state for task in Job(other).tasks()]
    assert not {*states} & {"CANCELLED", "COMPLETED"}, states
    hidden = sleeper(f"--job-name=x\n   JobState=COMPLETED Reason=None\n\nJobId={other} JobName=y")
    done = slurmray("cancel", str(hidden))
    assert done.returncode == 64
    assert done.stderr.startswith(f"job {hidden}: `scontrol show job` has lines that are not Slurm's")
    jobs.cluster.run(["scancel", str(hidden), str(other)])
    both = f"--jobs={hidden},{other}"
    wait_until(lambda: not jobs.cluster.run(["squeue", "--noheader", both]).stdout, str)


@pytest.mark.full
def test_a_requeue_of_a_job_with_the_name_of_another(jobs: Jobs) -> None:
    """The agent reads restarts and partition of its own job. Slurm waits 2 minutes before it starts again."""
    text = "#!/bin/sh\nexec sleep 600\n"
    other = jobs.cluster.sbatch("", "root", ["-n1", "--mem=10M", "--array=3"], text=text, folder=jobs.folder)
    name = f"x ArrayTaskId=3 ArrayJobId={other} Requeue=1 Restarts=7 Partition=x MinMemoryCPU=1M"
    spec = "slurm: {nodes: 1, cpus_per_task: 1, mem: 1G}\nrequeue: {exit_code: 75}\n"
    run = "if mkdir again; then exit 75; fi; exit 3"
    number = jobs.submit(spec, ["bash", "-c", run], [f"--job-name={name}", f"--comment={name}"])
    assert jobs.cluster.wait(number, HANG) == ("FAILED", "3:0"), jobs.log(number)
    assert (jobs.folder / f"slurmray-runs/{number}-1/events.jsonl").exists()
    assert [task.state for task in Job(other).tasks()] == ["RUNNING"]
    assert jobs.cluster.job(other)["Restarts"] == "0"
    jobs.cluster.run(["scancel", str(other)])
    wait_clean(jobs.cluster)


def test_the_log_s_name_has_patterns(jobs: Jobs) -> None:
    """scontrol leaves some of them as they are; a # would begin a comment without quotes."""
    name = "--set=slurm.output=log#%x.%j.%N.%n.%t.%4j.%%.out"
    number = submit(*ONE, name, "--set=slurm.error=err.%N", "--set=container.runtime=none", "--", "true")
    job = jobs.wait_end(number)
    record = jobs.cluster.job(number)
    assert record["StdOut"].endswith(f"/log#slurmray.{number}.{record['BatchHost']}.0.0.{number:04}.%.out"), (
        record
    )
    assert job.state in ("COMPLETED", "FAILED")
    assert "[slurmray " in slurmray("logs", str(number)).stdout, record
    assert record["BatchHost"] in record["StdErr"]


@pytest.mark.parametrize(("run", "code"), [("true", 0), ("exit 3", 3), ("kill -9 $$", 137)])
def test_submit_waits_for_the_end(jobs: Jobs, run: str, code: int) -> None:
    wait = "--set=slurm.wait=true"
    assert slurmray("submit", *ONE, wait, "--", "bash", "-c", run).returncode == code
    wait_clean(jobs.cluster)


def test_submit_waits_for_a_job_that_is_cancelled_before_its_start(jobs: Jobs) -> None:
    """sbatch --wait returns 0."""
    argv = argv_of("submit", *ONE, "--set=slurm.wait=true", "--hold", "--job-name=never", "--", "true")
    with subprocess.Popen(
        argv, env={**os.environ, "PYTHONPATH": str(ROOT)}, stdin=subprocess.DEVNULL
    ) as waits:
        queue = ["squeue", "--noheader", "--name=never", "--format=%A"]
        wait_until(lambda: bool(jobs.cluster.run(queue).stdout), str)
        jobs.cluster.run(["scancel", jobs.cluster.run(queue).stdout.strip()])
        assert waits.wait(HANG) == 1


def test_a_job_that_is_submitted_from_within_another(jobs: Jobs) -> None:
    """sbatch passes on the outer job's SLURM_ variables, which srun takes for options.

    In 26.05 SLURM_TRES_PER_TASK contradicts SLURM_CPUS_PER_TASK, and each srun would be fatal; everywhere
    SLURM_MEM_PER_NODE and SLURM_NTASKS would be those of the inner steps.
    """
    script = jobs.script("slurm: {nodes: 1}\n", ["bash", "-c", "echo $((1 + 1)) steps"])
    text = f"#!/bin/bash\nsbatch --parsable --mem=1G --chdir={jobs.folder} {script} >inner\n"
    for options in (["-n2", "-c2", "--mem=300M"], ["-n1", "-c2", "--mem-per-cpu=150M"]):
        outer = jobs.cluster.sbatch("", "root", ["-N1", *options], text=text, folder=jobs.folder)
        assert jobs.cluster.wait(outer, HANG) == ("COMPLETED", "0:0")
        inner = jobs.wait_end(int((jobs.folder / "inner").read_text()))
        assert (inner.state, inner.code) == ("COMPLETED", "0:0"), inner.log
        assert "\n2 steps\n" in inner.log
