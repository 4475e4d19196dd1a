"""The trainer as a Ray job, Ray's commands from outside, debuggers: real containers, a real Ray."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Sequence
from pathlib import Path

import pytest
import yaml

from slurmray.rehearsal.cluster.slurm_cluster import SlurmCluster

from .hostile import ENVIRONMENT, STRINGS, WRITER, WRITTEN
from .jobs import Jobs, wait_until
from .test_jobs import ONE, TWO

RAY_JOB = TWO + "launch: ray-job\n"
DRIVER = """
import os, ray, sys
ray.init(logging_level="warning")

@ray.remote
def inspect():
    return os.environ["MINE"], os.environ.get("NODE_RANK"), os.path.exists("marker")

print("driver", os.environ["MINE"], os.environ["NODE_RANK"], os.path.exists("marker"))
print("worker", *ray.get(inspect.remote()))
sys.exit(int(sys.argv[1]))
"""
WAIT = "echo up; until [[ -e go ]]; do sleep 0.1; done; exit 5"


@pytest.fixture
def jobs(podman_cluster: SlurmCluster, folder: Path) -> Jobs:
    return Jobs(podman_cluster, folder)


@pytest.mark.parametrize("code", [pytest.param(0, marks=pytest.mark.full), 3])
def test_a_job_of_ray_with_a_runtime_environment(jobs: Jobs, code: int) -> None:
    (jobs.folder / "code").mkdir()
    (jobs.folder / "code/marker").touch()
    (jobs.folder / "env.yaml").write_text("working_dir: code\nenv_vars: {MINE: from-the-file}\n")
    job = jobs.run(RAY_JOB + "ray: {runtime_env: env.yaml}", ["python3", "-c", DRIVER, str(code)])
    assert job.code == f"{code}:0", job.log
    assert f"trainer: slurmray-{job.id}-0: python3 -c" in job.log
    assert "\ndriver from-the-file 0 True\n" in job.log
    assert "\nworker from-the-file None True\n" in job.log
    assert job.last_line == f"done: trainer exited with {code}"


@pytest.mark.full
def test_a_runtime_environment_that_cannot_be_made(jobs: Jobs) -> None:
    job = jobs.run(RAY_JOB + "ray: {runtime_env: missing.yaml}", ["true"])
    assert job.code == "64:0", job.log
    assert f"ray.runtime_env, in {jobs.folder} of the container: " in job.last_line
    job = jobs.run(RAY_JOB + "ray: {runtime_env: {conda: not-in-the-image}}", ["true"])
    assert job.code == "64:0", job.log
    assert "Ray did not start the trainer, see ray.runtime_env: " in job.last_line


@pytest.mark.full
def test_hostile_strings_arrive(jobs: Jobs) -> None:
    spec = RAY_JOB + yaml.safe_dump({"env": ENVIRONMENT}, allow_unicode=True)
    job = jobs.run(spec, [*WRITER, *STRINGS])
    assert job.code == "0:0", job.log
    seen = json.loads((jobs.folder / WRITTEN).read_text(encoding="utf-8"))
    assert seen["argv"] == STRINGS
    # Ray starts it with a shell, and shells set IFS.
    expected = {name: value for name, value in ENVIRONMENT.items() if name != "IFS"}
    assert {name: seen["environment"].get(name) for name in expected} == expected


@pytest.mark.full
def test_scancel(jobs: Jobs) -> None:
    trainer = (
        "trap 'echo saving; sleep 5; echo saved; exit 3' TERM; echo started; while :; do sleep 0.1; done"
    )
    number = jobs.submit(RAY_JOB, ["bash", "-c", trainer])
    jobs.wait_for(number, "\nstarted\n")
    jobs.cluster.run(["scancel", str(number)])
    job = jobs.wait_end(number)
    assert job.state == "CANCELLED"
    assert "\nsaved\n" in job.log, job.log


@pytest.mark.full
@pytest.mark.parametrize(
    ("cluster", "user"),
    [
        ("podman_cluster", "root"),
        ("podman_cluster", "alice"),
        ("docker_cluster", "alice"),
        ("trixie_cluster", "root"),
    ],
)
def test_ray_commands_from_outside(
    request: pytest.FixtureRequest, folder: Path, cluster: str, user: str
) -> None:
    jobs = Jobs(request.getfixturevalue(cluster), folder, user)
    number = jobs.submit(RAY_JOB, ["bash", "-c", WAIT])
    jobs.wait_for(number, "\nup\n")
    [line] = re.findall(r"\] attach: (srun .+) job list\n", jobs.log(number))

    def run_ray(*args: str, codes: Sequence[int] = (0,)) -> str:
        done = jobs.cluster.run([*shlex.split(line), *args], user)
        assert done.returncode in codes, done.stdout + done.stderr
        return done.stdout + done.stderr

    name = f"slurmray-{number}-0"
    assert f"submission_id='{name}'" in run_ray("job", "list")
    assert "RUNNING" in run_ray("job", "status", name)
    assert "\nup\n" in run_ray("job", "logs", name)
    # The status has the nodes after some seconds.
    wait_until(lambda: run_ray("status").count(" node_") == 2, lambda: run_ray("status"), 60)
    # The command runs in the container, which may end first: 137 of Podman 4.3 and Docker, 255 of Podman 5.4.
    # So may the dashboard, which it asks until the job has stopped (Ray's job/cli.py): then it exits with 1.
    run_ray("job", "stop", name, codes=(0, 1, 137, 255))
    job = jobs.wait_end(number)
    assert job.code == "143:0", job.log
    assert job.last_line == "done: trainer exited with 143 (128 + signal TERM)"


@pytest.mark.full
def test_ray_commands_from_outside_without_a_ray_job(jobs: Jobs) -> None:
    number = jobs.submit(ONE, ["bash", "-c", WAIT])
    jobs.wait_for(number, "\nup\n")
    [line] = re.findall(r"\] attach: (srun .+)\n", jobs.log(number))
    wait_until(lambda: " node_" in jobs.cluster.run(shlex.split(line)).stdout, lambda: jobs.log(number), 60)
    (jobs.folder / "go").touch()
    assert jobs.wait_end(number).code == "5:0"


def test_a_debugger_that_is_not_in_the_image(jobs: Jobs) -> None:
    job = jobs.run(TWO + "ray: {debug: post-mortem}", ["echo", "trainer was started"])
    assert job.code == "65:0", job.log
    for node in ("node1", "node2"):
        assert job.findings[node, "debugpy"].startswith("none | 1.8.0 or later | "), job.log
    assert "trainer: " not in job.log


@pytest.mark.full
def test_legacy_debugger_is_reachable_on_every_node(jobs: Jobs) -> None:
    job = jobs.run(TWO + "ray: {debug: legacy}", ["bash", "-c", "echo $RAY_DEBUG $RAY_DEBUG_POST_MORTEM"])
    assert "\nlegacy 0\n" in job.log
    for node in ("node1", "node2"):
        assert "--ray-debugger-external" in (job.run / f"logs/{node}.log").read_text()
