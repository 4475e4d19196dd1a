"""SIGKILL to the processes that start a container, and to processes in the container."""

from __future__ import annotations

import time

import pytest

from slurmray.spec.container import DEFAULT_IMAGE
from tests.cluster.jobs import wait_until

from .case import CLIENTS, CONTAINER_PROCESS, CONTROLLER, GUARD, NODE_AGENT, RAY_START, Fault

full = pytest.mark.full
STEP = r"^slurmstepd: \[[0-9]+\.0\]"


@pytest.mark.fault(
    "a process outside of the container is killed", "docker", "podman", "none", "apptainer", "pyxis"
)
@pytest.mark.parametrize(
    ("host", "process"),
    [
        ("node2", ""),
        pytest.param("node1", "", marks=full),
        pytest.param("node2", NODE_AGENT, marks=full),
        pytest.param("node1", NODE_AGENT, marks=full),
        pytest.param("node1", "^srun ", marks=full),
        pytest.param("node2", STEP, marks=full),
    ],
    ids=[
        "client of a worker",
        "client of the head",
        "agent of a worker",
        "agent of the head",
        "srun",
        "slurmstepd of a worker",
    ],
)
def test_killed(fault: Fault, host: str, process: str) -> None:
    fault.start_trainer()
    fault.kill(host, *(["-f", process] if process else CLIENTS[fault.runtime]))
    job = fault.wait_end("] failed (", within=20, dead=True)
    assert job.state == "FAILED", job.log
    assert job.last_line.startswith("failed ("), job.log
    fault.run_next_job()


@pytest.mark.fault("a process outside of the container is killed")
@full
@pytest.mark.parametrize("process", ["", NODE_AGENT], ids=["clients", "agent"])
def test_killed_with_services(fault: Fault, process: str) -> None:
    places: dict[str, dict[str, object]] = {"image": {"image": DEFAULT_IMAGE}, "host": {"host": True}}
    services = [{"name": name, "run": "sleep 1000", **place} for name, place in places.items()]
    fault.start_trainer(services=services)
    fault.kill("node2", *(["-f", process] if process else CLIENTS[fault.runtime]))
    job = fault.wait_end("] failed (", within=20, dead=True)
    assert job.state == "FAILED", job.log
    fault.run_next_job()


def check_node_lost(fault: Fault, node: str) -> None:
    job = fault.wait_end(f"{node}: ", within=10)
    assert (job.state, job.code) == ("FAILED", "71:0"), job.log
    assert job.last_line.startswith(f"failed (71 node lost): {node}: "), job.log
    assert f"last lines of {job.run}/logs/{node}.log:" in job.log, job.log


@pytest.mark.fault("a worker's Ray or container dies", "podman", "docker", "none", "apptainer", "pyxis")
@full
def test_raylet_of_a_worker(fault: Fault) -> None:
    fault.start_trainer()
    fault.kill("node2", "-x", "raylet")
    check_node_lost(fault, "node2")


@pytest.mark.fault("a worker's Ray or container dies", "podman", "docker", "none", "apptainer", "pyxis")
@pytest.mark.full
def test_container_of_a_worker(fault: Fault) -> None:
    fault.start_trainer()
    fault.kill_container("node2")
    check_node_lost(fault, "node2")


# A trainer that notices the other node's end by a closed socket, like NCCL, before `ray start` does.
CONNECTED = """
import os, ray, socket, sys, time
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy as On

@ray.remote(num_cpus=0)
def talk(address):
    with socket.create_connection(address):
        time.sleep(1000)

ray.init()
node = next(node["NodeID"] for node in ray.nodes() if node["NodeManagerHostname"] == "node2")
with socket.create_server(("", 0)) as server:
    address = os.environ["MASTER_ADDR"], server.getsockname()[1]
    task = talk.options(scheduling_strategy=On(node, soft=False)).remote(address)
    peer, _ = server.accept()
print("started", flush=True)
peer.recv(1)
sys.exit("lost a peer")
"""


@pytest.mark.fault("a worker's Ray or container dies", "docker", "podman", "none", "apptainer", "pyxis")
@pytest.mark.full
def test_the_trainer_dies_of_it(fault: Fault) -> None:
    fault.start_trainer(["python3", "-c", CONNECTED])
    slow = ["-f", RAY_START]
    assert fault.cluster.run(["pkill", "-STOP", *slow], host="node2").returncode == 0
    fault.kill("node2", "-f", "^ray::talk|/raylet/raylet ")
    trainer = ["pgrep", "-f", "^python3 -c .*lost a peer"]
    wait_until(lambda: fault.cluster.run(trainer, host="node1").returncode == 1, fault.log)
    fault.start_clock()
    assert fault.cluster.run(["pkill", "-CONT", *slow], host="node2").returncode == 0
    check_node_lost(fault, "node2")
    assert "; the trainer exited with 1" in fault.log()


