"""The node agent as a real process; tests play the controller, and a script plays the container process."""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from slurmray.agent import heartbeat, script_parts
from slurmray.loading.load import load_plan
from slurmray.rendering.script import render_script
from tests.unit.agent.containers import job as make_job
from tests.unit.agent.containers import quick
from tests.unit.agent.peer import Peer
from tests.unit.agent.users import mounted, needs_root
from tests.unit.agent.waiting import wait_until
from tests.unit.agent.wire_types import TO_CONTROLLER, TO_NODES

HANG = 60  # seconds

# Stand-in for the container process: writes its input into the file `container`. does: see NodeProcess.
CONTAINER = """
import json, os, sys, time
folder, does = sys.argv[1:3]
log = open(os.path.join(folder, "container"), "w", buffering=1)
print(json.dumps({"v": 1, "type": "phase", "node": "node1", "phase": "container", "text": "up"}), flush=True)
print("PYTHON", os.environ.get("MARK", ""), file=log)
print("SESSION", os.environ.get("XDG_RUNTIME_DIR"), file=log)
if does == "exit":
    sys.exit(7)
if does == "no python":  # like podman with crun
    print("crun: executable file `python3` not found in $PATH: No such file or directory", file=sys.stderr)
    sys.exit(127)
for line in sys.stdin:
    log.write(line)
    if does == "stop" and '"type":"stop"' in line:
        sys.exit(0)
log.write("end of input\\n")
if does == "stay":
    time.sleep(1000)
"""


LIMITED = 'ulimit -S -f 50000 -t 9000; exec "$@"'  # soft limits of the submitter


