"""Heterogeneous jobs: groups of nodes with different resources."""

from __future__ import annotations

import dataclasses
import json
import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from slurmray.rehearsal import machine
from slurmray.rehearsal.cluster.layout import Layout
from slurmray.rehearsal.cluster.slurm_cluster import SlurmCluster
from slurmray.rehearsal.cluster.slurm_conf import USERS, ClusterConfig
from slurmray.rehearsal.images import suites
from slurmray.slurm.submitted_job import Job

from . import rootless
from .conftest import GPUS
from .jobs import HANG, Jobs, passing_for, wait_until

GROUPS = """
slurm:
  mem: 1G
  groups:
    - {name: head, nodes: 1, cpus_per_task: 1}
    - {name: gpu, nodes: 2, cpus_per_task: 2, gpus_per_node: 8}
"""
# Prints what each node offers to Ray, and where actors that ask for a node of the group gpu run. An actor
# keeps what it asked for; two tasks could run on one node, in turn.
TRAINER = """
import json, os, ray
ray.init(logging_level="warning")
nodes = ray.nodes()
names = {row["NodeID"]: row["NodeName"] for row in nodes}
kinds = ("CPU", "GPU", "group:head", "group:gpu")
offers = {row["NodeName"]: [row["Resources"].get(kind, 0) for kind in kinds] for row in nodes}
@ray.remote(num_cpus=1, resources={"group:gpu": 1})
class Place:
    def node(self):
        return names[ray.get_runtime_context().get_node_id()]
actors = [Place.remote(), Place.remote()]
places = sorted(ray.get([actor.node.remote() for actor in actors]))
facts = [os.environ[name] for name in ("NNODES", "GPUS_PER_NODE", "SLURM_JOB_ID")]
print(json.dumps([offers, places, facts]))
"""


SPARE = """
slurm:
  mem: 1G
  cpus_per_task: 1
  groups:
    - {name: head}
    - {name: gpu, spares: 1, gpus_per_node: 8}
on_node_loss: restart
restart: {grace: 1}
"""
# Ends Ray on the second node in the first start, and prints what the nodes offer in the next one.
LOSES_A_NODE = """
import json, os, time, ray
ray.init(logging_level="warning")
@ray.remote(resources={"group:gpu": 1}, max_retries=0)
def end():
    os.kill(os.getppid(), 9)
if os.environ["SLURMRAY_RESTART"] == "0":
    end.remote()
    time.sleep(600)
print(json.dumps([{row["NodeName"]: row["Resources"].get("GPU", 0) for row in ray.nodes()}]))
"""


@pytest.fixture(scope="module", params=["own", pytest.param("trixie", marks=pytest.mark.full)])
def cluster(podman_layout: Layout, archive: Path, request: pytest.FixtureRequest) -> Iterator[SlurmCluster]:
    """Three hosts with Podman, with this machine's Slurm and with 24.11."""
    if request.param == "own":
        yield request.getfixturevalue("podman_cluster")
        return
    root = suites.root(machine.cache_folder(), request.param, print)
    layout = dataclasses.replace(podman_layout, root=root)
    with SlurmCluster(ClusterConfig(nodes=("node1", "node2", "node3"), gres=GPUS), layout) as cluster:
        rootless.load_for_user(cluster, archive, USERS[0], print)
        yield cluster


@pytest.fixture
def jobs(cluster: SlurmCluster, folder: Path) -> Jobs:
    return Jobs(cluster, folder, "alice")


def test_a_head_node_of_another_kind(jobs: Jobs) -> None:
    (jobs.folder / "train.py").write_text(TRAINER)
    job = jobs.run(GROUPS, ["python3", "train.py"])
    assert job.code == "0:0", job.log
    assert "probe: 3/3 nodes, 16/16 GPUs" in job.log
    offers, places, facts = json.loads(next(line for line in job.log.splitlines() if line.startswith("[{")))
    (head, gpu_1, gpu_2) = job.events[0]["nodes"]
    assert offers == {head: [1, 0, 1, 0], gpu_1: [2, 8, 0, 1], gpu_2: [2, 8, 0, 1]}
    assert places == sorted((gpu_1, gpu_2))
    assert facts == ["2", "8", str(job.id)]


