"""Another attempt of the same job, if the spec allows it."""

from __future__ import annotations

import dataclasses
import re

import pytest

from slurmray.rehearsal.cluster.slurm_cluster import SlurmCluster
from slurmray.rehearsal.cluster.slurm_conf import ClusterConfig
from tests.cluster.jobs import HANG, Job

from .case import RAY_START, Fault

# The first attempt runs forever, the second one ends by itself.
TRAINER = [
    "bash",
    "-c",
    "echo attempt $SLURMRAY_ATTEMPT; ((SLURMRAY_ATTEMPT)) || { echo started; exec sleep infinity; }",
]


@pytest.fixture
def cluster_config(cluster_config: ClusterConfig) -> ClusterConfig:
    """Jobs in the second partition preempt those in the first; a job may start again after 15 seconds."""
    options = {**cluster_config.options, "PreemptType": "preempt/partition_prio", "PreemptMode": "REQUEUE"}
    options["AuthInfo"] = "cred_expire=15"  # a shorter one may expire before a busy host has started a job
    return dataclasses.replace(cluster_config, partitions=("batch", "high"), options=options)


def second_attempt(fault: Fault, cluster: SlurmCluster) -> Job:
    """Wait for the end of the second attempt, and check that the files of both are kept."""
    state, code = cluster.wait(fault.job, HANG)
    job = fault.wait_end()
    assert (state, code) == ("COMPLETED", "0:0"), job.log
    assert job.log.count("attempt 0\n") == job.log.count("attempt 1\n") == 1, job.log
    places = re.findall(r"head at (\S+):(\d+),", job.log)
    assert len(set(places)) == 2, places
    runs = job.run.parent
    assert {path.name for path in runs.iterdir()} == {f"{job.id}-0", f"{job.id}-1"}
    for attempt in (0, 1):
        assert (runs / f"{job.id}-{attempt}/logs/node2.log").exists()
    return job


@pytest.mark.fault("requeue", "podman", "docker", "none", "apptainer", "pyxis")
def test_a_raylet_that_dies(fault: Fault, cluster: SlurmCluster) -> None:
    fault.start_trainer(TRAINER, requeue={"max": 1})
    fault.kill("node2", "--full", "raylet/raylet")
    fault.wait_for_log("requeue: node2: ray start exited with")
    second_attempt(fault, cluster)


@pytest.mark.fault("requeue", "podman", "docker", "none", "apptainer")
@pytest.mark.full
@pytest.mark.parametrize(
    ("host", "notice"),
    [
        ("node2", "requeue: node2: no heartbeat for"),
        ("node1", "node2: no heartbeat from the head node node1"),
    ],
    ids=["worker", "head"],
)
def test_a_lost_host(fault: Fault, cluster: SlurmCluster, host: str, notice: str) -> None:
    """The host boots again; the second attempt waits for it and runs there."""
    fault.start_trainer(TRAINER, requeue={"max": 1})
    cluster.power_off(host)
    fault.wait_for_log(notice)
    cluster.power_on(host)
    second_attempt(fault, cluster)


@pytest.mark.fault("requeue")
@pytest.mark.full
def test_steps_that_run_once(fault: Fault, cluster: SlurmCluster) -> None:
    items = [
        {"name": "data", "run": "echo data >>done", "once": True},
        {"name": "model", "run": "echo model-$NODE_RANK >>done", "once": True, "where": "all"},
        {"name": "each", "run": "echo each >>done"},
    ]
    fault.start_trainer(TRAINER, requeue={"max": 1}, prepare=items)
    fault.kill("node2", "--full", "raylet/raylet")
    job = second_attempt(fault, cluster)
    done = (job.run.parents[1] / "done").read_text().split()
    assert sorted(done) == ["data", "each", "each", "model-0", "model-1"]


@pytest.mark.fault("requeue")
@pytest.mark.full
def test_preemption(fault: Fault, cluster: SlurmCluster) -> None:
    cluster.run(["scontrol", "update", "PartitionName=high", "PriorityTier=10"])
    fault.start_trainer(TRAINER, requeue={"max": 3})
    fault.inject(
        ["sbatch", "--partition=high", "--nodes=2", "--exclusive", "--output=/dev/null", "--wrap=true"]
    )
    second_attempt(fault, cluster)


@pytest.mark.fault("requeue")
@pytest.mark.full
def test_not_too_often(fault: Fault) -> None:
    fault.start_trainer(requeue={"max": 1})
    fault.inject(["scontrol", "requeue", str(fault.job)])
    fault.wait_for_log("] attempt 1 of this job; at most 0 more after lost nodes or preemption")
    fault.inject(["scontrol", "requeue", str(fault.job)])
    job = fault.wait_end("Slurm has restarted the job 2 times; requeue.max is 1")
    assert job.code == "71:0", job.log


@pytest.mark.fault("requeue")
def test_not_after_a_config_error(fault: Fault) -> None:
    fault.submit(["true"], args=["--nodes=1"], requeue={"max": 3})
    job = fault.wait_end("the allocation has 1 node, the script is for 2")
    assert (job.state, job.code) == ("FAILED", "64:0"), job.log


@pytest.mark.fault("requeue", "podman", "docker", "none", "apptainer")
@pytest.mark.full
def test_a_worker_that_fails_because_of_the_lost_head(fault: Fault, cluster: SlurmCluster) -> None:
    """The worker's container ends before the heartbeat timeout; the worker still requeues the job."""
    fault.start_trainer(TRAINER, requeue={"max": 1})
    cluster.power_off("node1")
    fault.kill("node2", "-f", RAY_START)
    fault.wait_for_log("node2: no heartbeat from the head node node1")
    cluster.power_on("node1")
    second_attempt(fault, cluster)
