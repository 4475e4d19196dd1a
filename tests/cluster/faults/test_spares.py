"""A spare node takes the place of a node that fails, in the same allocation."""

from __future__ import annotations

import json
import re
import shutil
import threading
import time
from collections.abc import Sequence
from typing import Any

import pytest

from slurmray.rehearsal.cluster.slurm_cluster import SlurmCluster
from slurmray.rehearsal.cluster.slurm_conf import ClusterConfig, Gres
from slurmray.slurm.starts import list_starts
from slurmray.slurm.states import parse_events
from tests import nvidia_smi
from tests.cluster.jobs import HANG, Job, wait_until

from .case import KILL_WAIT, NODE_AGENT, Fault
from .recorder import ROOT
from .test_host_loss import boot_again

ROW = "a spare node"
HOSTS = ("node1", "node2", "node3")  # the head node, a worker and the spare node
POWER, AGENT, CONTAINER = WAYS = ("power", "agent", "container")
# Moments at which a job waits for a file, on all nodes that come to it.
SETUP, IN_CONTAINER, PREPARE, SERVICE, TRAINING = MOMENTS = (
    "setup",
    "container",
    "prepare",
    "service",
    "training",
)
WAIT = "touch {0}; until [[ -e go-{0} ]]; do sleep 0.1; done; "
# Waits in its first start, then names the nodes that Ray has.
_FIRST = "((SLURMRAY_RESTART)) || { echo started; exec sleep infinity; }; echo restart $SLURMRAY_RESTART"
_NODES = "import ray; ray.init(); print('in Ray:', *sorted(row['NodeName'] for row in ray.nodes()))"
SPARE: dict[str, Any] = {"spares": 1, "on_node_loss": "restart"}
TRAINER = ["bash", "-c", f'{_FIRST} on $NNODES; exec python3 -c "{_NODES}"']

# On the last node.
PLACES = {"name": "places", "run": "echo $NNODES nodes; exec sleep infinity", "where": 1, "shared": True}


# Waits for the replacement in the running Ray, and runs a task on it.
WAITS = """
import glob, os, time, ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy as On
ray.init()
print("started", flush=True)
find = lambda: {row["NodeName"]: row["NodeID"] for row in ray.nodes() if row["Alive"]}
while sorted(find()) != ["node1", "node3"]:
    time.sleep(0.2)
print("before it:", *sorted(glob.glob("*-node3")))
task = ray.remote(lambda: __import__("socket").gethostname())
print("task on", ray.get(task.options(scheduling_strategy=On(find()["node3"], soft=False)).remote()))
while not os.path.exists("judge-node3"):
    time.sleep(0.2)
"""


# Once /run/lost is there, fails as where a GPU has fallen off the bus
# (github.com/NVIDIA/open-gpu-kernel-modules/issues/387).
NVIDIA_SMI = f"""#!/bin/bash
if [[ -e /run/lost ]]; then
	echo "Unable to determine the device handle for GPU0000:17:00.0: Unknown Error"
	exit 15
fi
{nvidia_smi.script(nvidia_smi.gpu("GPU-$SLURMD_NODENAME"))}
"""


@pytest.fixture
def cluster_config() -> ClusterConfig:
    """Three small hosts."""
    # A job may start again after 15 seconds.
    options = {"KillWait": str(KILL_WAIT), "AuthInfo": "cred_expire=15"}
    nodes = ("node1", "node2", "node3")
    return ClusterConfig(nodes=nodes, cpus=2, gres=(Gres("gpu", "", 8),), options=options)


def restarts(job: Job) -> list[dict[str, object]]:
    lines = (job.run / "events.jsonl").read_text().splitlines()
    return [event for event in map(json.loads, lines) if event["event"] == "restart"]


