"""Functions as trainers on a real Slurm: submitted on this machine, with the login host's Slurm commands."""

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
from slurmray.rehearsal.cluster.layout import Layout
from slurmray.rehearsal.cluster.slurm_cluster import SlurmCluster
from slurmray.rehearsal.cluster.slurm_conf import ClusterConfig, Gres
from slurmray.rehearsal.images import ray_image, stores
from tests.cluster import bare, sandbox
from tests.cluster.jobs import HANG, path_with_slurm, wait_until

ROOT = Path(__file__).parents[2]
# The image needs the same minor version of Python as the submitting process.
PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
IMAGE = f"docker.io/rayproject/ray:{ray_image.RAY_VERSION}-py{PYTHON.replace('.', '')}"
OPTIONS = {"AuthInfo": "cred_expire=15"}  # seconds that Slurm waits before it restarts a job
# Start of every program below.
HEAD = """
import json, os, signal, socket, sys, time
from slurmray.native import RayExecutor


def executor(**parameters):
    result = RayExecutor("runs", cluster="slurm")
    result.update_parameters(cpus_per_task=2, mem_gb=1, timeout_min=10, stop={"grace": 5})
    result.update_parameters(**{**json.loads(sys.argv[1]), **parameters})
    return result


def report(value):
    print("result:", json.dumps(value), flush=True)


def nodes():
    import ray
    ray.init()
    return len([node for node in ray.nodes() if node["Alive"]])


def wait_for(path):
    while not os.path.exists(path):
        time.sleep(0.1)


def log_tail(job):
    return str(job.exception())[-1500:]

"""


