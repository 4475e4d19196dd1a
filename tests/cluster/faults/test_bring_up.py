"""Processes of Ray that are slow, or exit, before the cluster is ready."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from tests.cluster import bare

from .case import TRAINER, Fault

ROW = "Ray starts slowly, or not at all"  # where no process exits, runtimes do not differ
SLOW = 40  # seconds; longer than Ray waits for a raylet, and a raylet for its agents

# Makes imports of these programs of Ray slow, as on a busy network filesystem, or makes them fail.
IMPORTS = """
import os, sys, time
if any(argument.endswith({programs!r}) for argument in sys.orig_argv):
    {statement}
"""
# Makes Ray run another program in place of the raylet of one node.
RAYLET = """
import subprocess
init = subprocess.Popen.__init__
def replaced(self, argv, *args, **kwargs):
    is_raylet = "--raylet_socket_name" in str(argv) and "--node-name={host}" in str(argv)
    init(self, [{program!r}, *argv] if is_raylet else argv, *args, **kwargs)
subprocess.Popen.__init__ = replaced
"""
# Its name is raylet from the start, and it stops before it can join.
STOPPED = """#!/bin/sh
kill -STOP $$
exec "$@"
"""
AGENTS = ("/dashboard/agent.py", "/runtime_env/agent/main.py")
DASHBOARD = ("/dashboard/dashboard.py",)
PORT = 8465


def submit(fault: Fault, programs: tuple[str, ...], statement: str, run: Sequence[str], **ray: Any) -> None:
    """Submit a job in which these programs of Ray run `statement` first."""
    submit_with(fault, IMPORTS.format(programs=programs, statement=statement), run, **ray)


def submit_with(fault: Fault, customization: str, run: Sequence[str], **ray: Any) -> None:
    """Submit a job with a sitecustomize.py for Ray's programs."""
    (fault.jobs.folder / "sitecustomize.py").write_text(customization)
    path = [str(fault.jobs.folder), *([str(bare.packages())] if fault.runtime == "none" else [])]
    fault.submit(run, env={"PYTHONPATH": ":".join(path)}, ray=ray)


def submit_with_stopped_raylet(fault: Fault, host: str) -> None:
    """Submit a job, and wait until the raylet of a host has started and stopped itself (SIGSTOP)."""
    program = fault.jobs.folder / "raylet"
    program.write_text(STOPPED)
    program.chmod(0o755)
    submit_with(fault, RAYLET.format(host=host, program=str(program)), ["echo", "trained"])
    wait = "until pgrep --runstates T -x raylet; do sleep 0.1; done"
    assert fault.cluster.run(["timeout", "60", "bash", "-c", wait], host=host).returncode == 0, fault.log()
    fault.wait_for_log(f"waiting for {host}")


@pytest.mark.fault(ROW, "podman", "none")
@pytest.mark.full
def test_late_agents(fault: Fault) -> None:
    submit(fault, AGENTS, f"time.sleep({SLOW})", ["echo", "trained"])
    job = fault.wait_end("\ntrained\n")
    assert (job.state, job.code) == ("COMPLETED", "0:0"), job.log


@pytest.mark.fault(ROW, "podman", "none")
@pytest.mark.full
def test_a_late_dashboard(fault: Fault) -> None:
    started = fault.jobs.folder / "started"
    wait = f"while not os.path.exists({str(started)!r}): time.sleep(0.1)"
    trainer = ["bash", "-c", "touch started; exec ray job submit -- echo trained"]
    submit(fault, DASHBOARD, wait, trainer)
    job = fault.wait_end("\ntrained\n")
    assert (job.state, job.code) == ("COMPLETED", "0:0"), job.log


@pytest.mark.fault(ROW, "podman", "none")
@pytest.mark.full
def test_a_late_dashboard_whose_port_is_fixed(fault: Fault) -> None:
    trainer = ["bash", "-c", f"exec 3<>/dev/tcp/127.0.0.1/{PORT} && echo trained"]
    submit(fault, DASHBOARD, "time.sleep(10)", trainer, dashboard_port=PORT)
    job = fault.wait_end("\ntrained\n")
    assert (job.state, job.code) == ("COMPLETED", "0:0"), job.log
    assert "ray: waiting for the dashboard, because ray.dashboard_port is set" in job.log