def check_restarted(job: Job, nodes: Sequence[str] = ("node1", "node3")) -> None:
    """Check that the trainer ran again on these nodes, once."""
    assert job.last_line == "done: trainer exited with 0", job.log
    assert f"\nrestart 1 on {len(nodes)}\n" in job.log, job.log
    assert "\nin Ray: " + " ".join(nodes) in job.log, job.log
    (restart,) = restarts(job)
    assert (restart["restart"], restart["nodes"], restart["spares"]) == (1, [*nodes], [])
    first, second = list_starts(parse_events((job.run / "events.jsonl").read_text()), time.time())
    assert {first.failed, *nodes} == {"node1", "node2", "node3"}
    assert min(first.trained, second.idle, second.trained) > 0
    assert second.failed == ""


@pytest.mark.fault(ROW, "podman", "docker", "none", "apptainer", "pyxis")
def test_a_raylet_dies(fault: Fault) -> None:
    fault.start_trainer(TRAINER, **SPARE)
    fault.kill("node2", "--full", "raylet/raylet")
    fault.wait_for_log("restart 1 of 3: node2: ray start exited with")
    check_restarted(fault.wait_end())


@pytest.mark.fault(ROW, "podman", "docker", "none", "apptainer", "pyxis")
@pytest.mark.full
def test_the_container_of_the_head_dies(fault: Fault) -> None:
    fault.start_trainer(TRAINER, **SPARE)
    fault.kill_container("node1")
    check_restarted(fault.wait_end("restart 1 of 3: node1: "), ["node2", "node3"])


@pytest.mark.fault(ROW, "podman", "docker", "none", "apptainer")
@pytest.mark.full
@pytest.mark.parametrize(
    ("timeout", "text"),
    [
        (25, "no heartbeat for 25 s"),
        (10, "no heartbeat for 10 s"),
        (300, "Slurm has marked it down"),
    ],
    ids=["default", "shortest", "marked down"],
)
def test_a_host_loses_power(fault: Fault, cluster: SlurmCluster, timeout: int, text: str) -> None:
    fault.start_trainer(TRAINER, **SPARE, heartbeat_timeout=timeout)
    fault.start_clock()
    cluster.power_off("node2")
    if timeout == 300:  # as slurmctld does after SlurmdTimeout
        cluster.run(["scontrol", "update", "NodeName=node2", "State=DOWN", "Reason=lost"])
    job = fault.wait_end(f"restart 1 of 3: node2: {text}", 45, dead=True, lost=True)
    check_restarted(job)
    assert "; node3 takes the place of node2\n" in job.log
    boot_again(cluster, "node2")
    assert cluster.wait(job.id, HANG) == ("COMPLETED", "0:0")
    fault.run_next_job()


@pytest.mark.fault(ROW, "podman", "none")
@pytest.mark.full
def test_a_host_that_boots_again_at_once(fault: Fault, cluster: SlurmCluster) -> None:
    fault.start_trainer(TRAINER, **SPARE)
    fault.start_clock()
    cluster.power_off("node2")
    cluster.power_on("node2")
    job = fault.wait_end("restart 1 of 3: node2: its host closed the connection to srun", 45, dead=True)
    check_restarted(job)
    assert "Timed out waiting for job step to complete" not in job.log, "srun waits as long as KillWait"
    fault.run_next_job()


@pytest.mark.fault(ROW, "podman", "none")
@pytest.mark.full
@pytest.mark.parametrize("heals", [False, True])
def test_a_network_cut(fault: Fault, cluster: SlurmCluster, heals: bool) -> None:
    """For good, or for 40 s: the node cleans up by itself, and takes no part again."""
    last = f'sleep {25 if heals else 0}; exec python3 -c "{_NODES}"'
    fault.start_trainer(["bash", "-c", f"{_FIRST} on $NNODES; {last}"], **SPARE)
    fault.start_clock()
    cluster.disconnect("node2")
    if heals:
        heal = threading.Timer(40, cluster.reconnect, ["node2"])
        heal.start()
    job = fault.wait_end("restart 1 of 3: node2: no heartbeat for 25 s", 45, lost=not heals)
    check_restarted(job)
    if not heals:
        cluster.reconnect("node2")
    assert cluster.wait(job.id, HANG) == ("COMPLETED", "0:0")
    fault.run_next_job()


