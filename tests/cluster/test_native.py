"""Functions as drivers on a real Slurm: submitted here, while Slurm's commands run on the login host."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from slurmray.rehearsal import machine
from slurmray.rehearsal.cluster.config import Cluster, Gres
from slurmray.rehearsal.cluster.lab import Lab
from slurmray.rehearsal.cluster.layout import Layout
from slurmray.rehearsal.images import ray_image, stores
from tests.cluster import bare, sandbox
from tests.cluster.jobs import HANG, commands, wait_until

ROOT = Path(__file__).parents[2]
# The image's Python has to be the one that submits.
PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
IMAGE = f"docker.io/rayproject/ray:{ray_image.RAY_VERSION}-py{PYTHON.replace('.', '')}"
OPTIONS = {"AuthInfo": "cred_expire=15"}  # so long Slurm waits before it starts a job again
# What every program below begins with.
HEAD = """
import json, os, signal, socket, sys, time
from slurmray.native import RayExecutor


def executor(**parameters):
    made = RayExecutor("runs", cluster="slurm")
    made.update_parameters(cpus_per_task=2, mem_gb=1, timeout_min=10, stop={"grace": 5})
    made.update_parameters(**{**json.loads(sys.argv[1]), **parameters})
    return made


def tell(value):
    print("told", json.dumps(value), flush=True)


def nodes():
    import ray
    ray.init()
    return len([node for node in ray.nodes() if node["Alive"]])


def wait_for(path):
    while not os.path.exists(path):
        time.sleep(0.1)


def last_words(job):
    return str(job.exception())[-1500:]

"""


class Program:
    """A user's Python programs, and their jobs."""

    def __init__(self, lab: Lab, folder: Path, path: str, parameters: dict[str, Any]):
        """path: PATH, with Slurm's commands. Their user may be another one, so files are everybody's."""
        self.lab = lab
        self.folder = folder
        self.env = {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT)}
        self.parameters = parameters
        self.started: list[subprocess.Popen[str]] = []

    def start(self, text: str) -> subprocess.Popen[str]:
        (self.folder / "program.py").write_text(HEAD + text)
        words = [sys.executable, "program.py", json.dumps(self.parameters)]
        process = subprocess.Popen(
            words,
            cwd=self.folder,
            env=self.env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            umask=0,
        )
        self.started.append(process)
        return process

    def run(self, text: str) -> list[Any]:
        """What it has told, once nothing is left of its jobs."""
        return self.end(self.start(text))

    def end(self, process: subprocess.Popen[str]) -> list[Any]:
        said, _ = process.communicate(timeout=HANG)
        assert process.returncode == 0, said + self.logs()
        self.is_clean()
        return [json.loads(line[5:]) for line in said.splitlines() if line.startswith("told ")]

    def is_clean(self) -> None:
        wait_until(lambda: not self.lab.left_over(), lambda: "\n".join(self.lab.left_over()), 30)

    def logs(self) -> str:
        return "\n".join(path.read_text() for path in sorted(self.folder.glob("runs/*_log.*")))


@pytest.fixture(scope="module")
def way(request: pytest.FixtureRequest) -> str:
    """Where functions run."""
    return str(request.param)


@pytest.fixture(scope="module")
def native_archive() -> Path:
    return ray_image.archive(machine.cache_folder(), IMAGE, print)


@pytest.fixture(scope="module")
def native_lab(way: str, native_archive: Path, request: pytest.FixtureRequest) -> Iterator[Lab]:
    """Three hosts; two jobs fit on each."""
    layout: Layout = request.getfixturevalue(f"{way}_layout")
    cache = machine.cache_folder()
    if way == "none" and bare.python() != PYTHON:  # Ubuntu 24.04, whose own Slurm is of no use
        pytest.skip(f"these hosts have Python {bare.python()}, and functions come from {PYTHON}")
    if way == "podman":
        layout = dataclasses.replace(layout, store=stores.podman_store(cache, native_archive, print))
    elif way == "docker":
        layout = dataclasses.replace(layout, store=stores.docker_root(cache, native_archive, print))
    elif way == "apptainer":
        layout = dataclasses.replace(layout, files=[sandbox.image(native_archive)])
    cluster = Cluster(nodes=("node1", "node2", "node3"), gres=(Gres("gpu", "", 8),), options=OPTIONS)
    with Lab(cluster, layout) as lab:
        yield lab


@pytest.fixture
def program(
    way: str, native_lab: Lab, folder: Path, tmp_path: Path, native_archive: Path
) -> Iterator[Program]:
    container = {"runtime": way, "image": IMAGE, "accelerator": "none"}
    parameters: dict[str, Any] = {"container": container}
    if way == "none":
        parameters = {"slurm_setup": [bare.setup()]}
    elif way == "apptainer":
        parameters["container"]["image"] = str(sandbox.image(native_archive))
    # As root Apptainer wants capabilities that not every machine has.
    user = "alice" if way == "apptainer" else None
    made = Program(native_lab, folder, commands(native_lab, tmp_path / "commands", user), parameters)
    yield made
    for process in made.started:
        if process.poll() is None:
            process.kill()
            process.wait()


