"""Attacks by another user of the cluster (bob) on a job of alice."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from slurmray.rehearsal.cluster.slurm_cluster import SlurmCluster

from .jobs import HANG, Jobs, slurm_commands, wait_until

ROOT = Path(__file__).parents[2]

# Listens on the port of a job's dashboard from the moment when its GCS listens, and writes what it receives
# to standard output. The arguments are the job's id and attempt.
PORT_THIEF = """
import socket, sys, threading, time
sys.path.insert(0, sys.argv[2])
from slurmray.agent.container.ray import ports
lease, leased = ports.lease_ports(sys.argv[1])
lease.close()
print("ready", flush=True)
while not ports.listener_users(leased[ports.GCS]):
    time.sleep(0.01)
with socket.create_server(("127.0.0.1", leased[ports.DASHBOARD])) as thief:
    print("listens", flush=True)
    while True:
        victim, _ = thief.accept()
        show = lambda victim=victim: print("received", victim.recv(65536), flush=True)
        threading.Thread(target=show, daemon=True).start()
"""


@pytest.mark.attack("another user listens on a port of the job", inputs=1)
def test_a_stranger_at_the_dashboard_s_port_gets_no_token(
    podman_cluster: SlurmCluster, folder: Path, tmp_path: Path
) -> None:
    cluster = podman_cluster
    jobs = Jobs(cluster, folder, "alice")
    spec = "slurm: {nodes: 1, cpus_per_task: 2, mem: 1G, hold: true}\n"
    run = ["bash", "-c", "echo up; until [[ -e go ]]; do sleep 0.1; done"]
    number = jobs.submit(spec, run, ["--nodelist=node1"])
    # This machine's Python, as bob, in the network namespace of the head node.
    enter = ["nsenter", "-t", str(cluster.pids["node1"]), "-n", "setpriv", "--reuid=1002", "--clear-groups"]
    thief_argv = [*enter, "--pdeathsig=KILL", sys.executable, "-c", PORT_THIEF, f"{number}-0", str(ROOT)]
    env = {
        **os.environ,
        "PATH": slurm_commands(cluster, tmp_path / "commands", "alice"),
        "PYTHONPATH": str(ROOT),
    }
    argv = [sys.executable, "-m", "slurmray", "dashboard", str(number), "--port=0"]
    received = tmp_path / "received"
    with received.open("w") as out, subprocess.Popen(thief_argv, stdout=out) as thief:
        try:
            wait_until(lambda: "ready" in received.read_text(), received.read_text)
            assert cluster.run(["scontrol", "release", str(number)]).returncode == 0
            jobs.wait_for(number, "\nup\n")
            assert "listens" in received.read_text()
            jobs.wait_for(number, " a process that is not of this job listens on it | Ray's dashboard | ")
            done = subprocess.run(
                argv, env=env, cwd=folder, capture_output=True, text=True, check=False, timeout=HANG
            )
            time.sleep(1)
            assert "received" not in received.read_text()
        finally:
            thief.kill()
    assert re.search(
        r": port \d+ of node1: a process that is not of this job listens on it\n$", done.stderr
    ), done
    (folder / "go").touch()
    job = jobs.wait_end(number)
    assert job.code == "0:0", job.log
    assert "dashboard" not in [event["event"] for event in job.events]