@pytest.mark.fault("a worker's Ray or container dies", "podman", "docker")
@full
def test_the_container_of_a_worker_gets_sigterm(fault: Fault) -> None:
    fault.start_trainer()
    fault.inject([fault.runtime, "kill", "--signal=TERM", f"slurmray-{fault.job}-0-node2"], "node2", "alice")
    job = fault.wait_end("node2: container exited unexpectedly (not stopped by Slurm)", within=20)
    assert job.last_line.startswith("failed (71 node lost): node2: "), job.log


@pytest.mark.fault("a worker's Ray or container dies", "podman", "docker", "none", "apptainer", "pyxis")
def test_the_job_continues(fault: Fault) -> None:
    run = "echo started; until [[ -e go ]]; do sleep 0.1; done; echo trained"
    fault.start_trainer(["bash", "-c", run], on_node_loss="continue")
    fault.kill_container("node2")
    fault.wait_for_log("] node loss: node2: ")
    (fault.jobs.folder / "go").touch()
    job = fault.wait_end()
    assert (job.state, job.code) == ("COMPLETED", "0:0"), job.log
    assert job.log.count("] node loss: ") == 1


@pytest.mark.fault("the head's Ray or container dies", "podman", "docker", "none", "apptainer", "pyxis")
@pytest.mark.parametrize("process", ["gcs_server", "raylet"])
@pytest.mark.full
def test_ray_of_the_head(fault: Fault, process: str) -> None:
    fault.start_trainer()
    fault.kill("node1", "-x", process)
    check_node_lost(fault, "node1")


@pytest.mark.fault("the head's Ray or container dies", "none", "podman")
@full
@pytest.mark.parametrize("command", ["ray stop --force", "pkill raylet"])
def test_the_trainer_ends_ray(fault: Fault, command: str) -> None:
    fault.start_trainer(["bash", "-c", f"echo started; {command}; sleep 600"])
    job = fault.wait_end("node1: ", within=30)
    assert (job.state, job.code) == ("FAILED", "71:0"), job.log
    # Each of these may be the first whose end is noticed.
    ends = ["raylet exited", "gcs_server exited", "ray start exited with 1"]
    hint = "while the trainer ran. Does it run ray stop or pkill?"
    assert any(f" node1: {end} {hint}" in job.last_line for end in ends), job.log


@pytest.mark.fault("the head's Ray or container dies", "docker", "podman", "none", "apptainer", "pyxis")
def test_container_of_the_head(fault: Fault) -> None:
    fault.start_trainer()
    fault.kill_container("node1")
    check_node_lost(fault, "node1")


@pytest.mark.fault("a container process is stopped", "podman", "none")
@pytest.mark.parametrize("host", ["node2", "node1"])
@full
def test_stopped_container_process(fault: Fault, host: str) -> None:
    """By SIGSTOP, e.g. of a debugger; a suspended job is another case: all of it stops."""
    fault.start_trainer()
    process = ["--newest", "-f", GUARD] if fault.runtime == "none" else ["-f", CONTAINER_PROCESS]
    fault.inject(["pkill", "-STOP", *process], host)
    job = fault.wait_end(f"{host}: the container process does not answer for ", within=45)
    assert (job.state, job.code) == ("FAILED", "71:0"), job.log
    assert job.last_line.startswith(f"failed (71 node lost): {host}: "), job.log


@pytest.mark.fault("a container process is stopped", "podman", "none")
@full
def test_processes_that_are_stopped_for_a_while(fault: Fault) -> None:
    """For 2 s less than the shortest heartbeat_timeout, each on its own and then all at the same time."""
    run = "echo started; until [[ -e go ]]; do sleep 0.1; done"
    fault.start_trainer(["bash", "-c", run], heartbeat_timeout=10)
    container = ["--newest", "-f", GUARD] if fault.runtime == "none" else ["-f", CONTAINER_PROCESS]
    processes = [("node1", ["-f", CONTROLLER]), ("node2", ["-f", NODE_AGENT]), ("node2", container)]
    for stopped in [*([process] for process in processes), processes]:
        for host, process in stopped:
            fault.inject(["pkill", "-STOP", *process], host)
        time.sleep(8)
        for host, process in stopped:
            fault.inject(["pkill", "-CONT", *process], host)
        time.sleep(5)
    (fault.jobs.folder / "go").touch()
    job = fault.wait_end()
    assert (job.state, job.code) == ("COMPLETED", "0:0"), job.log