@pytest.mark.fault(ROW, "podman", "none")
@pytest.mark.full
def test_the_host_of_the_batch_script_is_lost(fault: Fault, cluster: SlurmCluster) -> None:
    """No spare node can take its place."""
    fault.start_trainer(**SPARE)
    fault.start_clock()
    cluster.power_off("node1")
    job = fault.wait_end("no heartbeat from the head node node1", 45, dead=True, lost=True)
    boot_again(cluster, "node1")
    assert cluster.wait(job.id, HANG)[0] == "CANCELLED"
    fault.run_next_job(nodes=3)


@pytest.mark.fault(ROW, "podman", "none")
@pytest.mark.full
def test_too_few_spare_nodes(fault: Fault, cluster: SlurmCluster) -> None:
    fault.start_trainer(on_node_loss="restart")
    fault.start_clock()
    cluster.power_off("node2")
    job = fault.wait_end("; too few spare nodes are left", 45, dead=True, lost=True)
    assert job.last_line.startswith("failed (71 node lost): node2: "), job.log
    boot_again(cluster, "node2")
    fault.run_next_job()


@pytest.mark.fault(ROW, "podman", "none")
def test_a_node_that_fails_its_checks(fault: Fault, cluster: SlurmCluster) -> None:
    for host in ("node1", "node3"):
        assert cluster.run(["touch", "/run/only-here"], host=host).returncode == 0
    fault.submit(["bash", "-c", "echo $NNODES nodes"], spares=1, checks={"paths": ["/run/only-here"]})
    job = fault.wait_end()
    assert job.last_line == "done: trainer exited with 0", job.log
    assert "start again: node2: " in job.log, job.log
    (restart,) = restarts(job)
    assert (restart["restart"], restart["nodes"]) == (0, ["node1", "node3"])


@pytest.mark.fault(ROW, "podman", "none")
@pytest.mark.full
def test_a_raylet_dies_and_no_spare_node_is_left(fault: Fault) -> None:
    """The trainer ends within its grace period, and starts again on the same nodes."""
    saves = ["trap 'echo saved; exit 1' TERM; echo started; sleep infinity & wait"]
    first = f"((SLURMRAY_RESTART)) || {{ {saves[0]}; }}; echo restart $SLURMRAY_RESTART on $NNODES"
    fault.start_trainer(["bash", "-c", first], on_node_loss="restart")
    fault.kill("node2", "--full", "raylet/raylet")
    job = fault.wait_end("restart 1 of 3: node2: ray start exited with")
    assert job.last_line == "done: trainer exited with 0", job.log
    assert "\nsaved\n" in job.log, job.log
    (restart,) = restarts(job)
    assert (restart["restart"], restart["nodes"]) == (1, ["node1", "node2"])


@pytest.mark.fault(ROW, "podman", "none")
@pytest.mark.full
@pytest.mark.parametrize("way", [CONTAINER, AGENT])
def test_a_container_dies_and_no_spare_node_is_left(fault: Fault, way: str) -> None:
    """Also one that is there for some seconds more: the node agent that would remove it was killed."""
    fault.start_trainer(TRAINER, on_node_loss="restart")
    if way == AGENT:
        fault.kill("node2", "-f", NODE_AGENT)
    else:
        fault.kill_container("node2")
    job = fault.wait_end("restart 1 of 3: node2: ")
    assert job.last_line == "done: trainer exited with 0", job.log
    assert "\nin Ray: node1 node2" in job.log, job.log


