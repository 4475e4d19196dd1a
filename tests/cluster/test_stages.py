"""What is done before the trainer starts, and runs beside it, with Podman and Docker on a real Slurm."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
import yaml

from slurmray.container_options import DEFAULT_IMAGE
from slurmray.rehearsal.lab import Lab

from .jobs import Jobs

ROOT = Path(__file__).parents[2]
TWO = "slurm: {nodes: 2, cpus_per_task: 2, mem: 1G}\n"
ONE = "slurm: {nodes: 1, cpus_per_task: 2, mem: 1G}\n"


PLACES: dict[str, dict[str, object]] = {"host": {"host": True}, "image": {"image": DEFAULT_IMAGE}}


@pytest.fixture(params=["podman", pytest.param("docker", marks=pytest.mark.full)])
def lab(request: pytest.FixtureRequest) -> Lab:
    made = request.getfixturevalue(f"{request.param}_lab")
    assert isinstance(made, Lab)
    return made


@pytest.fixture
def jobs(lab: Lab, folder: Path) -> Jobs:
    return Jobs(lab, folder, "alice")


def once(condition: str) -> str:
    """Shell words that wait, a minute at most, until a condition of [[ ]] holds."""
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
    # A worker may start its retriever before the head says that all have prepared.
    for between in ("prepare: 2/2 nodes", "services: retriever starts"):
        order = ["prepare: corpus begins", between, "services: 2/2 nodes"]
        places = [seen.index(line) for line in order]
        assert [*places, trainer] == sorted([*places, trainer])


def test_a_command_that_fails(jobs: Jobs) -> None:
    spec = TWO + yaml.safe_dump({"prepare": [{"name": "data", "run": "echo no such data >&2; exit 9"}]})
    job = jobs.run(spec, ["echo", "trained"])
    assert (job.code, job.last_line) == ("69:0", "end: exit code 69 from slurmray: node1: data ended with 9")
    assert "no such data" in job.log
    assert "trained" not in job.log


def test_a_service_that_is_never_ready(jobs: Jobs) -> None:
    service = {"name": "reward", "run": "sleep 100", "ready": {"tcp": "127.0.0.1:9", "timeout": 3}}
    job = jobs.run(TWO + yaml.safe_dump({"services": [service]}), ["echo", "trained"])
    assert job.code == "70:0", job.log
    assert re.fullmatch(r"end: .* from slurmray: node\d: reward is not ready after 3 s", job.last_line)
    assert "Connection refused" in job.log
    assert "trained" not in job.log


def test_a_service_that_ends_under_the_trainer(jobs: Jobs) -> None:
    service = {"name": "reward", "run": "until test -e stop; do sleep 0.1; done; exit 4", "where": "head"}
    job = jobs.run(ONE + yaml.safe_dump({"services": [service]}), ["bash", "-c", "touch stop; sleep 100"])
    assert (job.code, job.last_line) == (
        "70:0",
        "end: exit code 70 from slurmray: node1: reward ended with 4",
    )


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
    trainer = once("-e up-first && -e up-last") + "echo trainer >>ends"
    job = jobs.run(ONE + yaml.safe_dump({"services": listed}), ["bash", "-c", trainer])
    assert job.code == "0:0", job.log
    assert (jobs.folder / "ends").read_text() == "trainer\nlast\nfirst\n"


@pytest.mark.parametrize("where", ["host", pytest.param("image", marks=pytest.mark.full)])
def test_a_service_outside_of_ray_s_container(jobs: Jobs, where: str) -> None:
    place = PLACES[where]
    serve = """
echo $NODE_RANK $MINE
test -e /tmp/ray-*/inside && echo on the node
[[ -e begun-$NODE_RANK ]] || { touch begun-$NODE_RANK; exit 6; }
touch again-$NODE_RANK
setsid sleep 1001 & # which ends with the service all the same
exec sleep 1000
"""
    service = {"name": "reward", "run": serve, "env": {"MINE": "it's"}, "restarts": 1, **place}
    quick = {"name": "quick", "run": "exit 3", "on_end": "ignore", "where": "head", **place}
    spec = TWO + yaml.safe_dump({"env": {"SECRET": "x y"}, "services": [service, quick]})
    seen = "-e again-0 && -e again-1 && $(cat slurm-*.out) == *'quick ended with 3 on'*"
    # In a file: the log shows the trainer's words.
    (jobs.folder / "train.sh").write_text(once(seen) + "echo trained")
    job = jobs.run(spec, ["bash", "train.sh"])
    assert job.code == "0:0", job.log
    assert "services: quick ended with 3 on node1; the job goes on" in job.log
    for node in ("node1", "node2"):
        assert f"services: reward ended with 6 on {node} and starts again, 1 of 1" in job.log
    for rank, node in enumerate(("node1", "node2")):
        log = (job.run / f"logs/{node}.log").read_text()
        assert f"\n{rank} it's\n" in log
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
    assert (job.code, job.last_line) == (
        "70:0",
        "end: exit code 70 from slurmray: node1: reward ended with 4",
    )