class NodeProcess:
    """A running node agent with all its files in a folder.

    does: of the container process: `exit` (at once), `no python` (the image has none), `stop` (end at the
    message `stop`), `stay` (ignore the end of its input), or "" (end with its input).
    """

    def __init__(self, folder: Path, does: str = "", **spec: Any) -> None:
        self.folder = folder
        self.temp = Path(tempfile.mkdtemp(prefix="node-"))  # short, because of Ray's sockets in it
        self.run_dir = folder / "run"
        (folder / "ray-2.60.0.dist-info").mkdir()
        (folder / "bin").mkdir()
        (folder / "container.py").write_text(CONTAINER)
        (self.run_dir / "logs").mkdir(parents=True)
        for name in ("squeue", "scancel", "scontrol"):
            self.program(name, 'echo "${0##*/} $*" >>"$CALLS"; [ "${0##*/}" != squeue ] || echo RUNNING')
        (self.run_dir / "mark").write_text("0123456789\n")
        settings = {"slurm": {"nodes": 1}, "container": {"runtime": "none"}, **spec}
        settings["ray"] = {"temp_dir": str(self.temp), **spec.get("ray", {})}
        (folder / "job.yaml").write_text(json.dumps(settings))
        text = quick(render_script(load_plan(folder / "job.yaml", [], [])))
        text = re.sub(r'"heartbeat": 25', '"heartbeat": 3', text)
        run = f'run_with_none() {{\n\texec {sys.executable} {folder}/container.py {folder} "{does}"\n}}\n'
        self.text = re.sub(r"run_with_none\(\) \{.*?\n\}\n", lambda _: run, text, count=1, flags=re.DOTALL)
        self.process = subprocess.Popen(
            ["bash", "-c", LIMITED, "bash", *script_parts.story_command(self.text, "start_node")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=folder,
            env={
                "PATH": f"{folder}/bin:{os.environ['PATH']}",
                "PYTHONPATH": str(folder),
                "HOME": str(folder),
                "CALLS": str(folder / "calls"),
                "SLURMD_NODENAME": "node1",
                "SLURM_JOB_ID": "7",
                "SLURM_STEP_ID": "0",
                "SLURM_SUBMIT_DIR": str(folder),
                "SLURMRAY_ACCELERATOR": "none",
                "XDG_RUNTIME_DIR": "/no/such/folder",
            },
        )
        assert self.process.stdin
        assert self.process.stdout
        self.peer = Peer(self.process.stdout.fileno(), self.process.stdin.fileno(), TO_NODES, TO_CONTROLLER)
        self.send = self.peer.send
        self.peer.write(zlib.compress(self.text.encode()))

    def program(self, name: str, commands: str) -> None:
        path = self.folder / "bin" / name
        path.write_text(f"#!/bin/sh\n{commands}\n")
        path.chmod(0o755)

    def send_job(self, nodes: tuple[str, ...] = ("node1",), chances: int = 0) -> NodeProcess:
        self.send(
            "job",
            job=make_job(
                id="7",
                chances=chances,
                batch_host=nodes[0],
                nodes=list(nodes),
                grace=5,
                run_dir=str(self.run_dir),
                log_file=str(self.folder / "slurm-7.out"),
                mark="0123456789",
                started=time.time(),
            ),
        )
        return self

    def run(self) -> NodeProcess:
        """Send the job, and wait until its container process runs."""
        self.send_job().wait_for("phase", text="up")
        return self

    def failure(self) -> tuple[str, str]:
        """Kind and text of the message about its failure, which comes next."""
        failed = self.wait_for("failed")
        return failed["kind"], failed["message"]

    def beat(self) -> None:
        with contextlib.suppress(OSError):  # it has ended
            self.send("heartbeat")

    def wait_for(self, kind: str, **fields: Any) -> dict[str, Any]:
        """Return the next message of that type with these fields; drop those before it. Sends heartbeats."""
        wanted = {"type": kind, **fields}
        deadline = time.monotonic() + HANG
        while time.monotonic() < deadline:
            self.beat()
            try:
                message = self.peer.next(1)
            except TimeoutError:
                continue
            if not message:
                break
            if wanted.items() <= message.items():
                return message
        raise AssertionError(f"no {wanted}:\n{self.log()}")

    def until(self, holds: Callable[[], object]) -> None:
        """Wait until something holds. Sends heartbeats."""

        def look() -> object:
            self.beat()
            return holds()

        wait_until(look, self.log, HANG)

    def container_log(self, text: str) -> str:
        """Return the input of the container process, once it contains the text. Sends heartbeats."""
        path = self.folder / "container"
        self.until(lambda: path.exists() and text in path.read_text())
        return path.read_text()

    def log(self) -> str:
        return "".join(path.read_text() for path in self.run_dir.glob("logs/*"))

    def calls(self) -> str:
        path = self.folder / "calls"
        return path.read_text() if path.exists() else ""

    def end(self) -> int:
        """Close its input, wait for its end, and return its exit code."""
        assert self.process.stdin
        assert self.process.stderr
        self.process.stdin.close()
        while self.peer.next(HANG):
            pass
        assert self.process.stderr.read() == b""
        return self.process.wait(HANG)

    @property
    def messages(self) -> list[dict[str, Any]]:
        """All messages so far, but for heartbeats, which may come at any time."""
        return [message for message in self.peer.received if message["type"] != "heartbeat"]


Start = Callable[..., NodeProcess]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts the node agent, with what NodeProcess takes; its agent has begun."""
    made: list[NodeProcess] = []

    def begin(does: str = "", **spec: Any) -> NodeProcess:
        made.append(NodeProcess(tmp_path, does, **spec))
        assert made[-1].wait_for("started")["step"] == "0"
        return made[-1]

    yield begin
    for node in made:
        node.process.kill()
        node.process.wait()
        shutil.rmtree(node.temp)


def test_from_start_to_end(start: Start, tmp_path: Path) -> None:
    node = start().send_job()
    assert node.wait_for("checked")["proxy"] is False
    node.wait_for("phase", text="up")
    assert (node.temp / "ray-7-0-012345").stat().st_mode & 0o777 == 0o700
    node.send("start_ray", peers=[])
    node.send("stage_done", stage="prepare")
    lines = node.container_log("stage_done").splitlines()
    assert lines[1] == "SESSION None"
    messages = [json.loads(line) for line in lines[2:]]
    assert [message["type"] for message in messages] == ["settings", "job", "node", "start_ray", "stage_done"]
    assert messages[2]["rank"] == 0
    assert messages[2]["workdir"] == str(tmp_path)
    assert node.end() == 0
    assert node.messages[-1]["type"] == "gone"
    assert "end of input" in node.container_log("end of input")
    assert list(node.temp.iterdir()) == []
    assert "cancel" not in node.calls()


def test_a_start_on_fewer_nodes(start: Start) -> None:
    spec = {"slurm": {"nodes": 3}, "on_node_loss": "restart", "restart": {"min_nodes": 1}}
    node = start(**spec).send_job(("node1", "node2"))
    settings = json.loads(node.container_log('"type":"node"').splitlines()[2])["settings"]
    assert (settings["ray"]["nodes"], settings["trainer"]["nnodes"]) == (2, 2)


def test_the_controller_knows_which_leftovers_are_of_ended_jobs(start: Start) -> None:
    """With pyxis, whose containers have no Slurm commands."""
    node = start(container={"runtime": "pyxis", "image": "x"})
    for job in ("5", "6"):
        (node.temp / f"ray-{job}-0-0a1b2c/inside").mkdir(parents=True)
    node.send_job()
    node.wait_for("leftover_jobs", jobs=["5", "6"])
    node.send("ended_jobs", node="node2", jobs=["5", "6"])
    node.send("ended_jobs", node="node1", jobs=["6"])
    node.wait_for("checked")
    assert {path.name for path in node.temp.iterdir()} == {"ray-5-0-0a1b2c", "ray-7-0-012345"}
    assert "squeue" not in node.calls()


def test_samples_begin_an_interval_after_the_container(start: Start) -> None:
    node = start(watch={"interval": 5}).run()
    samples = node.run_dir / "logs/node1.samples.jsonl"
    assert not samples.exists()
    node.until(samples.exists)


def test_samples_that_cannot_be_written(start: Start) -> None:
    """The controller hears of it, and later ones are written."""
    node = start(watch={"interval": 5})
    samples = node.run_dir / "logs/node1.samples.jsonl"
    samples.mkdir()
    node.send_job()
    error = node.wait_for("thread_error")
    assert error["text"] == "error in the thread for samples: IsADirectoryError: Is a directory"
    samples.rmdir()
    node.until(samples.exists)
    assert '"columns"' in samples.read_text().splitlines()[0], "the header comes first all the same"


def test_the_log_of_a_service(start: Start) -> None:
    """Its output is complete, also what it prints at the end."""
    node = start(services=[{"name": "judge", "run": "true"}]).run()
    fifo = (node.temp / "ray-7-0-012345/inside/log-judge").open("wb")
    with fifo:
        fifo.write(b"judged\n")
    assert node.end() == 0
    assert (node.run_dir / "logs/service-judge@node1.log").read_text() == "judged\n"
    assert list(node.temp.iterdir()) == []


def test_messages_that_come_before_the_container(start: Start) -> None:
    node = start(setup="sleep 1").send_job()
    node.send("start_ray", peers=["10.0.0.1"])
    assert '"10.0.0.1"' in node.container_log("start_ray")


def test_slurm_s_signal_gives_the_trainer_its_grace_period(start: Start) -> None:
    node = start("stop").run()
    node.container_log('"type":"node"')  # the agent knows the container from then on
    node.process.send_signal(signal.SIGTERM)
    node.wait_for("stop_requested")
    assert '"seconds":5' in node.container_log('"type":"stop"')
    node.wait_for("gone")
    assert list(node.temp.iterdir()) == []


def test_slurm_s_signal_before_the_container(start: Start, tmp_path: Path) -> None:
    node = start(setup="sleep 1000").send_job()
    time.sleep(0.5)
    node.process.send_signal(signal.SIGTERM)
    node.wait_for("stop_requested")
    node.wait_for("gone")
    assert not (tmp_path / "container").exists()


SET_E = "set -e\necho no card\n(exit 3)\necho not reached\n"
# What goes wrong -> what the container process does, the job spec, and the failure: its kind and text.
FAILURES: dict[str, tuple[str, dict[str, Any], str, str]] = {
    "the container exits": ("exit", {}, "ray", ".* exited with 7"),
    "the image has no Python": (
        *("no python", {}, "image"),
        ".* exited with 127: the image has no python3: set container.python .*",
    ),
    "setup exits": ("", {"setup": "echo no card; exit 3"}, "preflight", "setup EXITED"),
    "setup fails": ("", {"setup": "echo no card; (exit 3)"}, "preflight", "setup EXITED"),
    "setup stops": ("", {"setup": SET_E}, "preflight", "setup EXITED"),
    "node_env exits": ("", {"node_env": "echo no card; exit 3"}, "preflight", "node_env EXITED"),
    "node_env stops": ("", {"node_env": SET_E}, "preflight", "node_env EXITED"),
}


@pytest.mark.parametrize(("does", "spec", "kind", "text"), FAILURES.values(), ids=FAILURES)
def test_a_failure(start: Start, does: str, spec: dict[str, Any], kind: str, text: str) -> None:
    node = start(does, **spec).send_job()
    exited = "exited with 3: no card. Correct it; the node's log has all of its output"
    found, message = node.failure()
    assert (found, bool(re.fullmatch(text.replace("EXITED", exited), message))) == (kind, True), message
    node.wait_for("gone")


def test_a_container_that_is_killed(start: Start, tmp_path: Path) -> None:
    node = start("stay").run()
    pids = subprocess.run(["pgrep", "-f", f"{tmp_path}/container.py"], stdout=subprocess.PIPE, check=True)
    for pid in pids.stdout.split():
        os.kill(int(pid), signal.SIGKILL)
    assert node.failure() == ("ray", "the container process was killed (exit code 137, SIGKILL)")


@pytest.fixture
def step_cgroup() -> Iterator[Path]:
    """A cgroup that is named as that of a step, and may have 64 MB."""
    root = Path("/sys/fs/cgroup")
    is_v1 = (root / "memory").is_dir()
    group = root / ("memory" if is_v1 else "") / f"slurmray-test-{os.getpid()}/step_0"
    try:
        group.mkdir(parents=True)
        if not is_v1:
            (group.parent / "cgroup.subtree_control").write_text("+memory")
        (group / ("memory.limit_in_bytes" if is_v1 else "memory.max")).write_text("64000000")
    except OSError as error:
        pytest.skip(f"no memory cgroup: {error}")
    try:
        show = f"echo $$ >{group}/cgroup.procs; exec cat /proc/self/cgroup"
        shown = subprocess.run(["sh", "-c", show], check=True, capture_output=True, text=True).stdout
        if f":/{group.parent.name}/step_0\n" not in shown:
            pytest.skip("a cgroup namespace shows other paths than those below /sys/fs/cgroup")
        yield group
    finally:
        group.rmdir()
        group.parent.rmdir()


def test_processes_that_the_kernel_killed_as_memory_ran_out(start: Start, step_cgroup: Path) -> None:
    node = start().run()
    enter = f"echo $$ >{step_cgroup}/cgroup.procs; exec {sys.executable} -c 'b\"1\" * 10**8'"
    assert subprocess.run(["sh", "-c", enter], check=False).returncode == -signal.SIGKILL
    (step_cgroup / "cgroup.procs").write_text(str(node.process.pid))
    assert node.end() == 0
    assert "killed 1 of the step's processes (oom_kill)" in node.log()


def test_a_container_process_that_does_not_answer(start: Start) -> None:
    node = start().run()
    (inside,) = node.temp.glob("*/inside")
    for _ in range(9):  # longer than the timeout
        (inside / heartbeat.FILE).touch()
        node.send("heartbeat")
        time.sleep(0.5)
        assert inside.exists(), "not cleaned up"
    kind, message = node.failure()
    assert (kind, message.partition(". ")[0]) == ("ray", "the container process does not answer for 3 s")
    node.wait_for("gone")


def test_setup_changes_the_environment_of_the_container_process(start: Start) -> None:
    node = start(setup="export MARK='a\nb'; echo hello; echo x >>runs").send_job()
    assert node.container_log("b").startswith("PYTHON a\nb\n")
    assert "hello" in node.log()
    node.end()
    assert not list(node.run_dir.glob("logs/.*"))


@pytest.mark.attack("processes and files of another user's job", inputs=1)
def test_ps_does_not_show_setup(start: Start, tmp_path: Path) -> None:
    show = "for pid in $$ $PPID; do cat /proc/$pid/cmdline; done >shown; true hunter2"
    node = start(setup=show).send_job()
    node.container_log("PYTHON")
    assert "run_setup" in (text := (tmp_path / "shown").read_text())
    assert "hunter2" not in text


@pytest.mark.attack("the submitter's environment", inputs=2)
def test_what_setup_inherits(start: Start, tmp_path: Path) -> None:
    """Soft limits are raised."""
    hard = subprocess.run(
        ["bash", "-c", "ulimit -H -f; ulimit -H -t"], capture_output=True, text=True, check=True
    )
    node = start(setup="(ulimit -S -f; ulimit -S -t) >found; cd /").send_job()
    node.container_log("PYTHON")
    assert (tmp_path / "found").read_text() == hard.stdout


def test_setup_is_over_when_its_shell_is(start: Start, tmp_path: Path) -> None:
    """What it has started in the background may keep its output open."""
    node = start(setup="sleep 1000 & echo $! >pid; export MARK=set").send_job()
    try:
        assert node.container_log("SESSION").startswith("PYTHON set\n")
    finally:
        os.kill(int((tmp_path / "pid").read_text()), signal.SIGKILL)


def test_much_output_of_setup_takes_no_memory(start: Start) -> None:
    node = start(setup="head --bytes=200M /dev/zero").send_job()
    node.container_log("SESSION")
    status = Path(f"/proc/{node.process.pid}/status").read_text()
    peak = re.search(r"VmHWM:\s*(\d+) kB", status)
    assert peak
    assert int(peak[1]) < 100_000


@needs_root
def test_a_container_process_that_fails_on_a_full_disk(start: Start, tmp_path: Path) -> None:
    with mounted(tmp_path / "run", "size=64k"):
        node = start("exit", setup="head --bytes=100k /dev/zero >run/full || true").send_job()
        assert f"cannot write to {node.run_dir}/logs: No space left on device" in node.failure()[1]


@pytest.mark.parametrize("field", ["setup", "node_env"])
@pytest.mark.parametrize("end", ["exit 0", "return", "exec true", ". ./activate"])
def test_a_setup_that_exits(start: Start, tmp_path: Path, field: str, end: str) -> None:
    (tmp_path / "activate").write_text("echo activated\nexit\n")
    node = start(**{field: f"echo begun\n{end}\n"}).send_job()
    text = f"{field} must not exit, return or exec, nor may files that it sources: what it sets is lost"
    assert node.failure() == ("preflight", text)


def test_heartbeats_while_setup_takes_long(start: Start) -> None:
    node = start(setup="echo begun; sleep 2").send_job()
    node.wait_for("heartbeat")
    # `doing` would suspend ray.ready_timeout, which has to end a job whose setup hangs.
    assert not node.wait_for("heartbeat")["doing"]
    assert "begun" in node.log()
    node.wait_for("phase", text="up")


def test_heartbeats_while_the_run_directory_stalls(start: Start) -> None:
    node = start()
    os.mkfifo(node.run_dir / "logs/node1.log")  # opening it to write waits for a reader
    node.send_job()
    node.wait_for("heartbeat")
    node.wait_for("heartbeat")


def test_node_waits_for_the_controller_after_a_finding(start: Start, tmp_path: Path) -> None:
    node = start(checks={"paths": ["/no/such"]}).send_job()
    finding = node.wait_for("finding", check="checks.paths")
    assert finding["found"].startswith("/no/such: no such")
    node.wait_for("checked")
    node.wait_for("unfit")
    node.wait_for("heartbeat")
    assert not (tmp_path / "container").exists()
    node.end()
    assert node.messages[-1]["type"] == "gone"


def test_run_directory_that_differs_from_the_head_node_s(start: Start) -> None:
    node = start()
    (node.run_dir / "mark").write_text("other\n")
    node.send_job()
    assert node.wait_for("finding")["check"] == "run directory"


@pytest.mark.parametrize(
    ("chances", "call"),
    [(0, "scancel 7\n"), (1, "scontrol requeue Incomplete 7\n")],
    ids=["cancel", "requeue"],
)
def test_no_heartbeat_of_the_controller(start: Start, tmp_path: Path, chances: int, call: str) -> None:
    node = start(slurm={"nodes": 2})
    (tmp_path / "slurm-7.out").touch()
    node.send_job(("head", "node1"), chances)
    node.process.wait(HANG)
    assert node.calls().splitlines()[0].startswith("squeue ")
    assert node.calls().endswith(call)
    assert "node1: no heartbeat from the head node head for 3 s" in (tmp_path / "slurm-7.out").read_text()
    assert list(node.temp.iterdir()) == []
    assert "end of input" in node.container_log("end of input")


@pytest.mark.parametrize(
    ("head", "seconds"), [("localhost", 0.0), ("head", 0.0), ("head", 3.0), ("head", math.inf)]
)
def test_a_worker_that_gets_no_heartbeat(start: Start, head: str, seconds: float) -> None:
    """It ends the job once the controller does not run, whether the head node's host answers or not.

    seconds: how long the controller writes heartbeats into the run directory after the worker has noticed.
    """
    node = start(slurm={"nodes": 2}).send_job((head, "node1"))
    node.wait_for("checked")
    file = node.run_dir / "heartbeat"
    file.write_text("1")
    begin, noticed = time.monotonic(), math.inf
    while node.process.poll() is None:
        now = time.monotonic()
        assert now - begin < HANG
        if noticed == math.inf and "no heartbeat from the head node" in node.log():
            noticed = now
        if seconds and now < noticed + seconds:
            file.write_text(str(now))
            assert not node.calls()
        time.sleep(0.05)
    assert ("scancel" in node.calls()) == (seconds < math.inf)


@pytest.mark.parametrize("head", ["localhost", "head"])
def test_a_worker_that_cannot_read_heartbeats(start: Start, tmp_path: Path, head: str) -> None:
    """The head node's host decides: opening a file hangs, as on a network file system without a server.

    Slurm shows each component of a heterogeneous job.
    """
    node = start(slurm={"nodes": 2})
    for path in (node.run_dir / "heartbeat", tmp_path / "slurm-7.out"):
        os.mkfifo(path)
    node.program("squeue", "echo RUNNING; echo RUNNING")
    node.send_job((head, "node1"))
    node.process.wait(HANG)
    assert ("scancel" in node.calls()) == (head == "head")


def test_container_ends_with_its_killed_task(start: Start) -> None:
    node = start().run()
    node.process.kill()
    assert "end of input" in node.container_log("end of input")


def test_variables_of_the_node(start: Start, tmp_path: Path) -> None:
    (tmp_path / "keys.env").write_text("KEY=value-of-the-key\nGID=0\n")
    (tmp_path / "keys.env").chmod(0o600)
    commands = 'echo on "$SLURMD_NODENAME"; export GID=$((1 + 2)) HERE="$PWD"; LOCAL=1; cd /; unset HOME'
    node = start(setup="export SITE=/site", node_env=commands, env_file="$SLURM_SUBMIT_DIR/keys.env").run()
    node.send("start_ray", peers=[])
    message = json.loads(node.container_log("start_ray").splitlines()[4])
    assert message["env_file"] == {"KEY": "value-of-the-key", "GID": "0"}
    assert message["node_env"] == {"GID": "3", "HERE": str(tmp_path)}
    assert "on node1" in node.log()
    node.end()
    written = "".join(path.read_text() for path in node.run_dir.rglob("*") if path.is_file())
    assert "value-of-the-key" not in written + node.text + json.dumps(node.messages)


def test_a_path_with_a_variable_that_is_not_set(start: Start) -> None:
    node = start(checks={"paths": ["$SCRATCH/data"]}).send_job()
    assert node.wait_for("finding", check="checks.paths")["found"] == "$SCRATCH is not set"
    node.wait_for("unfit")
    assert list(node.temp.iterdir()) == []


@pytest.fixture
def with_ray_logs(start: Start) -> NodeProcess:
    """A node with a log of Ray, and its container."""
    node = start().run()
    logs = node.temp / "ray-7-0-012345/inside/session_latest/logs"
    logs.mkdir(parents=True)
    (logs / "raylet.out").write_text("raylet")
    return node


@pytest.mark.parametrize("has_succeeded", [True, False])
def test_ray_s_logs_after_a_failure(with_ray_logs: NodeProcess, has_succeeded: bool) -> None:
    node = with_ray_logs
    if has_succeeded:
        node.send("succeeded")
    assert node.end() == 0
    kept = list((node.run_dir / "logs").glob("*.tar.gz"))
    assert kept == ([] if has_succeeded else [node.run_dir / "logs/node1-ray.tar.gz"])
    texts = [message["text"] for message in node.messages if message["type"] == "phase"]
    told = f"Ray's logs of each node are in {node.run_dir}/logs"
    assert (told in texts) != has_succeeded
    assert list(node.temp.iterdir()) == []


def test_a_run_directory_that_stalls_at_the_end(with_ray_logs: NodeProcess) -> None:
    node = with_ray_logs
    os.mkfifo(node.run_dir / "logs/node1-ray.tar.gz.part")  # opening it to write waits for a reader
    assert node.end() == 0
    assert list(node.temp.iterdir()) == []