@pytest.mark.full
def test_attach_and_scancel(jobs: Jobs, tmp_path: Path) -> None:
    """The trainer gets its grace period, and no node keeps anything."""
    run = "trap 'echo saves; sleep 1; echo saved; exit 3' TERM; echo started; while true; do sleep 0.1; done"
    number = jobs.submit(GROUPS, ["bash", "-c", run])
    jobs.wait_for(number, "\nstarted\n")
    look = "import os, ray; ray.init(); print(os.uname().nodename, len(ray.nodes()))"
    with passing_for(jobs.cluster, tmp_path / "commands", USERS[0]):
        job = Job(number, folder=jobs.folder)
        nodes = next(event for event in job.events() if event["event"] == "start")["nodes"]
        argvs = {node: job.attach_argv(["python3", "-c", look], node=node) for node in nodes}
    for node, argv in argvs.items():
        assert jobs.cluster.run(argv, "alice").stdout == f"{node} 3\n"
    jobs.cluster.run(["scancel", str(number)])
    ended = jobs.wait_end(number)
    assert ended.state == "CANCELLED", ended.log
    assert "\nsaves\n" in ended.log, ended.log
    assert "\nsaved\n" in ended.log, ended.log
    assert ended.last_line == "done: trainer exited with 3"


@pytest.mark.full
def test_a_spare_node_of_a_group(jobs: Jobs) -> None:
    (jobs.folder / "train.py").write_text(LOSES_A_NODE)
    job = jobs.run(SPARE, ["python3", "train.py"])
    assert job.code == "0:0", job.log
    (head, lost), (spare,) = job.events[0]["nodes"], job.events[0]["spares"]
    assert f"; {spare} takes the place of {lost}\n" in job.log, job.log
    (offers,) = json.loads(next(line for line in job.log.splitlines() if line.startswith("[{")))
    assert offers == {head: 0, spare: 8}


@pytest.mark.full
def test_a_finding_of_a_node_of_a_group(jobs: Jobs) -> None:
    setup = "setup: '[[ $SLURMD_NODENAME != node2 ]]'\n"
    job = jobs.run(SPARE + setup, ["bash", "-c", "echo $NNODES of $SLURMRAY_RESTART"])
    assert job.code == "0:0", job.log
    assert "node3 takes the place of node2" in job.log
    assert "\n1 of 0\n" in job.log


@pytest.mark.full
def test_the_end_of_a_node_s_task(jobs: Jobs) -> None:
    """The srun of one group ends, the other one's goes on."""
    number = jobs.submit(GROUPS, ["bash", "-c", "echo started; sleep 600"])
    jobs.wait_for(number, "\nstarted\n")
    steps = jobs.cluster.run(["squeue", "--noheader", "--steps", "--format=%i"]).stdout.split()
    (step,) = (step for step in steps if step.startswith(f"{number + 1}."))
    jobs.cluster.run(["scancel", "--signal=KILL", step])
    assert jobs.cluster.wait(number, HANG) == ("FAILED", "71:0"), jobs.log(number)
    assert re.search(r"failed \(71 node lost\): node\d: the node's task was killed\n", jobs.log(number))
    assert jobs.run(GROUPS, ["true"]).code == "0:0", "it removes what is left of the job above"


@pytest.mark.full
def test_a_requeue(jobs: Jobs) -> None:
    run = "[[ $SLURMRAY_ATTEMPT = 1 ]] || exit 75"
    number = jobs.submit(GROUPS + "requeue: {exit_code: 75}\n", ["bash", "-c", run])

    def has_restarted() -> bool:
        # Slurm's backfill, which starts these jobs, runs only when something in the cluster has changed.
        jobs.cluster.run(["scontrol", "update", "NodeName=node1", f"Comment={time.time()}"])
        time.sleep(1)
        return (jobs.folder / f"slurmray-runs/{number}-1/events.jsonl").exists()

    wait_until(has_restarted, lambda: str(jobs.cluster.job(number)))
    job = jobs.wait_end(number)
    assert job.code == "0:0", job.log


@pytest.mark.full
def test_an_allocation_that_does_not_fit(jobs: Jobs) -> None:
    text = jobs.script(GROUPS, ["true"]).read_text()
    (jobs.folder / "generated.sh").write_text(text.replace("#SBATCH --nodes=2\n", "#SBATCH --nodes=1\n"))
    job = jobs.wait_end(jobs.cluster.sbatch(jobs.folder / "generated.sh", "alice", folder=jobs.folder))
    assert job.code == "64:0", job.log
    assert "the allocation has 1 node in group gpu, the script is for 2" in job.last_line