@pytest.mark.fault(ROW, "none")
@pytest.mark.full
def test_a_gpu_is_lost(fault: Fault, cluster: SlurmCluster) -> None:
    """The trainer only fails. Without a GPU the driver's library cannot be tried: preflight: none."""
    program = fault.jobs.folder / "bin/nvidia-smi"
    program.parent.mkdir()
    program.write_text(NVIDIA_SMI)
    program.chmod(0o755)
    wait = "until [[ -e failed ]]; do sleep 0.1; done; exit 1"
    try:
        for host in HOSTS:
            assert cluster.run(["touch", "/dev/nvidiactl"], host=host).returncode == 0
        fault.start_trainer(
            [*TRAINER[:2], TRAINER[2].replace("exec sleep infinity", wait)],
            slurm={"gpus_per_node": 1},
            container={"accelerator": "nvidia"},
            preflight="none",
            setup=f"export PATH={program.parent}:$PATH SLURMRAY_ACCELERATOR=",
            **SPARE,
        )
        fault.inject(["touch", "/run/lost"], "node2")
        (fault.jobs.folder / "failed").touch()
        job = fault.wait_end("restart 1 of 3: node2: lost GPU-node2: nvidia-smi: Unable to determine the")
        check_restarted(job)
    finally:
        for host in HOSTS:
            cluster.run(["rm", "-f", "/dev/nvidiactl", "/run/lost"], host=host)


@pytest.mark.fault(ROW, "podman", "none")
@pytest.mark.full
def test_a_trainer_asks_for_a_restart(fault: Fault) -> None:
    fault.submit(["bash", "-c", "echo $SLURMRAY_RESTART; exit 85"], restart={"exit_codes": [85]})
    job = fault.wait_end("restart 1 of 3: the trainer exited with 85; on the same nodes")
    assert "not started again: the same has happened" in job.log
    assert job.last_line == "done: trainer exited with 85"


@pytest.mark.fault(ROW, "podman", "none")
@pytest.mark.full
def test_starts_are_counted_over_attempts(fault: Fault, cluster: SlurmCluster) -> None:
    codes = "case $SLURMRAY_ATTEMPT in 0) exit 85;; 1) exit 86;; esac"
    run = ["bash", "-c", f"echo start $SLURMRAY_ATTEMPT $SLURMRAY_RESTART; {codes}"]
    fault.submit(run, restart={"exit_codes": [85]}, requeue={"exit_code": 86})
    assert cluster.wait(fault.job, HANG) == ("COMPLETED", "0:0"), fault.log()
    job = fault.wait_end()
    starts = re.findall(r"^start (\d) (\d)$", job.log, re.MULTILINE)
    assert starts == [("0", "0"), ("1", "1"), ("2", "0")], job.log


@pytest.mark.fault(ROW, "podman", "docker", "none", "apptainer")
@pytest.mark.full
def test_a_spare_node_joins_the_running_ray(fault: Fault) -> None:
    reward = {"name": "reward", "run": "touch reward-$(</proc/sys/kernel/hostname); exec sleep infinity"}
    judge = {
        "name": "judge",
        "run": "ray status && touch judge-$(</proc/sys/kernel/hostname); exec sleep infinity",
    }
    fault.start_trainer(
        ["python3", "-c", WAITS],
        spares=1,
        on_node_loss="continue",
        prepare=[{"name": "data", "run": "touch data-$(</proc/sys/kernel/hostname)", "where": "all"}],
        services=[reward, {**judge, "where": "workers", "needs_ray": True}],
    )
    fault.kill("node2", "--full", "raylet/raylet")
    job = fault.wait_end("spare node node3 joins Ray in place of node2")
    assert job.last_line == "done: trainer exited with 0", job.log
    assert re.search(r"\nbefore it: data-node3 (judge-node3 )?reward-node3\n", job.log), job.log
    assert "\ntask on node3\n" in job.log, job.log


@pytest.mark.fault(ROW, "podman")
@pytest.mark.full
def test_the_example(fault: Fault) -> None:
    """It goes on at the step after its last checkpoint."""
    shutil.copytree(ROOT / "examples", fault.jobs.folder / "examples")
    spec = (ROOT / "examples/resume.yaml").read_text()
    assert '"100"' in spec
    fault.job = fault.jobs.submit(spec.replace('"100"', '"12"').replace("4G", "1G"))
    fault.wait_for_log("\nstep 2 on node1, node2: ")
    fault.kill("node2", "--full", "raylet/raylet")
    job = fault.wait_end("restart 1 of 3: node2: ")
    assert job.last_line == "done: trainer exited with 0", job.log
    first, second = (
        int(step) for step in re.findall(r"^start [01]: from step (\d+)$", job.log, re.MULTILINE)
    )
    assert first == 0 < second
    assert f"\nstep {second} on node1, node3: " in job.log
    assert f"\nstep {second} on node1, node2: " not in job.log
    assert "\nstep 11 on node1, node3: " in job.log