class Program:
    """Runs Python programs of a user, which submit functions as jobs."""

    def __init__(self, cluster: SlurmCluster, folder: Path, path: str, parameters: dict[str, Any]):
        """path: PATH with Slurm's commands. They may run as another user, so all files are world-writable."""
        self.cluster = cluster
        self.folder = folder
        self.env = {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT)}
        self.parameters = parameters
        self.started: list[subprocess.Popen[str]] = []

    def start(self, text: str) -> subprocess.Popen[str]:
        (self.folder / "program.py").write_text(HEAD + text)
        argv = [sys.executable, "program.py", json.dumps(self.parameters)]
        process = subprocess.Popen(
            argv,
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
        """Run a program; return its results when the hosts are clean."""
        return self.wait_end(self.start(text))

    def wait_end(self, process: subprocess.Popen[str]) -> list[Any]:
        output, _ = process.communicate(timeout=HANG)
        assert process.returncode == 0, output + self.logs()
        self.wait_clean()
        lines = [line for line in output.splitlines() if line.startswith("result: ")]
        return [json.loads(line.removeprefix("result: ")) for line in lines]

    def wait_clean(self) -> None:
        wait_until(lambda: not self.cluster.leftovers(), lambda: "\n".join(self.cluster.leftovers()), 30)

    def logs(self) -> str:
        return "\n".join(path.read_text() for path in sorted(self.folder.glob("runs/*_log.*")))


@pytest.fixture(scope="module")
def runtime(request: pytest.FixtureRequest) -> str:
    """Runtime of the functions' jobs."""
    return str(request.param)


@pytest.fixture(scope="module")
def native_archive() -> Path:
    return ray_image.archive(machine.cache_folder(), IMAGE, print)


@pytest.fixture(scope="module")
def native_cluster(
    runtime: str, native_archive: Path, request: pytest.FixtureRequest
) -> Iterator[SlurmCluster]:
    """Three hosts; two jobs fit on each."""
    layout: Layout = request.getfixturevalue(f"{runtime}_layout")
    cache = machine.cache_folder()
    # On Ubuntu 24.04 the hosts are Debian's, see suites.hosts_root.
    if runtime == "none" and bare.python() != PYTHON:
        pytest.skip(f"these hosts have Python {bare.python()}, and functions come from {PYTHON}")
    if runtime in ("podman", "docker"):
        layout = dataclasses.replace(layout, store=stores.load(runtime, cache, native_archive, print))
    elif runtime == "apptainer":
        layout = dataclasses.replace(layout, files=[sandbox.image(native_archive)])
    cluster_config = ClusterConfig(
        nodes=("node1", "node2", "node3"), gres=(Gres("gpu", "", 8),), options=OPTIONS
    )
    with SlurmCluster(cluster_config, layout) as cluster:
        yield cluster


@pytest.fixture
def program(
    runtime: str, native_cluster: SlurmCluster, folder: Path, tmp_path: Path, native_archive: Path
) -> Iterator[Program]:
    container = {"runtime": runtime, "image": IMAGE, "accelerator": "none"}
    parameters: dict[str, Any] = {"container": container}
    if runtime == "none":
        parameters = {"slurm_setup": [bare.setup()]}
    elif runtime == "apptainer":
        parameters["container"]["image"] = str(sandbox.image(native_archive))
    # As root, Apptainer needs capabilities that some machines lack.
    user = "alice" if runtime == "apptainer" else None
    program = Program(
        native_cluster, folder, path_with_slurm(native_cluster, tmp_path / "commands", user), parameters
    )
    yield program
    for process in program.started:
        if process.poll() is None:
            process.kill()
            process.wait()


PODMAN = pytest.mark.parametrize("runtime", ["podman"], indirect=True, scope="module")
_FULL = {name: pytest.param(name, marks=pytest.mark.full) for name in ("none", "docker", "apptainer")}
BOTH = pytest.mark.parametrize("runtime", ["podman", _FULL["none"]], indirect=True, scope="module")
ALL = pytest.mark.parametrize("runtime", ["podman", *_FULL.values()], indirect=True, scope="module")


@ALL
@pytest.mark.full
def test_two_jobs_on_the_same_nodes(program: Program) -> None:
    results = program.run("""
def meet(me, other):
    import ray
    ray.init()
    open(me, "w")
    wait_for(other)
    return len([node for node in ray.nodes() if node["Alive"]])

submitter = executor(nodes=2, slurm_nodelist="node[1,2]")
first, second = submitter.submit(meet, "a", "b"), submitter.submit(meet, "b", "a")
report([first.result(), second.result(), first.num_tasks, first.stdout() is not None])
""")
    assert results == [[2, 2, 1, True]]


@ALL
@pytest.mark.parametrize("nodes", [2, pytest.param(3, marks=pytest.mark.full)])
def test_an_exception(program: Program, nodes: int) -> None:
    results = program.run(f"""
def fail(text):
    import ray
    ray.init()
    @ray.remote
    def deep():
        raise ValueError(text)
    ray.get(deep.remote())

report(str(executor(nodes={nodes}).submit(fail, "it's wrong").exception()))
""")
    assert "in deep" in results[0]
    assert "ValueError: it's wrong" in results[0]


@PODMAN
@pytest.mark.full
def test_the_example_on_three_hosts(program: Program) -> None:
    shutil.copy(ROOT / "examples/native.py", program.folder)  # the checkout may not be mounted on the hosts
    argv = [sys.executable, "native.py", "--nodes=3", "--gpus-per-node=8"]
    argv += [f"--image={IMAGE}", "--accelerator=none"]
    done = subprocess.run(
        argv, cwd=program.folder, env=program.env, capture_output=True, text=True, check=False, timeout=HANG
    )
    assert done.returncode == 0, done.stderr + program.logs()
    program.wait_clean()
    rows = re.findall(r"^([0-9.]+) +([0-9]+) GPUs$", done.stdout, re.MULTILINE)
    assert [gpus for _, gpus in rows] == ["8", "8", "8"]
    assert len(set(rows)) == 3


@pytest.mark.full
@BOTH
def test_an_array(program: Program) -> None:
    results = program.run("""
def power(base, exponent):
    import ray
    ray.init()
    task = ray.remote(lambda: base**exponent)
    assert 0 < int(os.environ["SLURMRAY_END_TIME"]) - time.time() <= 1800
    return ray.get(task.remote()), os.environ["SLURM_ARRAY_TASK_ID"]

submitter = executor(nodes=1, slurm_array_parallelism=2, timeout_min=30)
with submitter.batch():
    batch = [submitter.submit(power, 5, 2), submitter.submit(power, 2, 5)]
for jobs in (submitter.map_array(power, [1, 2, 3, 4], [2, 2, 2, 2]), batch):
    report([job.result() for job in jobs])
    report([job.job_id for job in jobs])
""")
    assert results[0] == [[1, "0"], [4, "1"], [9, "2"], [16, "3"]]
    assert results[2] == [[25, "0"], [32, "1"]]
    for ids in (results[1], results[3]):
        assert len({job.partition("_")[0] for job in ids}) == 1


@BOTH
def test_failed_submissions_leave_no_files(program: Program) -> None:
    results = program.run("""
import threading
submitter = executor(nodes=2)
for submit in (
    lambda: submitter.submit(print, threading.Lock()),
    lambda: submitter.map_array(print, [1, threading.Lock()]),
    lambda: executor(slurm_partition="none").submit(print),
):
    try:
        submit()
    except Exception as error:
        report([type(error).__name__, str(error)])
report([name for name in os.listdir("runs") if not name.startswith("slurmray-")])
""")
    assert [kind for kind, _ in results[:2]] == ["TypeError", "TypeError"]
    assert "cannot pickle '_thread.lock'" in results[0][1]
    assert results[2][0] == "SlurmError"
    assert "`sinfo --format=%P` lists values for slurm.partition" in results[2][1]
    assert results[3] == []


@pytest.mark.full
@BOTH
def test_a_function_that_kills_its_own_ray(program: Program) -> None:
    results = program.run("""
def kill():
    import ray, subprocess
    ray.init()
    subprocess.run(["pkill", "-KILL", "-f", "raylet/raylet"])
    time.sleep(600)

report(log_tail(executor(nodes=2).submit(kill)))
""")
    assert "failed (71 node lost): node1: " in results[0]


@ALL
@pytest.mark.full
def test_cancel(program: Program) -> None:
    results = program.run("""
def forever():
    open("started", "w")
    time.sleep(600)

job = executor(nodes=2).submit(forever)
wait_for("started")
job.cancel()
text = str(job.exception())
while (state := job.watcher.get_state(job.job_id, "force")) == "COMPLETING":
    time.sleep(1)
report([text, state])
""")
    assert results[0][1] == "CANCELLED", results[0][0]
    assert "done: trainer exited with 143" in results[0][0]


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
@pytest.mark.full
def test_a_checkpoint_and_another_attempt(program: Program) -> None:
    results = program.run(
        CHECKPOINT
        + """
job = executor(nodes=2).submit(Count(1))
wait_for("started0")
job._interrupt()
report(job.result())
report(job.stderr())
"""
    )
    assert results[0][:2] == [11, 1]
    heads = re.findall(r"ray: head at (\S+),", results[1])
    assert len(set(heads)) == 2, heads
    assert heads[1] == results[0][2]


@pytest.mark.full
@BOTH
def test_a_checkpoint_and_another_start_in_the_same_allocation(program: Program) -> None:
    """A raylet ends: the function gets the signal for its checkpoint, although that asks for no requeue."""
    process = program.start(
        CHECKPOINT
        + """
job = executor(nodes=2, slurm_nodelist="node[1,2]", on_node_loss="restart").submit(Count(1))
report(job.result())
"""
    )
    wait_until((program.folder / "started0").exists, program.logs)
    done = program.cluster.run(["pkill", "-KILL", "--full", "raylet/raylet"], host="node2")
    assert done.returncode == 0, done.stderr
    assert program.wait_end(process)[0][:2] == [11, 1]
    assert "restart 1 of 3: node2: " in program.logs()


@pytest.mark.full
@PODMAN
def test_a_checkpoint_before_the_time_limit(program: Program) -> None:
    process = program.start(
        CHECKPOINT
        + """
job = executor(nodes=1, slurm_signal_delay_s=60).submit(Count(1))
open("number", "w").write(job.job_id)
report(job.result()[:2])
"""
    )
    wait_until((program.folder / "started0").exists, program.logs)
    number = (program.folder / "number").read_text()
    end = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(time.time() + 75))
    done = program.cluster.run(["scontrol", "update", f"JobId={number}", f"EndTime={end}"])
    assert done.returncode == 0, done.stderr
    assert program.wait_end(process) == [[11, 1]]
    assert "] time limit or preemption near: the trainer gets USR2" in program.logs()


