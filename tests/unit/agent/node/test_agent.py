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
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from slurmray.agent import heartbeat, script_parts
from slurmray.loading.load import load_plan
from slurmray.rendering.script import render_script
from tests.unit.agent.containers import job as make_job
from tests.unit.agent.containers import quick
from tests.unit.agent.peer import Peer
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

    def send_job(self, nodes: tuple[str, ...] = ("node1",), chances: int = 0) -> None:
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

    def wait_for(self, kind: str, **fields: Any) -> dict[str, Any]:
        """Return the next message of that type with these fields; drop those before it. Sends heartbeats."""
        wanted = {"type": kind, **fields}
        deadline = time.monotonic() + HANG
        while time.monotonic() < deadline:
            try:
                message = self.peer.next(1)
            except TimeoutError:
                self.send("heartbeat")
                continue
            if not message:
                break
            if wanted.items() <= message.items():
                return message
        raise AssertionError(f"no {wanted}:\n{self.log()}")

    def container_log(self, text: str) -> str:
        """Return the input of the container process, once it contains the text. Sends heartbeats."""
        deadline = time.monotonic() + HANG
        while time.monotonic() < deadline:
            path = self.folder / "container"
            if path.exists() and text in path.read_text():
                return path.read_text()
            with contextlib.suppress(OSError):  # it has ended
                self.send("heartbeat")
            time.sleep(0.1)
        raise AssertionError(f"no {text!r}:\n{self.log()}")

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


@pytest.fixture
def nodes() -> Iterator[list[NodeProcess]]:
    made: list[NodeProcess] = []
    yield made
    for node in made:
        node.process.kill()
        node.process.wait()
        shutil.rmtree(node.temp)


def start(nodes: list[NodeProcess], folder: Path, *args: Any, **spec: Any) -> NodeProcess:
    nodes.append(NodeProcess(folder, *args, **spec))
    assert nodes[-1].wait_for("started")["step"] == "0"
    return nodes[-1]


def test_from_start_to_end(nodes: list[NodeProcess], tmp_path: Path) -> None:
    node = start(nodes, tmp_path)
    node.send_job()
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


def test_a_start_on_fewer_nodes(nodes: list[NodeProcess], tmp_path: Path) -> None:
    spec = {"slurm": {"nodes": 3}, "on_node_loss": "restart", "restart": {"min_nodes": 1}}
    node = start(nodes, tmp_path, **spec)
    node.send_job(("node1", "node2"))
    settings = json.loads(node.container_log('"type":"node"').splitlines()[2])["settings"]
    assert (settings["ray"]["nodes"], settings["trainer"]["nnodes"]) == (2, 2)


def test_the_controller_knows_which_leftovers_are_of_ended_jobs(
    nodes: list[NodeProcess], tmp_path: Path
) -> None:
    """With pyxis, whose containers have no Slurm commands."""
    node = start(nodes, tmp_path, container={"runtime": "pyxis", "image": "x"})
    for job in ("5", "6"):
        (node.temp / f"ray-{job}-0-0a1b2c/inside").mkdir(parents=True)
    node.send_job()
    node.wait_for("leftover_jobs", jobs=["5", "6"])
    node.send("ended_jobs", node="node2", jobs=["5", "6"])
    node.send("ended_jobs", node="node1", jobs=["6"])
    node.wait_for("checked")
    assert {path.name for path in node.temp.iterdir()} == {"ray-5-0-0a1b2c", "ray-7-0-012345"}
    assert "squeue" not in node.calls()


def test_samples_begin_an_interval_after_the_container(nodes: list[NodeProcess], tmp_path: Path) -> None:
    node = start(nodes, tmp_path, watch={"interval": 5})
    node.send_job()
    node.wait_for("phase", text="up")
    samples = node.run_dir / "logs/node1.samples.jsonl"
    assert not samples.exists()
    deadline = time.monotonic() + HANG
    while not samples.exists():
        assert time.monotonic() < deadline, node.log()
        node.send("heartbeat")
        time.sleep(0.1)


