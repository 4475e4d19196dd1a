"""Processes of Ray that are slow, or exit, before the cluster is ready."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from tests.cluster import bare

from .case import TRAINER, Fault

ROW = "Ray starts slowly, or not at all"
SLOW = 40  # seconds: longer than Ray waits for a raylet, and a raylet for its agents

# An import of these programs of Ray takes long, as on a busy network file system, or fails.
IMPORTS = """
import sys, time
if any(word.endswith({programs!r}) for word in sys.orig_argv):
    {what}
"""
AGENTS = ("/dashboard/agent.py", "/runtime_env/agent/main.py")
DASHBOARD = ("/dashboard/dashboard.py",)
PORT = 8465


def submit(fault: Fault, programs: tuple[str, ...], what: str, run: Sequence[str], **ray: Any) -> None:
    """Submit a job in which these programs of Ray run `what` first."""
    (fault.jobs.folder / "sitecustomize.py").write_text(IMPORTS.format(programs=programs, what=what))
    path = [str(fault.jobs.folder), *([str(bare.packages())] if fault.runtime == "none" else [])]
    fault.submit(run, env={"PYTHONPATH": ":".join(path)}, ray=ray)


def stop_raylet(fault: Fault, host: str) -> None:
    """Stop the raylet of a host (SIGSTOP) before it has joined."""
    stop = "until pkill -STOP -f '/raylet [-]-raylet_socket_name'; do sleep 0.01; done"
    assert fault.lab.run(["timeout", "60", "bash", "-c", stop], host=host).returncode == 0
    fault.until(f"waiting for {host}")


@pytest.mark.fault(ROW, "podman", "docker", "none", "apptainer")
def test_late_agents(fault: Fault) -> None:
    submit(fault, AGENTS, f"time.sleep({SLOW})", ["echo", "trained"])
    job = fault.end("\ntrained\n")
    assert (job.state, job.code) == ("COMPLETED", "0:0"), job.log


@pytest.mark.fault(ROW, "podman", "docker", "none", "apptainer")
def test_a_late_dashboard(fault: Fault) -> None:
    submit(fault, DASHBOARD, "time.sleep(20)", ["ray", "job", "submit", "--", "echo", "trained"])
    job = fault.end("\ntrained\n")
    assert (job.state, job.code) == ("COMPLETED", "0:0"), job.log


@pytest.mark.fault(ROW, "podman", "docker", "none", "apptainer")
@pytest.mark.full
def test_a_late_dashboard_whose_port_is_fixed(fault: Fault) -> None:
    trainer = ["bash", "-c", f"exec 3<>/dev/tcp/127.0.0.1/{PORT} && echo trained"]
    submit(fault, DASHBOARD, "time.sleep(10)", trainer, dashboard_port=PORT)
    job = fault.end("\ntrained\n")
    assert (job.state, job.code) == ("COMPLETED", "0:0"), job.log
    assert "ray: waiting for its dashboard, as ray.dashboard_port is set" in job.log


@pytest.mark.fault(ROW, "podman", "docker", "none", "apptainer")
@pytest.mark.parametrize("port", ["auto", PORT])
@pytest.mark.full
def test_a_dashboard_that_fails(fault: Fault, port: int | str) -> None:
    submit(fault, DASHBOARD, "sys.exit('no such module')", ["echo", "trained"], dashboard_port=port)
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
    job = fault.end(f"{host}: raylet exited while Ray was starting", within=10)
    assert (job.state, job.code) == ("FAILED", "67:0"), job.log
    assert f"last lines of {job.run}/logs/{host}.log:" in job.log, job.log
    assert "trained" not in job.log


@pytest.mark.fault(ROW, "podman", "docker", "none", "apptainer")
@pytest.mark.full
def test_a_gcs_that_ends(fault: Fault) -> None:
    fault.submit(["echo", "trained"])
    stop_raylet(fault, "node1")
    fault.kill("node1", "-x", "gcs_server")
    job = fault.end("node1: gcs_server exited while Ray was starting", within=10)
    assert (job.state, job.code) == ("FAILED", "67:0"), job.log
    assert "trained" not in job.log


@pytest.mark.fault(ROW, "podman", "docker", "none", "apptainer")
@pytest.mark.parametrize("process", ["gcs_server", "raylet"])
@pytest.mark.full
def test_an_end_beside_a_late_dashboard(fault: Fault, process: str) -> None:
    submit(fault, DASHBOARD, "time.sleep(40)", TRAINER)
    fault.until("\nstarted\n")
    fault.kill("node1", "-x", process)
    job = fault.end("node1: ", within=10)
    assert (job.state, job.code) == ("FAILED", "71:0"), job.log
    assert job.last_line == (
        f"failed (71 node lost): node1: {process} exited while Ray was starting."
        " The node's log has its last lines"
    )