@pytest.mark.full
@BOTH
def test_attempts_without_a_checkpoint(program: Program) -> None:
    results = program.run("""
def wait():
    attempt = int(os.environ["SLURMRAY_ATTEMPT"])
    open(f"started-{os.environ['SLURM_JOB_ID']}-{attempt}", "w")
    time.sleep(0 if attempt else 600)
    return attempt

# Preempted long before its time limit, and shortly before it: submitit compares the elapsed time.
for minutes in (60, 10):
    job = executor(nodes=1, timeout_min=minutes).submit(wait)
    wait_for(f"started-{job.job_id}-0")
    job._interrupt()
    report(log_tail(job) if job.exception() else job.result())
""")
    assert results[0] == 1
    assert "Job not requeued because: timed-out and not checkpointable." in results[1]


@pytest.mark.full
@BOTH
def test_the_last_task_of_an_array_is_requeued_alone(program: Program) -> None:
    results = program.run("""
def wait(me):
    attempt = int(os.environ["SLURMRAY_ATTEMPT"])
    open(f"started-{me}-{attempt}", "w")
    if me == 0:
        wait_for("started-1-1")
    elif attempt == 0:
        time.sleep(600)
    return attempt

# Its SLURM_JOB_ID is the id of the array.
jobs = executor(nodes=1, timeout_min=60).map_array(wait, [0, 1])
for name in ("started-0-0", "started-1-0"):
    wait_for(name)
jobs[1]._interrupt()
report([job.result() for job in jobs])
""")
    assert results == [[0, 1]]


