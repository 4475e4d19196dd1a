"""Nodes with different roles."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from slurmray.rehearsal.cluster.slurm_cluster import SlurmCluster

from .jobs import Jobs

SLURM = "slurm: {nodes: 3, gpus_per_node: 8, cpus_per_task: 2, mem: 1G}\n"
# Prints what each node offers to Ray, and where actors that ask for GPUs run. An actor keeps them; two tasks
# could run on one node, in turn.
TRAINER = """
import json, os, ray
ray.init(logging_level="warning")
nodes = ray.nodes()
names = {row["NodeID"]: row["NodeName"] for row in nodes}
kinds = ("CPU", "GPU", "memory")
offers = {row["NodeName"]: [row["Resources"].get(kind, 0) for kind in kinds] for row in nodes}
@ray.remote(num_gpus=8)
class Place:
    def node(self):
        return names[ray.get_runtime_context().get_node_id()]
actors = [Place.remote(), Place.remote()]
places = sorted(ray.get([actor.node.remote() for actor in actors]))
print(json.dumps([offers, places, os.environ["NNODES"], os.environ["GPUS_PER_NODE"]]))
"""


@pytest.fixture
def jobs(podman_cluster: SlurmCluster, folder: Path) -> Jobs:
    return Jobs(podman_cluster, folder, "alice")


@pytest.mark.full
def test_a_head_node_without_gpus(jobs: Jobs) -> None:
    (jobs.folder / "train.py").write_text(TRAINER)
    spec = f"{SLURM}ray: {{head: {{gpus: 0, cpus: 1, memory: 100M}}}}"
    job = jobs.run(spec, ["python3", "train.py"])
    assert job.code == "0:0", job.log
    assert "probe: 3/3 nodes, 16/16 GPUs" in job.log
    line = next(line for line in job.log.splitlines() if line.startswith("[{"))
    offers, places, *facts = json.loads(line)
    assert offers.pop("node1") == [1, 0, 100 * 2**20]
    assert {tuple(offer[:2]) for offer in offers.values()} == {(2, 8)}
    assert places == ["node2", "node3"]
    assert facts == ["2", "8"]


@pytest.mark.full
def test_the_built_in_check_on_a_head_node_without_cpus(jobs: Jobs) -> None:
    job = jobs.run(f"{SLURM}ray: {{head: {{gpus: 0, cpus: 0}}}}")
    assert job.code == "0:0", job.log
    assert "node1: a task ran on node1, 0 CPUs, 0 GPUs" in job.log
    assert "3 nodes, 16 GPUs, 4 CPUs" in job.log


@pytest.mark.full
def test_services_by_role(jobs: Jobs) -> None:
    """The trainer reaches a service of the head node by its URL; GPUs are taken where a service runs."""
    run = "echo $CUDA_VISIBLE_DEVICES >$NODE_RANK; exec python3 -m http.server --bind 0.0.0.0 "
    ready = {"http": "http://127.0.0.1:8799/job.yaml"}
    services = [
        {"name": "the-judge", "run": f"{run} 8799", "where": "head", "gpus": 8, "ready": ready},
        {"name": "other", "run": f"{run} 8798", "where": "workers", "gpus": 2},
    ]
    (jobs.folder / "train.py").write_text(TRAINER.replace("num_gpus=8", "num_gpus=6"))
    get = "import os, urllib.request as r; print(len(r.urlopen(os.environ['SERVICE_THE_JUDGE_URL']).read()))"
    trainer = f'python3 -c "{get}"; echo $SERVICE_OTHER_HOSTS; cat 0 1 2; python3 train.py'
    job = jobs.run(SLURM + yaml.safe_dump({"services": services}), ["bash", "-ec", trainer])
    assert job.code == "0:0", job.log
    size = (jobs.folder / "job.yaml").stat().st_size
    assert f"\n{size}\nnode2,node3\n0,1,2,3,4,5,6,7\n6,7\n6,7\n" in job.log
    line = next(line for line in job.log.splitlines() if line.startswith("[{"))
    offers, places, *facts = json.loads(line)
    assert {node: offer[1] for node, offer in offers.items()} == {"node1": 0, "node2": 6, "node3": 6}
    assert (places, facts) == (["node2", "node3"], ["2", "6"])


# A service that is a driver of Ray, like vllm serve with Ray's executor; its actor has all GPUs of a node.
JUDGE = """
import pathlib, ray, time
ray.init(logging_level="warning", namespace="judge")
actor = ray.remote(num_gpus=8)(type("Judge", (), {"score": lambda self: ray.get_gpu_ids()}))
judge = actor.options(name="judge").remote()
ray.get(judge.score.remote())
pathlib.Path("judge-is-up").touch()
time.sleep(1000)
"""


@pytest.mark.full
def test_a_service_that_needs_ray(jobs: Jobs) -> None:
    (jobs.folder / "judge.py").write_text(JUDGE)
    services = [
        {
            "name": "judge",
            "run": ["python3", "judge.py"],
            "where": "head",
            "needs_ray": True,
            "ready": {"run": "test -e judge-is-up"},
        }
    ]
    trainer = (
        "import ray; ray.init(); print(len(ray.get(ray.get_actor('judge', 'judge').score.remote())), 'GPUs')"
    )
    spec = SLURM.replace("nodes: 3", "nodes: 1") + yaml.safe_dump({"services": services})
    job = jobs.run(spec, ["python3", "-c", trainer])
    assert job.code == "0:0", job.log
    assert "\n8 GPUs\n" in job.log


@pytest.mark.full
def test_a_node_for_a_service_alone(jobs: Jobs) -> None:
    """It is not in Ray, and the trainer does not count it."""
    (jobs.folder / "train.py").write_text(TRAINER)
    services = [
        {
            "name": "the-judge",
            "run": 'echo "$CUDA_VISIBLE_DEVICES ${RAY_ADDRESS-none}" >gpus; exec python3 -m http.server 8797',
            "where": 1,
            "gpus": 8,
            "ready": {"http": "http://127.0.0.1:8797/job.yaml"},
        },
        {"name": "on-the-others", "run": "sleep 600", "where": "workers"},
    ]
    get = "import os, urllib.request as r; print(len(r.urlopen(os.environ['SERVICE_THE_JUDGE_URL']).read()))"
    trainer = (
        f'echo "$SERVICE_THE_JUDGE_HOSTS $SERVICE_ON_THE_OTHERS_HOSTS"; python3 -c "{get}"; python3 train.py'
    )
    job = jobs.run(SLURM + yaml.safe_dump({"services": services}), ["bash", "-ec", trainer])
    assert job.code == "0:0", job.log
    assert "probe: 2/2 nodes, 16/16 GPUs" in job.log
    size = (jobs.folder / "job.yaml").stat().st_size
    assert f"\nnode3 node2\n{size}\n" in job.log
    assert (jobs.folder / "gpus").read_text() == "0,1,2,3,4,5,6,7 none\n"
    line = next(line for line in job.log.splitlines() if line.startswith("[{"))
    offers, places, *facts = json.loads(line)
    assert sorted(offers) == ["node1", "node2"]
    assert (places, facts) == (["node1", "node2"], ["2", "8"])


@pytest.mark.full
@pytest.mark.parametrize("kind", [{"host": True}, {"image": "docker.io/rayproject/ray:2.60.0-py311"}, {}])
def test_the_end_of_a_service_on_a_node_of_its_own(jobs: Jobs, kind: dict[str, object]) -> None:
    services = [
        {"name": "judge", "run": "touch started; until [[ -e go ]]; do sleep 0.1; done; exit 5", "where": 1}
    ]
    services[0] |= kind
    wait = "until [[ -e started ]]; do sleep 0.1; done; touch go; sleep 600"
    job = jobs.run(SLURM + yaml.safe_dump({"services": services}), ["bash", "-c", wait])
    assert job.code == "70:0", job.log
    assert job.last_line.startswith("failed (70 service): node3: service judge exited with 5"), job.log


@pytest.mark.full
def test_a_node_that_a_service_shares_with_ray(jobs: Jobs) -> None:
    services = [{"name": "judge", "run": "hostname >judge; sleep 600", "where": 1, "shared": True}]
    trainer = 'until [[ -s judge ]]; do sleep 0.1; done; echo "$SERVICE_JUDGE_HOSTS, $NNODES nodes"'
    job = jobs.run(SLURM + yaml.safe_dump({"services": services}), ["bash", "-c", trainer])
    assert job.code == "0:0", job.log
    assert "probe: 3/3 nodes, 24/24 GPUs" in job.log
    assert "\nnode3, 3 nodes\n" in job.log
    assert (jobs.folder / "judge").read_text() == "node3\n"


@pytest.mark.full
def test_the_built_in_check_beside_a_node_for_a_service(jobs: Jobs) -> None:
    services = [{"name": "judge", "run": "sleep 600", "where": 1}]
    job = jobs.run(SLURM + yaml.safe_dump({"services": services}))
    assert job.code == "0:0", job.log
    assert "\n2 nodes, 16 GPUs, 4 CPUs\n" in job.log
