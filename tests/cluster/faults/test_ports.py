"""Another process takes a port after it was chosen for Ray and before Ray opens it."""

from __future__ import annotations

import subprocess
import sys

import pytest

from slurmray.rehearsal.cluster.slurm_cluster import SlurmCluster
from tests.cluster.jobs import HANG

from .case import Fault

# Reads one of Ray's ports in the node's log, and opens it before Ray does.
PORT_TAKER = """
import glob, re, socket, sys, time
found, deadline = None, time.monotonic() + 120  # bounds a hang
while not found:
    assert time.monotonic() < deadline, "the log has no port of Ray"
    time.sleep(0.01)
    found = re.search(sys.argv[2] + "=([0-9]+)", "".join(open(log).read() for log in glob.glob(sys.argv[1])))
taker = socket.create_server(("0.0.0.0", int(found[1])))
print("taken", flush=True)
time.sleep(600)
"""


@pytest.mark.fault("a port is taken")
@pytest.mark.parametrize("host", ["node1", pytest.param("node2", marks=pytest.mark.full)])
def test_another_is_used(fault: Fault, cluster: SlurmCluster, host: str) -> None:
    logs = f"{fault.jobs.folder}/slurmray-runs/*/logs/{host}.log"
    # This machine's Python, in the host's network namespace.
    enter = ["nsenter", "-t", str(cluster.pids[host]), "-n", "setpriv", "--pdeathsig", "KILL"]
    argv = [*enter, sys.executable, "-c", PORT_TAKER, logs, "--node-manager-port"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as taker:
        try:
            # A prepare step that runs meanwhile must not be affected.
            fault.submit(["true"], prepare=[{"name": "long", "run": "sleep 5", "where": "all"}])
            assert taker.stdout
            assert taker.stdout.readline() == "taken\n"
            state, code = cluster.wait(fault.job, HANG)
        finally:
            taker.kill()
    job = fault.wait_end()
    assert (state, code) == ("COMPLETED", "0:0"), job.log
    node_log = (job.run / f"logs/{host}.log").read_text()
    assert "of this node after it was chosen: Ray is started again" in node_log
    assert node_log.count("ray start --block") == 2