@pytest.mark.full
@BOTH
def test_a_job_from_within_a_job(program: Program) -> None:
    results = program.run("""
os.environ.update(SLURM_JOB_ID="1", SLURM_NTASKS="7", SLURM_CPUS_PER_TASK="9", SBATCH_PARTITION="none")
report(executor(nodes=3).submit(nodes).result())
""")
    assert results == [3]


@PODMAN
@pytest.mark.full
def test_an_image_with_another_python(program: Program) -> None:
    results = program.run("""
import slurmray.native.parameters as parameters
parameters.PYTHON = "3.7"
report(str(executor(nodes=1).submit(nodes).exception()))
""")
    fix = "use an image with Python 3.7, or submit from Python 3."
    assert "the function comes from Python 3.7, /usr/bin/python3 in the job is 3." in results[0]
    assert fix in results[0]


@pytest.mark.full
@BOTH
def test_a_worker_that_loses_power(program: Program) -> None:
    process = program.start("""
def forever():
    open("started", "w")
    time.sleep(600)

report(log_tail(executor(nodes=2, slurm_exclude="node1").submit(forever)))
""")
    wait_until((program.folder / "started").exists, program.logs)
    program.cluster.power_off("node3")
    output, _ = process.communicate(timeout=HANG)
    program.cluster.power_on("node3")
    assert "failed (71 node lost): node3: no heartbeat for 25 s" in output, output
    # The next job there removes the leftovers.
    assert program.run("report(executor(nodes=3).submit(nodes).result())") == [3]
