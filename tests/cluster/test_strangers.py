"""Attacks by another user of the cluster (bob) on a job of alice."""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from slurmray.rehearsal.cluster.slurm_cluster import SlurmCluster

from .jobs import HANG, Jobs, wait_until

ROOT = Path(__file__).parents[2]
PACKAGES = (
    *("click", "jinja2", "markupsafe", "yaml", "pydantic", "pydantic_core", "annotated_types"),
    *("typing_extensions", "typing_inspection"),
)
VERBS = [
    *(
        ["attach"],
        ["attach", "--", "id"],
        ["dashboard", "--port=0"],
        ["status"],
        ["why"],
        ["logs"],
        ["logs", "-f"],
    ),
    *(["logs", "--node=node1"], ["report", "-o", "-"], ["cancel"], ["cancel", "--now"]),
]

# Listens on the port of a job's dashboard as soon as the job's events name it, seconds before Ray does, and
# writes what it receives to standard output. The argument is events.jsonl.
PORT_THIEF = """
import os, re, socket, sys, threading, time
found = None
while not found:
    time.sleep(0.01)
    if os.path.exists(sys.argv[1]):
        with open(sys.argv[1]) as file:
            found = re.search(r"dashboard on port (\\d+)", file.read())
with socket.create_server(("127.0.0.1", int(found[1]))) as thief:
    print("listens", flush=True)
    while True:
        victim, _ = thief.accept()
        show = lambda victim=victim: print("received", victim.recv(65536), flush=True)
        threading.Thread(target=show, daemon=True).start()
"""

KEY, TEXT = "key-that-nobody-else-may-see", "text-of-the-setup"
ONE = """
slurm: {nodes: 1, cpus_per_task: 2, mem: 1G}
container: {runtime: none}
"""
# Run as bob in the submit folder. $1: the id of alice's next job.
PREMADE = {
    "folder": 'mkdir -p -m 777 slurmray-runs "slurmray-runs/$1-0/logs"; chmod -R 777 slurmray-runs',
    "link": 'mkdir -m 777 "theirs"; ln -s theirs slurmray-runs',
    "FIFO": 'mkdir -p "slurmray-runs/$1-0"; mkfifo "slurmray-runs/$1-0/mark"; chmod -R 777 slurmray-runs',
    "link inside": 'mkdir -p "slurmray-runs/$1-0/logs"; ln -s "$2" "slurmray-runs/$1-0/mark"',
}
SPEC = f"""
slurm: {{nodes: 1, cpus_per_task: 2, mem: 1G}}
env: {{WANDB_API_KEY: null}}
setup: sleep 1; true {TEXT}
node_env: sleep 1; true {TEXT}
container: {{setup: "sleep 1; true {TEXT}"}}
prepare: [{{name: data, run: "sleep 1; true {TEXT}"}}]
services: [{{name: web, run: "sleep 100; true {TEXT}", ready: {{run: "sleep 1; true {TEXT}"}}}}]
"""
# Runs as bob on a node until the job has ended: prints what processes and readable files show.
SEARCH = r"""
cd "$1"
cat >"$HOME/words"
while [[ ! -e done ]]; do
	ps -eo args
	grep -rlF -D skip -f "$HOME/words" slurmray-runs /tmp/ray-* 2>/dev/null |
		sed "s/^/$(sed q "$HOME/words") is in /"
	sleep 0.1
done | grep -F -f "$HOME/words"
true
"""


@pytest.mark.attack("another user listens on a port of the job", inputs=1)
def test_a_stranger_at_the_dashboard_s_port_gets_no_token(
    podman_cluster: SlurmCluster, folder: Path, program: Path, tmp_path: Path
) -> None:
    cluster = podman_cluster
    jobs = Jobs(cluster, folder, "alice")
    spec = "slurm: {nodes: 1, cpus_per_task: 2, mem: 1G, hold: true}\n"
    run = ["bash", "-c", "echo up; until [[ -e go ]]; do sleep 0.1; done"]
    number = jobs.submit(spec, run, ["--nodelist=node1"])
    # This machine's Python, as bob, in the network namespace of the head node.
    enter = ["nsenter", "-t", str(cluster.pids["node1"]), "-n", "setpriv", "--reuid=1002", "--clear-groups"]
    events = f"{folder}/slurmray-runs/{number}-0/events.jsonl"
    argv = [*enter, "--pdeathsig=KILL", sys.executable, "-c", PORT_THIEF, events]
    received = tmp_path / "received"
    with received.open("w") as out, subprocess.Popen(argv, stdout=out) as thief:
        try:
            assert cluster.run(["scontrol", "release", str(number)]).returncode == 0
            jobs.wait_for(number, " a process that is not of this job listens on it | Ray's dashboard | ")
            assert "listens" in received.read_text()
            done = slurmray(cluster, program, "alice", folder, "dashboard", str(number), "--port=0")
            time.sleep(1)
            assert "received" not in received.read_text()
        finally:
            thief.kill()
    last_line = r": port \d+ of node1: a process that is not of this job listens on it\n$"
    assert re.search(last_line, done.stderr), done
    (folder / "go").touch()
    job = jobs.wait_end(number)
    assert job.code == "0:0", job.log
    assert "dashboard" not in [event["event"] for event in job.events]


@pytest.fixture(scope="session")
def program(share: Path) -> Path:
    """A copy of slurmray with its dependencies, which users of the hosts can run with their Python."""
    folder = share / "program"
    folder.mkdir()
    for name in ("slurmray", "templates", "examples"):
        shutil.copytree(ROOT / name, folder / name)
    for name in PACKAGES:
        spec = importlib.util.find_spec(name)
        if spec and spec.origin:
            path = Path(spec.origin)
            copy = shutil.copytree if path.name == "__init__.py" else shutil.copy
            copy(
                path.parent if path.name == "__init__.py" else path,
                folder / (name if copy is shutil.copytree else ""),
            )
    return folder