def test_samples_that_cannot_be_written(nodes: list[NodeProcess], tmp_path: Path) -> None:
    """The controller hears of it, and later ones are written."""
    node = start(nodes, tmp_path, watch={"interval": 5})
    samples = node.run_dir / "logs/node1.samples.jsonl"
    samples.mkdir()
    node.send_job()
    deadline = time.monotonic() + HANG
    while not (errors := [message for message in node.messages if message["type"] == "thread_error"]):
        assert time.monotonic() < deadline
        node.send("heartbeat")
        with contextlib.suppress(TimeoutError):
            node.peer.next(0.1)
    assert errors[0]["text"] == "error in the thread for samples: IsADirectoryError: Is a directory"
    samples.rmdir()
    while not samples.exists():
        assert time.monotonic() < deadline, node.log()
        node.send("heartbeat")
        time.sleep(0.1)
    assert '"columns"' in samples.read_text().splitlines()[0], "the header comes first all the same"


def test_the_log_of_a_service(nodes: list[NodeProcess], tmp_path: Path) -> None:
    """Its output is complete, also what it prints at the end."""
    node = start(nodes, tmp_path, services=[{"name": "judge", "run": "true"}])
    node.send_job()
    node.wait_for("phase", text="up")
    fifo = (node.temp / "ray-7-0-012345/inside/log-judge").open("wb")
    with fifo:
        fifo.write(b"judged\n")
    assert node.end() == 0
    assert (node.run_dir / "logs/service-judge@node1.log").read_text() == "judged\n"
    assert list(node.temp.iterdir()) == []


def test_messages_that_come_before_the_container(nodes: list[NodeProcess], tmp_path: Path) -> None:
    node = start(nodes, tmp_path, setup="sleep 1")
    node.send_job()
    node.send("start_ray", peers=["10.0.0.1"])
    assert '"10.0.0.1"' in node.container_log("start_ray")


def test_slurm_s_signal_gives_the_trainer_its_grace_period(nodes: list[NodeProcess], tmp_path: Path) -> None:
    node = start(nodes, tmp_path, "stop")
    node.send_job()
    node.wait_for("phase", text="up")
    node.container_log('"type":"node"')  # the agent knows the container from then on
    node.process.send_signal(signal.SIGTERM)
    node.wait_for("stop_requested")
    assert '"seconds":5' in node.container_log('"type":"stop"')
    node.wait_for("gone")
    assert list(node.temp.iterdir()) == []


def test_slurm_s_signal_before_the_container(nodes: list[NodeProcess], tmp_path: Path) -> None:
    node = start(nodes, tmp_path, setup="sleep 1000")
    node.send_job()
    time.sleep(0.5)
    node.process.send_signal(signal.SIGTERM)
    node.wait_for("stop_requested")
    node.wait_for("gone")
    assert not (tmp_path / "container").exists()


def test_a_container_that_exits(nodes: list[NodeProcess], tmp_path: Path) -> None:
    node = start(nodes, tmp_path, "exit")
    node.send_job()
    failed = node.wait_for("failed")
    assert failed["kind"] == "ray"
    assert failed["message"].endswith(" exited with 7")
    node.wait_for("gone")


def test_an_image_without_python(nodes: list[NodeProcess], tmp_path: Path) -> None:
    node = start(nodes, tmp_path, "no python")
    node.send_job()
    failed = node.wait_for("failed")
    assert failed["kind"] == "image"
    assert " exited with 127: the image has no python3: set container.python " in failed["message"]


def test_a_container_that_is_killed(nodes: list[NodeProcess], tmp_path: Path) -> None:
    node = start(nodes, tmp_path, "stay")
    node.send_job()
    node.wait_for("phase", text="up")
    pids = subprocess.run(["pgrep", "-f", f"{tmp_path}/container.py"], stdout=subprocess.PIPE, check=True)
    for pid in pids.stdout.split():
        os.kill(int(pid), signal.SIGKILL)
    failed = node.wait_for("failed")
    assert failed["kind"] == "ray"
    assert failed["message"] == "the container process was killed (exit code 137, SIGKILL)"


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


