"""`prepare` and `services`, with Podman and Docker on a real Slurm."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
import yaml

from slurmray.rehearsal.cluster.slurm_cluster import SlurmCluster
from slurmray.spec.container import DEFAULT_IMAGE

from .jobs import Jobs

ROOT = Path(__file__).parents[2]
TWO = "slurm: {nodes: 2, cpus_per_task: 2, mem: 1G}\n"
ONE = "slurm: {nodes: 1, cpus_per_task: 2, mem: 1G}\n"


SERVICE_EXITED = "failed (70 service): node1: service reward exited with 4. Its log has the output"
PLACES: dict[str, dict[str, object]] = {"host": {"host": True}, "image": {"image": DEFAULT_IMAGE}}


@pytest.fixture(params=["podman", pytest.param("docker", marks=pytest.mark.full)])
def cluster(request: pytest.FixtureRequest) -> SlurmCluster:
    cluster = request.getfixturevalue(f"{request.param}_cluster")
    assert isinstance(cluster, SlurmCluster)
    return cluster


@pytest.fixture
def jobs(cluster: SlurmCluster, folder: Path) -> Jobs:
    return Jobs(cluster, folder, "alice")


def wait_for_condition(condition: str) -> str:
    """Return shell commands that wait at most a minute until a condition of [[ ]] is true."""
    return f"for _ in {{1..600}}; do [[ {condition} ]] && break; sleep 0.1; done; "


@pytest.mark.full
def test_a_retriever_on_every_node(jobs: Jobs) -> None:
    shutil.copytree(ROOT / "examples", jobs.folder / "examples")
    job = jobs.run((ROOT / "examples/retriever.yaml").read_text())
    assert job.code == "0:0", job.log
    for node in ("node1", "node2"):
        assert f"{node}: Ray runs Python tasks and actors on a cluster.\n" in job.log
    seen = [line.partition("] ")[2] for line in job.log.splitlines()]
    trainer = next(number for number, line in enumerate(seen) if line.startswith("trainer: "))
    # A worker may start its retriever before the log has the line that all nodes are prepared.
    for between in ("prepare: 2/2 nodes", "services: retriever starts"):
        order = ["prepare: corpus begins", between, "services: 2/2 nodes"]
        places = [seen.index(line) for line in order]
        assert [*places, trainer] == sorted([*places, trainer])


@pytest.mark.full
def test_a_command_that_fails(jobs: Jobs) -> None:
    spec = TWO + yaml.safe_dump({"prepare": [{"name": "data", "run": "echo no such data >&2; exit 9"}]})
    job = jobs.run(spec, ["echo", "trained"])
    text = "failed (69 prepare): node1: prepare step data exited with 9. The node's log has its output"
    assert (job.code, job.last_line) == ("69:0", text)
    assert "\nno such data\n" in job.log
    assert "trained" not in job.log


@pytest.mark.full
def test_a_service_that_is_never_ready(jobs: Jobs) -> None:
    service = {"name": "reward", "run": "sleep 100", "ready": {"tcp": "127.0.0.1:9", "timeout": 3}}
    job = jobs.run(TWO + yaml.safe_dump({"services": [service]}), ["echo", "trained"])
    assert job.code == "70:0", job.log
    text = r"failed \(70 service\): node\d: service reward is not ready after 3 s\. .*ready\.timeout"
    assert re.fullmatch(text, job.last_line), job.log
    assert re.search(r"last lines of .*/service-reward@node\d\.log:\n", job.log)
    assert "Connection refused" in job.log
    assert "trained" not in job.log


@pytest.mark.full
def test_a_service_that_ends_under_the_trainer(jobs: Jobs) -> None:
    run = "echo the reason >&2; until test -e stop; do sleep 0.1; done; exit 4"
    service = {"name": "reward", "run": run, "where": "head"}
    job = jobs.run(ONE + yaml.safe_dump({"services": [service]}), ["bash", "-c", "touch stop; sleep 100"])
    assert (job.code, job.last_line) == ("70:0", SERVICE_EXITED)
    assert "service-reward@node1.log:\n" in job.log
    assert "\nthe reason\n" in job.log


def test_logs_of_services(jobs: Jobs) -> None:
    """Where the run directory is not in the container. Each node has its own, with all starts."""
    run = "echo $NAME $NODE_RANK; echo warned >&2; [[ -e up-$NAME-$NODE_RANK ]] || exit 3; sleep 1000"
    ready = {"run": "echo checked; touch up-$NAME-$NODE_RANK"}
    services = [
        {"name": name, "run": run, "env": {"NAME": name}, "restarts": 99, "ready": ready}
        for name in ("judge", "web")
    ]
    run_dir = jobs.folder.with_name(f"{jobs.folder.name}-runs")
    run_dir.mkdir()
    run_dir.chmod(0o1777)
    job = jobs.run(TWO + yaml.safe_dump({"run_dir": str(run_dir), "services": services}), ["sleep", "2"])
    logs = run_dir / f"{job.id}-0/logs"
    texts = {path.name: path.read_text() for path in logs.glob("*.log")}
    shutil.rmtree(run_dir)
    assert job.code == "0:0", job.log
    for name in ("judge", "web"):
        for rank, node in enumerate(("node1", "node2")):
            text = texts.pop(f"service-{name}@{node}.log")
            lines = text.splitlines()  # those of the readiness check are among them
            starts = text.count(f"service {name}: bash /")
            assert starts == lines.count(f"{name} {rank}") == lines.count("warned") > 0
            assert "checked" in lines
    assert sorted(texts) == ["node1.log", "node2.log"]
    assert not any("warned\n" in text for text in texts.values())


def test_a_command_on_all_nodes_with_ray(jobs: Jobs) -> None:
    show = "import ray; ray.init(logging_level='error'); print(len(ray.nodes()), 'nodes')"
    item = {"name": "warm-up", "run": ["python3", "-c", show], "where": "all", "needs_ray": True}
    job = jobs.run(TWO + yaml.safe_dump({"prepare": [item]}), ["true"])
    assert job.code == "0:0", job.log
    for node in ("node1", "node2"):
        assert "\n2 nodes\n" in (job.run / f"logs/{node}.log").read_text()


def test_services_end_after_the_trainer_and_in_order(jobs: Jobs) -> None:
    run = "trap 'echo $NAME >>ends; exit' TERM; touch up-$NAME; while :; do sleep 0.1; done"
    listed = [{"name": n, "run": run, "env": {"NAME": n}, "where": "head"} for n in ("first", "last")]
    trainer = wait_for_condition("-e up-first && -e up-last") + "echo trainer >>ends"
    job = jobs.run(ONE + yaml.safe_dump({"services": listed}), ["bash", "-c", trainer])
    assert job.code == "0:0", job.log
    assert (jobs.folder / "ends").read_text() == "trainer\nlast\nfirst\n"


@pytest.mark.parametrize("where", ["host", pytest.param("image", marks=pytest.mark.full)])
def test_a_service_outside_of_ray_s_container(jobs: Jobs, where: str) -> None:
    place = PLACES[where]
    serve = """
