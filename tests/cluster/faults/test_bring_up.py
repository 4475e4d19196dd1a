"""Processes of Ray that are slow, or end, before the cluster is whole."""

from __future__ import annotations

import pytest

from tests.cluster import bare

from .case import Fault

ROW = "Ray starts slowly, or not at all"
SLOW = 40  # seconds: longer than Ray waits for a raylet, and a raylet for its agents

# A Python that takes long to import what the agents of a raylet need, as on a busy network file system.
LATE = f"""
import sys, time
if any(word.endswith(("/dashboard/agent.py", "/runtime_env/agent/main.py")) for word in sys.orig_argv):
    time.sleep({SLOW})
"""


def stop_raylet(fault: Fault, host: str) -> None:
    """The raylet of a host stands still before it has joined."""
    stop = "until pkill -STOP -f '/raylet [-]-raylet_socket_name'; do sleep 0.01; done"
    assert fault.lab.run(["timeout", "60", "bash", "-c", stop], host=host).returncode == 0
    fault.until(f"waiting for {host}")


@pytest.mark.fault(ROW, "podman", "docker", "none", "apptainer")
def test_late_agents(fault: Fault) -> None:
    (fault.jobs.folder / "sitecustomize.py").write_text(LATE)
    path = [str(fault.jobs.folder), *([str(bare.packages())] if fault.runtime == "none" else [])]
    fault.submit(["echo", "trained"], env={"PYTHONPATH": ":".join(path)})
    job = fault.end("\ntrained\n")
    assert (job.state, job.code) == ("COMPLETED", "0:0"), job.log


@pytest.mark.fault(ROW, "podman", "docker", "none", "apptainer")
@pytest.mark.parametrize("host", ["node1", "node2"])
@pytest.mark.full
def test_a_late_raylet(fault: Fault, host: str) -> None:
    fault.submit(["echo", "trained"])
    stop_raylet(fault, host)
    assert fault.lab.run(["bash", "-c", f"sleep {SLOW}; pkill -CONT -x raylet"], host=host).returncode == 0
    fault.mark()
    job = fault.end("\ntrained\n")
    assert (job.state, job.code) == ("COMPLETED", "0:0"), job.log


@pytest.mark.fault(ROW, "podman", "docker", "none", "apptainer")
@pytest.mark.parametrize("host", ["node1", pytest.param("node2", marks=pytest.mark.full)])
def test_a_raylet_that_ends(fault: Fault, host: str) -> None:
    fault.submit(["echo", "trained"])
    stop_raylet(fault, host)
    fault.kill(host, "-x", "raylet")
    job = fault.end(f"{host}: raylet ended while Ray was starting", within=10)
    assert (job.state, job.code) == ("FAILED", "67:0"), job.log
    assert f"last lines of {job.run}/logs/{host}.log:" in job.log, job.log
    assert "trained" not in job.log