def test_processes_that_the_kernel_killed_as_memory_ran_out(
    nodes: list[NodeProcess], tmp_path: Path, step_cgroup: Path
) -> None:
    node = start(nodes, tmp_path)
    node.send_job()
    node.wait_for("phase", text="up")
    enter = f"echo $$ >{step_cgroup}/cgroup.procs; exec {sys.executable} -c 'b\"1\" * 10**8'"
    assert subprocess.run(["sh", "-c", enter], check=False).returncode == -signal.SIGKILL
    (step_cgroup / "cgroup.procs").write_text(str(node.process.pid))
    assert node.end() == 0
    assert "killed 1 of the step's processes (oom_kill)" in node.log()


def test_a_container_process_that_does_not_answer(nodes: list[NodeProcess], tmp_path: Path) -> None:
    node = start(nodes, tmp_path)
    node.send_job()
    node.wait_for("phase", text="up")
    (inside,) = node.temp.glob("*/inside")
    for _ in range(9):  # longer than the timeout
        (inside / heartbeat.FILE).touch()
        node.send("heartbeat")
        time.sleep(0.5)
        assert inside.exists(), "not cleaned up"
    failed = node.wait_for("failed")
    assert failed["kind"] == "ray"
    assert failed["message"].startswith("the container process does not answer for 3 s.")
    node.wait_for("gone")


def test_setup_changes_the_environment_of_the_container_process(
    nodes: list[NodeProcess], tmp_path: Path
) -> None:
    node = start(nodes, tmp_path, setup="export MARK='a\nb'; echo hello; echo x >>runs")
    node.send_job()
    assert node.container_log("b").startswith("PYTHON a\nb\n")
    assert "hello" in node.log()
    node.end()
    assert not list(node.run_dir.glob("logs/.*"))


@pytest.mark.attack("processes and files of another user's job", inputs=1)
def test_ps_does_not_show_setup(nodes: list[NodeProcess], tmp_path: Path) -> None:
    show = "for pid in $$ $PPID; do cat /proc/$pid/cmdline; done >shown; true hunter2"
    node = start(nodes, tmp_path, setup=show)
    node.send_job()
    node.container_log("PYTHON")
    assert "run_setup" in (text := (tmp_path / "shown").read_text())
    assert "hunter2" not in text


@pytest.mark.attack("the submitter's environment", inputs=2)
def test_what_setup_inherits(nodes: list[NodeProcess], tmp_path: Path) -> None:
    """Soft limits are raised."""
    hard = subprocess.run(
        ["bash", "-c", "ulimit -H -f; ulimit -H -t"], capture_output=True, text=True, check=True
    )
    node = start(nodes, tmp_path, setup="(ulimit -S -f; ulimit -S -t) >found; cd /")
    node.send_job()
    node.container_log("PYTHON")
    assert (tmp_path / "found").read_text() == hard.stdout


def test_setup_is_over_when_its_shell_is(nodes: list[NodeProcess], tmp_path: Path) -> None:
    """What it has started in the background may keep its output open."""
    node = start(nodes, tmp_path, setup="sleep 1000 & echo $! >pid; export MARK=set")
    node.send_job()
    try:
        assert node.container_log("SESSION").startswith("PYTHON set\n")
    finally:
        os.kill(int((tmp_path / "pid").read_text()), signal.SIGKILL)