echo $NODE_RANK $MINE
test -e /tmp/ray-*/inside && echo on the node
[[ -e started-$NODE_RANK ]] || { touch started-$NODE_RANK; exit 6; }
touch again-$NODE_RANK
setsid sleep 1001 & # ends with the service, too
exec sleep 1000
"""
    service = {"name": "reward", "run": serve, "env": {"MINE": "it's"}, "restarts": 1, **place}
    quick = {"name": "quick", "run": "exit 3", "on_end": "ignore", "where": "head", **place}
    spec = TWO + yaml.safe_dump({"env": {"SECRET": "x y"}, "services": [service, quick]})
    seen = "-e again-0 && -e again-1 && $(cat slurm-*.out) == *'quick exited with 3 on'*"
    # In a file, because the log contains the trainer's command.
    (jobs.folder / "train.sh").write_text(wait_for_condition(seen) + "echo trained")
    job = jobs.run(spec, ["bash", "train.sh"])
    assert job.code == "0:0", job.log
    assert "services: service quick exited with 3 on node1; the job continues\n" in job.log
    for node in ("node1", "node2"):
        assert f"services: service reward exited with 6 on {node}: restart 1 of 1\n" in job.log
    for rank, node in enumerate(("node1", "node2")):
        log = (job.run / f"logs/service-reward@{node}.log").read_text()
        assert log.startswith(f"{rank} it's\n")
        assert ("\non the node\n" in log) == (where == "host")


@pytest.mark.full
@pytest.mark.parametrize("where", list(PLACES))
def test_the_end_of_a_service_outside_ends_the_job(jobs: Jobs, where: str) -> None:
    place = PLACES[where]
    service = {
        "name": "reward",
        "run": "until test -e stop; do sleep 0.1; done; exit 4",
        "where": "head",
        **place,
    }
    job = jobs.run(TWO + yaml.safe_dump({"services": [service]}), ["bash", "-c", "touch stop; sleep 100"])
    assert (job.code, job.last_line) == ("70:0", SERVICE_EXITED)