PODMAN = pytest.mark.parametrize("way", ["podman"], indirect=True, scope="module")
_FULL = {name: pytest.param(name, marks=pytest.mark.full) for name in ("none", "docker", "apptainer")}
BOTH = pytest.mark.parametrize("way", ["podman", _FULL["none"]], indirect=True, scope="module")
ALL = pytest.mark.parametrize("way", ["podman", *_FULL.values()], indirect=True, scope="module")


@ALL
@pytest.mark.full
def test_two_at_once_on_the_same_nodes(program: Program) -> None:
    told = program.run("""
def meet(me, other):
    import ray
    ray.init()
    open(me, "w")
    wait_for(other)
    return len([node for node in ray.nodes() if node["Alive"]])

made = executor(nodes=2, slurm_nodelist="node[1,2]")
first, second = made.submit(meet, "a", "b"), made.submit(meet, "b", "a")
tell([first.result(), second.result(), first.num_tasks, first.stdout() is not None])
""")
    assert told == [[2, 2, 1, True]]


@ALL
@pytest.mark.parametrize("nodes", [2, pytest.param(3, marks=pytest.mark.full)])
def test_an_exception(program: Program, nodes: int) -> None:
    told = program.run(f"""
def fail(text):
    import ray
    ray.init()
    @ray.remote
    def deep():
        raise ValueError(text)
    ray.get(deep.remote())

tell(str(executor(nodes={nodes}).submit(fail, "it's wrong").exception()))
""")
    assert "in deep" in told[0]
    assert "ValueError: it's wrong" in told[0]


@PODMAN
def test_the_example_on_three_hosts(program: Program) -> None:
    shutil.copy(ROOT / "examples/native.py", program.folder)  # the checkout need not be on the hosts
    words = [sys.executable, "native.py", "--nodes=3", "--gpus-per-node=8"]
    words += [f"--image={IMAGE}", "--accelerator=none"]
    done = subprocess.run(
        words, cwd=program.folder, env=program.env, capture_output=True, text=True, check=False, timeout=HANG
    )
    assert done.returncode == 0, done.stderr + program.logs()
    program.is_clean()
    rows = re.findall(r"^([0-9.]+) +([0-9]+) GPUs$", done.stdout, re.MULTILINE)
    assert [gpus for _, gpus in rows] == ["8", "8", "8"]
    assert len(set(rows)) == 3


@pytest.mark.full
@BOTH
def test_an_array(program: Program) -> None:
    told = program.run("""
def power(base, exponent):
    import ray
    ray.init()
    task = ray.remote(lambda: base**exponent)
    return ray.get(task.remote()), os.environ["SLURM_ARRAY_TASK_ID"]

made = executor(nodes=1, slurm_array_parallelism=2)
with made.batch():
    batch = [made.submit(power, 5, 2), made.submit(power, 2, 5)]
for jobs in (made.map_array(power, [1, 2, 3, 4], [2, 2, 2, 2]), batch):
    tell([job.result() for job in jobs])
    tell([job.job_id for job in jobs])
""")
    assert told[0] == [[1, "0"], [4, "1"], [9, "2"], [16, "3"]]
    assert told[2] == [[25, "0"], [32, "1"]]
    for ids in (told[1], told[3]):
        assert len({job.partition("_")[0] for job in ids}) == 1


@BOTH
def test_what_cannot_be_pickled_or_submitted_leaves_nothing(program: Program) -> None:
    told = program.run("""
import threading
made = executor(nodes=2)
for submit in (
    lambda: made.submit(print, threading.Lock()),
    lambda: made.map_array(print, [1, threading.Lock()]),
    lambda: executor(slurm_partition="none").submit(print),
):
    try:
        submit()
    except Exception as error:
        tell([type(error).__name__, str(error)])
tell([name for name in os.listdir("runs") if not name.startswith("slurmray-")])
""")
    assert [kind for kind, _ in told[:2]] == ["TypeError", "TypeError"]
    assert "cannot pickle '_thread.lock'" in told[0][1]
    assert told[2][0] == "SlurmError"
    assert "`sinfo --format=%P` lists those for slurm.partition" in told[2][1]
    assert told[3] == []


@pytest.mark.full
@BOTH
def test_a_function_that_kills_its_own_ray(program: Program) -> None:
    told = program.run("""
def kill():
    import ray, subprocess
    ray.init()
    subprocess.run(["pkill", "-KILL", "-f", "raylet/raylet"])
    time.sleep(600)

tell(last_words(executor(nodes=2).submit(kill)))
""")
    assert "failed (71 node lost): node1: " in told[0]


@ALL
def test_cancel(program: Program) -> None:
    told = program.run("""
def forever():
    open("started", "w")
    time.sleep(600)

job = executor(nodes=2).submit(forever)
wait_for("started")
job.cancel()
text = str(job.exception())
while (state := job.watcher.get_state(job.job_id, "force")) == "COMPLETING":
    time.sleep(1)
tell([text, state])
""")
    assert told[0][1] == "CANCELLED", told[0][0]
    assert "done: trainer exited with 143" in told[0][0]


