"""Another process takes a port after it was chosen for Ray and before Ray opens it."""

from __future__ import annotations

import subprocess
import sys

import pytest

from slurmray.rehearsal.cluster.lab import Lab
from tests.cluster.jobs import HANG

from .case import Fault

# Reads Ray's ports in the node's log, and takes one before Ray does.
THIEF = """
import glob, re, socket, sys, time
found, deadline = None, time.monotonic() + 120  # bounds a hang
while not found:
    assert time.monotonic() < deadline, "the log has no port of Ray"
    time.sleep(0.01)
    found = re.search(sys.argv[2] + "=([0-9]+)", "".join(open(log).read() for log in glob.glob(sys.argv[1])))
thief = socket.create_server(("0.0.0.0", int(found[1])))
print("taken", flush=True)
time.sleep(600)
"""


@pytest.mark.fault("a port is taken")
@pytest.mark.parametrize("host", ["node1", pytest.param("node2", marks=pytest.mark.full)])
def test_another_is_used(fault: Fault, lab: Lab, host: str) -> None:
    logs = f"{fault.jobs.folder}/slurmray-runs/*/logs/{host}.log"
    # With this machine's Python, in the host's network.
    enter = ["nsenter", "-t", str(lab.pids[host]), "-n", "setpriv", "--pdeathsig", "KILL"]
    argv = [*enter, sys.executable, "-c", THIEF, logs, "--node-manager-port"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as thief:
        try:
            # A prepare step, which runs beside Ray, must not be disturbed.
            fault.submit(["true"], prepare=[{"name": "long", "run": "sleep 5", "where": "all"}])
            assert thief.stdout
            assert thief.stdout.readline() == "taken\n"
            state, code = lab.wait(fault.job, HANG)
        finally:
            thief.kill()
    job = fault.end()
    assert (state, code) == ("COMPLETED", "0:0"), job.log
    node_log = (job.run / f"logs/{host}.log").read_text()
    assert "of this node after it was chosen: Ray is started again" in node_log
    assert node_log.count("ray start --block") == 2