@pytest.mark.fault(ROW, "podman", "none")
@pytest.mark.full
@pytest.mark.parametrize("fails", ["raylet", "checks"])
def test_the_next_attempt_leaves_out_a_node(fault: Fault, cluster: SlurmCluster, fails: str) -> None:
    run = ["bash", "-c", "echo started; ((SLURMRAY_ATTEMPT)) || exec sleep infinity"]
    if fails == "raylet":
        fault.start_trainer(run, requeue={"max": 1})
        fault.kill("node2", "--full", "raylet/raylet")
    else:
        for host in ("node1", "node3"):
            assert cluster.run(["touch", "/run/only-here"], host=host).returncode == 0
        fault.submit(run, requeue={"max": 1}, checks={"paths": ["/run/only-here"]})
    fault.wait_for_log("the next attempt leaves out node2")
    assert cluster.wait(fault.job, HANG) == ("COMPLETED", "0:0"), fault.log()
    job = fault.wait_end()
    events = parse_events((job.run.with_name(f"{job.id}-1") / "events.jsonl").read_text())
    assert list_starts(events, time.time())[0].nodes == ["node1", "node3"]


@pytest.mark.fault(ROW, "podman", "none")
@pytest.mark.full
@pytest.mark.parametrize("way", ["scancel", "cancel-now", "time limit"])
@pytest.mark.parametrize("moment", ["stop", "start"])
def test_an_end_in_a_restart(fault: Fault, moment: str, way: str) -> None:
    """While the trainer has its grace period, or the next start is on its way."""
    waits = "[[ ! -e started ]] || { touch here; exec sleep infinity; }"
    trainer = "trap 'touch here' TERM; echo started; while :; do sleep 0.1; done"
    fault.start_trainer(
        ["bash", "-c", trainer if moment == "stop" else "echo started; exec sleep infinity"],
        spares=1,
        on_node_loss="restart",
        restart={"grace": 60},
        setup=waits if moment == "start" else "",
    )
    (fault.jobs.folder / "started").touch()
    fault.kill("node2", "--full", "raylet/raylet")
    wait_until((fault.jobs.folder / "here").exists, fault.log)
    if way == "time limit":
        fault.set_time_left(0)
    else:
        file = fault.jobs.folder / f"slurmray-runs/{fault.job}-0/cancel-now"
        now = f" && echo now >{file}" if way == "cancel-now" else ""
        fault.inject(["bash", "-c", f"scancel {fault.job}{now}"], user="alice")
    job = fault.wait_end("] stop: ", clean_within=100 if way == "time limit" else 40)
    assert job.state == ("TIMEOUT" if way == "time limit" else "CANCELLED"), job.log
    assert job.last_line.startswith("stopped by Slurm"), job.log


@pytest.mark.fault(ROW, "podman", "docker", "none", "apptainer")
@pytest.mark.full
def test_fewer_nodes_when_no_spare_node_is_left(fault: Fault, cluster: SlurmCluster) -> None:
    fewer: dict[str, Any] = {"on_node_loss": "restart", "restart": {"min_nodes": 1}}
    fault.start_trainer(TRAINER, slurm={"nodes": 3}, services=[PLACES], **fewer)
    fault.start_clock()
    cluster.power_off("node2")
    job = fault.wait_end("restart 1 of 3: node2: no heartbeat for 25 s", 45, dead=True, lost=True)
    assert "; on 2 of 3 nodes, without node2\n" in job.log, job.log
    check_restarted(job)
    assert (job.run / "logs/service-places@node3.log").read_text().endswith("\n2 nodes\n")
    boot_again(cluster, "node2")
    assert cluster.wait(job.id, HANG) == ("COMPLETED", "0:0")
    fault.run_next_job()