@pytest.mark.fault(ROW, "podman", "none")
@pytest.mark.parametrize("port", ["auto", PORT])
@pytest.mark.full
def test_a_dashboard_that_fails(fault: Fault, port: int | str) -> None:
    submit(fault, DASHBOARD, "sys.exit('no such module')", ["echo", "trained"], dashboard_port=port)
    job = fault.wait_end("\ntrained\n")
    assert (job.state, job.code) == ("COMPLETED", "0:0"), job.log


@pytest.mark.fault(ROW, "podman", "none")
@pytest.mark.parametrize("host", ["node1", "node2"])
@pytest.mark.full
def test_a_late_raylet(fault: Fault, host: str) -> None:
    submit_with_stopped_raylet(fault, host)
    assert (
        fault.cluster.run(["bash", "-c", f"sleep {SLOW}; pkill -CONT -x raylet"], host=host).returncode == 0
    )
    fault.start_clock()
    job = fault.wait_end("\ntrained\n")
    assert (job.state, job.code) == ("COMPLETED", "0:0"), job.log


@pytest.mark.fault(ROW, "podman", "none")
@pytest.mark.full
def test_a_gcs_that_stalls(fault: Fault) -> None:
    """For longer than the 5 s that Ray itself gives a new node to connect."""
    submit_with_stopped_raylet(fault, "node2")
    # First, or the raylet might join in between.
    assert fault.cluster.run(["pkill", "-STOP", "-x", "gcs_server"], host="node1").returncode == 0
    assert fault.cluster.run(["pkill", "-CONT", "-x", "raylet"], host="node2").returncode == 0
    resume = ["bash", "-c", "sleep 20; pkill -CONT -x gcs_server"]
    assert fault.cluster.run(resume, host="node1").returncode == 0, fault.log()
    fault.start_clock()
    job = fault.wait_end("\ntrained\n")
    assert (job.state, job.code) == ("COMPLETED", "0:0"), job.log


@pytest.mark.fault(ROW, "podman", "docker", "none", "apptainer", "pyxis")
@pytest.mark.parametrize("host", ["node1", pytest.param("node2", marks=pytest.mark.full)])
def test_a_raylet_that_ends(fault: Fault, host: str) -> None:
    submit_with_stopped_raylet(fault, host)
    fault.kill(host, "-x", "raylet")
    job = fault.wait_end(f"{host}: raylet exited while Ray was starting", within=10)
    assert (job.state, job.code) == ("FAILED", "67:0"), job.log
    assert f"last lines of {job.run}/logs/{host}.log:" in job.log, job.log
    assert "trained" not in job.log


@pytest.mark.fault(ROW, "podman", "docker", "none", "apptainer", "pyxis")
@pytest.mark.full
def test_a_gcs_that_ends(fault: Fault) -> None:
    submit_with_stopped_raylet(fault, "node1")
    fault.kill("node1", "-x", "gcs_server")
    job = fault.wait_end("node1: gcs_server exited while Ray was starting", within=10)
    assert (job.state, job.code) == ("FAILED", "67:0"), job.log
    assert "trained" not in job.log


@pytest.mark.fault(ROW, "podman", "docker", "none", "apptainer", "pyxis")
@pytest.mark.parametrize("process", ["gcs_server", "raylet"])
@pytest.mark.full
def test_an_end_beside_a_late_dashboard(fault: Fault, process: str) -> None:
    submit(fault, DASHBOARD, "time.sleep(40)", TRAINER)
    fault.wait_for_log("\nstarted\n")
    fault.kill("node1", "-x", process)
    job = fault.wait_end("node1: ", within=10)
    assert (job.state, job.code) == ("FAILED", "71:0"), job.log
    text = " while the trainer ran. Does it run ray stop or pkill? Remove that: Ray runs already."
    text += " The node's log has its last lines"
    # `ray start` may be the first whose end is noticed.
    ends = [f"{process} exited", "ray start exited with 1"]
    assert job.last_line in [f"failed (71 node lost): node1: {end}{text}" for end in ends], job.log