def slurmray(
    cluster: SlurmCluster, program: Path, user: str, folder: Path, *args: str
) -> subprocess.CompletedProcess[str]:
    """Run a command line as a user, on the login host."""
    argv = ["env", f"PYTHONPATH={program}", f"HOME={folder}", "/usr/bin/python3", "-m", "slurmray", *args]
    return cluster.run(argv, user, folder=folder)


@pytest.mark.attack("a verb on another user's job, with a made-up run directory", inputs=len(VERBS) * 2)
def test_nothing_of_another_user_s_job_is_used(
    podman_cluster: SlurmCluster, folder: Path, program: Path
) -> None:
    """bob's job is `sleep`; its name and its run directory say that it is alice's, and what to run."""
    cluster = podman_cluster
    bob, alice = folder / "bob", folder / "alice"
    for home in (bob, alice):
        home.mkdir()
        home.chmod(0o777)
    name = "x\n   UserId=alice(1000) GroupId=alice(1000)"
    done = cluster.run(
        ["sbatch", "--parsable", f"--job-name={name}", f"--comment={name}", "--wrap=echo hi; sleep 600"],
        "bob",
        folder=bob,
    )
    number = int(done.stdout)
    wait_until(lambda: cluster.job(number).get("JobState") == "RUNNING", lambda: str(cluster.job(number)))
    theirs = ["/bin/sh", "-c", f"cp /proc/self/status {bob}/stolen"]
    common = {"v": 1, "time": time.time()}
    events = [
        {
            **common,
            "event": "start",
            "job": str(number),
            "attempt": 0,
            "nodes": ["node1"],
            "nodes_text": "1 node",
        }
        | {"components": [1], "ray_nodes": 1, "head": "node1", "run_dir": "/x\x1b[2J"},
        {**common, "event": "dashboard", "node": "node1", "address": "127.0.0.1", "port": 1},
        {**common, "event": "attach", "argv": theirs, "command": "x", "runtime": "none", "unset": []}
        | {"folder": f"/tmp/ray-{number}-0-0a1b2c"},
    ]
    text = "".join(f"{json.dumps(event)}\n" for event in events)
    for place in (bob, alice):  # alice's own folder, too, for her `--run_dir` by default
        write = f"mkdir -p slurmray-runs/{number}-0/logs; cat >slurmray-runs/{number}-0/events.jsonl"
        assert cluster.run(["sh", "-c", write], "bob", folder=place, text=text).returncode == 0
    try:
        for user in ("alice", "root"):
            for verb in VERBS:
                done = slurmray(cluster, program, user, alice, verb[0], str(number), *verb[1:])
                expected = (2, "", f"job {number} is bob's, not yours\n")
                assert (done.returncode, done.stdout, done.stderr) == expected, verb
        assert not (bob / "stolen").exists()
        assert cluster.job(number)["JobState"] == "RUNNING"
        own = slurmray(cluster, program, "bob", bob, "status", str(number))
        assert own.returncode == 0, own.stderr
        assert "\x1b" not in own.stdout
        for verb in (["attach"], ["dashboard", "--port=0"]):
            done = slurmray(cluster, program, "bob", bob, verb[0], str(number), *verb[1:])
            expected = (64, "", f"job {number}: its script was not rendered by slurmray\n")
            assert (done.returncode, done.stdout, done.stderr) == expected
        assert not (bob / "stolen").exists()
    finally:
        cluster.run(["scancel", str(number)])
        cluster.wait(number, 60)


@pytest.mark.attack("run directories of another user", inputs=1)
@pytest.mark.parametrize("kind", PREMADE)
def test_a_run_directory_that_bob_has_made(podman_cluster: SlurmCluster, folder: Path, kind: str) -> None:
    own = folder / "own"
    own.write_text("of alice\n")
    own.chmod(0o600)
    jobs = Jobs(podman_cluster, folder, "alice")
    script = jobs.script(ONE, ["true"])
    number = podman_cluster.sbatch(script, "alice", ["--hold"], folder=folder)
    made = podman_cluster.run(
        ["bash", "-c", f"cd {folder} && {PREMADE[kind]}", "bob", str(number), str(own)], "bob"
    )
    assert made.returncode == 0, made
    podman_cluster.run(["scontrol", "release", str(number)])
    job = jobs.wait_end(number)
    assert job.code == "64:0", job.log
    assert "slurmray-runs belongs to bob" in job.last_line
    assert "Set run_dir" in job.last_line
    assert own.read_text() == "of alice\n"


@pytest.mark.attack("processes and files of another user's job", inputs=1)
def test_bob_looks_at_alice_s_job(podman_cluster: SlurmCluster, folder: Path) -> None:
    jobs = Jobs(podman_cluster, folder, "alice")
    search, words = ["bash", "-c", SEARCH, "search", str(folder)], f"{KEY}\n{TEXT}\n"
    with ThreadPoolExecutor() as pool:
        seen = pool.submit(podman_cluster.run, search, "bob", "node1", text=words, timeout=HANG)
        try:
            number = jobs.submit(SPEC, ["true"], ["--nodelist=node1", f"--export=ALL,WANDB_API_KEY={KEY}"])
            podman_cluster.wait(number, HANG)
        finally:
            (folder / "done").touch()
        found = seen.result().stdout
    job = jobs.wait_end(number)
    assert job.code == "0:0", job.log
    assert [line for line in found.splitlines() if "sbatch" not in line] == []  # the test's own