@pytest.mark.fault(ROW, "podman", "none")
@pytest.mark.full
@pytest.mark.parametrize("host", ["node2", "node3"])
def test_a_host_has_lost_power_before_slurm_noticed(fault: Fault, cluster: SlurmCluster, host: str) -> None:
    """A worker node, or the spare one: srun cannot start its task, and ends all others."""
    cluster.power_off(host)
    fault.submit(["bash", "-c", "echo on $NNODES"], spares=1)
    fault.start_clock()
    job = fault.wait_end(f"start again: {host}: Slurm could not start its task", dead=True, lost=True)
    assert job.last_line == "done: trainer exited with 0", job.log
    assert "\non 2\n" in job.log
    boot_again(cluster, host)
    fault.run_next_job()


def cases(moments: Sequence[str]) -> Sequence[object]:
    """Each host at each moment; each way at each moment where it is possible."""
    rows = []
    for number, moment in enumerate(moments):
        for shift, host in enumerate(HOSTS):
            way = WAYS[(number + shift) % 3]
            if way == POWER and host == HOSTS[0]:  # also the host of the batch script
                way = AGENT
            if way == CONTAINER and moment == SETUP:  # there is none yet
                way = AGENT
            rows.append(pytest.param(moment, host, way, id=f"{moment}-{host}-{way}"))
    return rows


@pytest.mark.fault(ROW, "podman")
@pytest.mark.full
@pytest.mark.parametrize(("moment", "host", "way"), cases(MOMENTS))
def test_each_moment(fault: Fault, cluster: SlurmCluster, moment: str, host: str, way: str) -> None:
    lose(fault, cluster, moment, host, way)


@pytest.mark.fault(ROW, "none")
@pytest.mark.full
@pytest.mark.parametrize(("moment", "host", "way"), cases((SETUP, PREPARE, SERVICE, TRAINING)))
def test_each_moment_without_containers(
    fault: Fault, cluster: SlurmCluster, moment: str, host: str, way: str
) -> None:
    lose(fault, cluster, moment, host, way)


def lose(fault: Fault, cluster: SlurmCluster, moment: str, host: str, way: str) -> None:
    """Lose a host at a moment of a job with a spare node, which ends well."""
    hooks = {name: WAIT.format(name) for name in MOMENTS}
    for name in MOMENTS:
        if name != moment:
            (fault.jobs.folder / f"go-{name}").touch()
    fault.submit(
        ["bash", "-c", hooks[TRAINING] + 'echo "restart $SLURMRAY_RESTART on $NNODES"'],
        spares=1,
        on_node_loss="restart",
        setup=hooks[SETUP],
        container={} if fault.runtime == "none" else {"setup": hooks[IN_CONTAINER]},
        prepare=[{"name": "data", "run": hooks[PREPARE]}],
        services=[{"name": "s", "run": "exec sleep infinity", "ready": {"run": hooks[SERVICE]}}],
    )
    wait_until((fault.jobs.folder / moment).exists, fault.log)
    if way == POWER:
        fault.start_clock()
        cluster.power_off(host)
    elif way == AGENT:
        fault.kill(host, "-f", NODE_AGENT)
    else:
        fault.kill_container(host)
    label = "restart 1 of 3: " if moment == TRAINING else "start again: "
    fault.wait_for_log(("set aside: " if host == HOSTS[2] else label) + host)
    (fault.jobs.folder / f"go-{moment}").touch()
    job = fault.wait_end(dead=way != CONTAINER, lost=way == POWER)
    assert job.last_line == "done: trainer exited with 0", job.log
    is_restart = moment == TRAINING and host != HOSTS[2]
    assert f"\nrestart {int(is_restart)} on 2\n" in job.log, job.log
    if way == POWER:
        boot_again(cluster, host)
    if way != CONTAINER:
        fault.run_next_job(nodes=3)