def test_much_output_of_setup_takes_no_memory(nodes: list[NodeProcess], tmp_path: Path) -> None:
    node = start(nodes, tmp_path, setup="head --bytes=200M /dev/zero")
    node.send_job()
    node.container_log("SESSION")
    status = Path(f"/proc/{node.process.pid}/status").read_text()
    peak = re.search(r"VmHWM:\s*(\d+) kB", status)
    assert peak
    assert int(peak[1]) < 100_000


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts a file system")
def test_a_container_process_that_fails_on_a_full_disk(nodes: list[NodeProcess], tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", tmp_path / "run"], check=True)
    try:
        node = start(nodes, tmp_path, "exit", setup="head --bytes=100k /dev/zero >run/full || true")
        node.send_job()
        failed = node.wait_for("failed")
        assert f"cannot write to {node.run_dir}/logs: No space left on device" in failed["message"]
    finally:
        subprocess.run(["umount", "--lazy", tmp_path / "run"], check=True)


@pytest.mark.parametrize("setup", ["echo cannot load; exit 3", "echo cannot load; (exit 3)"])
def test_a_setup_that_fails(nodes: list[NodeProcess], tmp_path: Path, setup: str) -> None:
    node = start(nodes, tmp_path, setup=setup)
    node.send_job()
    failed = node.wait_for("failed")
    assert failed["kind"] == "preflight"
    assert (
        failed["message"]
        == "setup exited with 3: cannot load. Correct it; the node's log has all of its output"
    )


@pytest.mark.parametrize("field", ["setup", "node_env"])
@pytest.mark.parametrize("end", ["exit 0", "return", "exec true", ". ./activate"])
def test_a_setup_that_exits(nodes: list[NodeProcess], tmp_path: Path, field: str, end: str) -> None:
    (tmp_path / "activate").write_text("echo activated\nexit\n")
    node = start(nodes, tmp_path, **{field: f"echo begun\n{end}\n"})
    node.send_job()
    failed = node.wait_for("failed")
    text = f"{field} must not exit, return or exec, nor may files that it sources: what it sets is lost"
    assert (failed["kind"], failed["message"]) == ("preflight", text)


@pytest.mark.parametrize("field", ["setup", "node_env"])
def test_a_setup_that_stops_at_an_error(nodes: list[NodeProcess], tmp_path: Path, field: str) -> None:
    node = start(nodes, tmp_path, **{field: "set -e\necho no card\n(exit 3)\necho not reached\n"})
    node.send_job()
    assert node.wait_for("failed")["message"].startswith(f"{field} exited with 3: no card. Correct it; ")


def test_heartbeats_while_setup_takes_long(nodes: list[NodeProcess], tmp_path: Path) -> None:
    node = start(nodes, tmp_path, setup="echo begun; sleep 2")
    node.send_job()
    node.wait_for("heartbeat")
    # `doing` would suspend ray.ready_timeout, which has to end a job whose setup hangs.
    assert not node.wait_for("heartbeat")["doing"]
    assert "begun" in node.log()
    node.wait_for("phase", text="up")


def test_heartbeats_while_the_run_directory_stalls(nodes: list[NodeProcess], tmp_path: Path) -> None:
    node = start(nodes, tmp_path)
    os.mkfifo(node.run_dir / "logs/node1.log")  # opening it to write waits for a reader
    node.send_job()
    node.wait_for("heartbeat")
    node.wait_for("heartbeat")


def test_node_waits_for_the_controller_after_a_finding(nodes: list[NodeProcess], tmp_path: Path) -> None:
    node = start(nodes, tmp_path, checks={"paths": ["/no/such"]})
    node.send_job()
    finding = node.wait_for("finding", check="checks.paths")
    assert finding["found"].startswith("/no/such: no such")
    node.wait_for("checked")
    node.wait_for("unfit")
    node.wait_for("heartbeat")
    assert not (tmp_path / "container").exists()
    node.end()
    assert node.messages[-1]["type"] == "gone"


def test_run_directory_that_differs_from_the_head_node_s(nodes: list[NodeProcess], tmp_path: Path) -> None:
    node = start(nodes, tmp_path)
    (node.run_dir / "mark").write_text("other\n")
    node.send_job()
    assert node.wait_for("finding")["check"] == "run directory"


@pytest.mark.parametrize(
    ("chances", "call"),
    [(0, "scancel 7\n"), (1, "scontrol requeue Incomplete 7\n")],
    ids=["cancel", "requeue"],
)
def test_no_heartbeat_of_the_controller(
    nodes: list[NodeProcess], tmp_path: Path, chances: int, call: str
) -> None:
    node = start(nodes, tmp_path, slurm={"nodes": 2})
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
def test_a_worker_that_gets_no_heartbeat(
    nodes: list[NodeProcess], tmp_path: Path, head: str, seconds: float
) -> None:
    """It ends the job once the controller does not run, whether the head node's host answers or not.

    seconds: how long the controller writes heartbeats into the run directory after the worker has noticed.
    """
    node = start(nodes, tmp_path, slurm={"nodes": 2})
    node.send_job((head, "node1"))
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
def test_a_worker_that_cannot_read_heartbeats(nodes: list[NodeProcess], tmp_path: Path, head: str) -> None:
    """The head node's host decides: opening a file hangs, as on a network file system without a server.

    Slurm shows each component of a heterogeneous job.
    """
    node = start(nodes, tmp_path, slurm={"nodes": 2})
    for path in (node.run_dir / "heartbeat", tmp_path / "slurm-7.out"):
        os.mkfifo(path)
    node.program("squeue", "echo RUNNING; echo RUNNING")
    node.send_job((head, "node1"))
    node.process.wait(HANG)
    assert ("scancel" in node.calls()) == (head == "head")


def test_container_ends_with_its_killed_task(nodes: list[NodeProcess], tmp_path: Path) -> None:
    node = start(nodes, tmp_path)
    node.send_job()
    node.wait_for("phase", text="up")
    node.process.kill()
    assert "end of input" in node.container_log("end of input")


def test_variables_of_the_node(nodes: list[NodeProcess], tmp_path: Path) -> None:
    (tmp_path / "keys.env").write_text("KEY=value-of-the-key\nGID=0\n")
    (tmp_path / "keys.env").chmod(0o600)
    commands = 'echo on "$SLURMD_NODENAME"; export GID=$((1 + 2)) HERE="$PWD"; LOCAL=1; cd /; unset HOME'
    node = start(
        nodes, tmp_path, setup="export SITE=/site", node_env=commands, env_file="$SLURM_SUBMIT_DIR/keys.env"
    )
    node.send_job()
    node.wait_for("phase", text="up")
    node.send("start_ray", peers=[])
    message = json.loads(node.container_log("start_ray").splitlines()[4])
    assert message["env_file"] == {"KEY": "value-of-the-key", "GID": "0"}
    assert message["node_env"] == {"GID": "3", "HERE": str(tmp_path)}
    assert "on node1" in node.log()
    node.end()
    written = "".join(path.read_text() for path in node.run_dir.rglob("*") if path.is_file())
    assert "value-of-the-key" not in written + node.text + json.dumps(node.messages)


def test_a_node_env_that_fails(nodes: list[NodeProcess], tmp_path: Path) -> None:
    node = start(nodes, tmp_path, node_env="echo no card; exit 3")
    node.send_job()
    failed = node.wait_for("failed")
    assert failed["kind"] == "preflight"
    assert failed["message"].startswith("node_env exited with 3: no card. Correct it; ")


def test_a_path_with_a_variable_that_is_not_set(nodes: list[NodeProcess], tmp_path: Path) -> None:
    node = start(nodes, tmp_path, checks={"paths": ["$SCRATCH/data"]})
    node.send_job()
    assert node.wait_for("finding", check="checks.paths")["found"] == "$SCRATCH is not set"
    node.wait_for("unfit")
    assert list(node.temp.iterdir()) == []


def start_with_ray_logs(nodes: list[NodeProcess], folder: Path) -> NodeProcess:
    """Start a node, and write a log of Ray when its container runs."""
    node = start(nodes, folder)
    node.send_job()
    node.wait_for("phase", text="up")
    logs = node.temp / "ray-7-0-012345/inside/session_latest/logs"
    logs.mkdir(parents=True)
    (logs / "raylet.out").write_text("raylet")
    return node


@pytest.mark.parametrize("has_succeeded", [True, False])
def test_ray_s_logs_after_a_failure(nodes: list[NodeProcess], tmp_path: Path, has_succeeded: bool) -> None:
    node = start_with_ray_logs(nodes, tmp_path)
    if has_succeeded:
        node.send("succeeded")
    assert node.end() == 0
    kept = list((node.run_dir / "logs").glob("*.tar.gz"))
    assert kept == ([] if has_succeeded else [node.run_dir / "logs/node1-ray.tar.gz"])
    texts = [message["text"] for message in node.messages if message["type"] == "phase"]
    told = f"Ray's logs of each node are in {node.run_dir}/logs"
    assert (told in texts) != has_succeeded
    assert list(node.temp.iterdir()) == []


def test_a_run_directory_that_stalls_at_the_end(nodes: list[NodeProcess], tmp_path: Path) -> None:
    node = start_with_ray_logs(nodes, tmp_path)
    os.mkfifo(node.run_dir / "logs/node1-ray.tar.gz.part")  # opening it to write waits for a reader
    assert node.end() == 0
    assert list(node.temp.iterdir()) == []