CHECKPOINT = """
from submitit.core.utils import DelayedSubmission

class Count:
    def __init__(self, start):
        self.start = start

    def __call__(self):
        import ray
        ray.init()
        attempt = int(os.environ["SLURMRAY_ATTEMPT"])
        open(f"started{attempt}", "w")
        while self.start < 10 or not attempt:
            self.start += 10
            time.sleep(600)
        return self.start, attempt, ray.get_runtime_context().gcs_address

    def checkpoint(self):
        return DelayedSubmission(Count(self.start))
"""


@ALL
def test_a_checkpoint_and_another_attempt(program: Program) -> None:
    told = program.run(
        CHECKPOINT
        + """
job = executor(nodes=2).submit(Count(1))
wait_for("started0")
job._interrupt()
tell(job.result())
tell(job.stderr())
"""
    )
    assert told[0][:2] == [11, 1]
    heads = re.findall(r"ray: head at (\S+),", told[1])
    assert len(set(heads)) == 2, heads
    assert heads[1] == told[0][2]


@pytest.mark.full
@PODMAN
def test_a_checkpoint_before_the_time_limit(program: Program) -> None:
    process = program.start(
        CHECKPOINT
        + """
job = executor(nodes=1, slurm_signal_delay_s=60).submit(Count(1))
open("number", "w").write(job.job_id)
tell(job.result()[:2])
"""
    )
    wait_until((program.folder / "started0").exists, program.logs)
    number = (program.folder / "number").read_text()
    end = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(time.time() + 75))
    done = program.lab.run(["scontrol", "update", f"JobId={number}", f"EndTime={end}"])
    assert done.returncode == 0, done.stderr
    assert program.end(process) == [[11, 1]]
    assert "] time limit or preemption near: the trainer gets USR2" in program.logs()


@pytest.mark.full
@BOTH
def test_attempts_without_a_checkpoint(program: Program) -> None:
    told = program.run("""
def wait():
    attempt = int(os.environ["SLURMRAY_ATTEMPT"])
    open(f"started-{os.environ['SLURM_JOB_ID']}-{attempt}", "w")
    time.sleep(0 if attempt else 600)
    return attempt

# Preempted long before its time limit, and near it: submitit tells the one from the other by the clock.
for minutes in (60, 10):
    job = executor(nodes=1, timeout_min=minutes).submit(wait)
    wait_for(f"started-{job.job_id}-0")
    job._interrupt()
    tell(last_words(job) if job.exception() else job.result())
""")
    assert told[0] == 1
    assert "Job not requeued because: timed-out and not checkpointable." in told[1]


@pytest.mark.full
@BOTH
def test_the_last_of_an_array_starts_again_alone(program: Program) -> None:
    told = program.run("""
def wait(me):
    attempt = int(os.environ["SLURMRAY_ATTEMPT"])
    open(f"started-{me}-{attempt}", "w")
    if me == 0:
        wait_for("started-1-1")
    elif attempt == 0:
        time.sleep(600)
    return attempt

# Its number in Slurm's own books is that of the whole array.
jobs = executor(nodes=1, timeout_min=60).map_array(wait, [0, 1])
for name in ("started-0-0", "started-1-0"):
    wait_for(name)
jobs[1]._interrupt()
tell([job.result() for job in jobs])
""")
    assert told == [[0, 1]]


@pytest.mark.full
@BOTH
def test_a_job_from_within_a_job(program: Program) -> None:
    told = program.run("""
os.environ.update(SLURM_JOB_ID="1", SLURM_NTASKS="7", SLURM_CPUS_PER_TASK="9", SBATCH_PARTITION="none")
tell(executor(nodes=3).submit(nodes).result())
""")
    assert told == [3]


@PODMAN
def test_an_image_with_another_python(program: Program) -> None:
    told = program.run("""
import slurmray.native.parameters as parameters
parameters.PYTHON = "3.7"
tell(str(executor(nodes=1).submit(nodes).exception()))
""")
    fix = "use an image with Python 3.7, or submit from Python 3."
    assert "the function comes from Python 3.7, /usr/bin/python3 of the job is 3." in told[0]
    assert fix in told[0]


@pytest.mark.full
@BOTH
def test_a_worker_that_loses_power(program: Program) -> None:
    process = program.start("""
def forever():
    open("started", "w")
    time.sleep(600)

tell(last_words(executor(nodes=2, slurm_exclude="node1").submit(forever)))
""")
    wait_until((program.folder / "started").exists, program.logs)
    program.lab.power_off("node3")
    said, _ = process.communicate(timeout=HANG)
    program.lab.power_on("node3")
    assert "failed (71 node lost): node3: no heartbeat for 25 s" in said, said
    # The next job there removes what nobody could.
    assert program.run("tell(executor(nodes=3).submit(nodes).result())") == [3]
