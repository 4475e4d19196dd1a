"""Jobs of alice that inherit variables which are wrong where they run."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from slurmray.rehearsal import machine
from slurmray.rehearsal.cluster.config import USERS, ClusterConfig, Gres
from slurmray.rehearsal.cluster.layout import Layout
from slurmray.rehearsal.cluster.slurm_cluster import SlurmCluster
from slurmray.rehearsal.images import rootless, suites

from .faults.rows import OTHER_SUITE
from .jobs import Jobs, wait_until

TWO = "slurm: {nodes: 2, cpus_per_task: 2, mem: 1G}\n"
# Variables of a login session. On the hosts /run/user exists and is root's.
LOGIN_SESSION = {
    "XDG_RUNTIME_DIR": "/run/user/2000",
    "DBUS_SESSION_BUS_ADDRESS": "unix:path=/run/user/2000/bus",
}


@pytest.fixture(
    scope="module", params=[None, pytest.param(OTHER_SUITE, marks=pytest.mark.full)], ids=["own", "other"]
)
def cluster(request: pytest.FixtureRequest, podman_layout: Layout, archive: Path) -> Iterator[SlurmCluster]:
    """Two hosts with the Slurm and Podman of this machine, or of another suite."""
    layout = podman_layout
    if request.param:
        layout = dataclasses.replace(
            layout, root=suites.hosts_root(machine.cache_folder(), request.param, print)
        )
    with SlurmCluster(ClusterConfig(gres=(Gres("gpu", "", 8),)), layout) as cluster:
        rootless.load_for_user(cluster, archive, USERS[0], print)
        yield cluster


@pytest.fixture
def jobs(cluster: SlurmCluster, folder: Path) -> Jobs:
    return Jobs(cluster, folder, "alice")


def exported(variables: dict[str, str]) -> list[str]:
    """The option of sbatch that exports these variables."""
    return ["--export=" + ",".join(["ALL", *(f"{name}={value}" for name, value in variables.items())])]


def test_variables_of_a_login_session_on_another_host(jobs: Jobs) -> None:
    wait = "echo started; until [[ -e go ]]; do sleep 0.1; done; cat from-host"
    services = [
        {"name": "host", "host": True, "run": "echo host: ${XDG_RUNTIME_DIR-unset} >from-host; sleep 1000"}
    ]
    job = jobs.submit(
        TWO + yaml.safe_dump({"services": services}), ["bash", "-c", wait], exported(LOGIN_SESSION)
    )
    jobs.wait_for(job, "\nstarted\n")
    (line,) = [line for line in jobs.log(job).splitlines() if "] attach: " in line]
    variables = [f"{name}={value}" for name, value in LOGIN_SESSION.items()]
    attach = ["env", *variables, "bash", "-c", line.partition("] attach: ")[2]]
    # The status is empty in the first seconds.
    wait_until(
        lambda: "Autoscaler status" in jobs.cluster.run(attach, "alice").stdout, lambda: jobs.log(job), 60
    )
    (jobs.folder / "go").touch()
    ended = jobs.wait_end(job)
    assert ended.code == "0:0", ended.log
    assert "\nhost: unset\n" in ended.log


# Options of another allocation, in which this job is submitted.
OTHER_ALLOCATION = {
    "SLURM_ACCOUNT": "other",
    "SLURM_CPUS_PER_TASK": "64",
    "SLURM_DISTRIBUTION": "cyclic",
    "SLURM_EXACT": "1",
    "SLURM_GPU_BIND": "single:1",
    "SLURM_GPUS_PER_TASK": "1",
    "SLURM_GRES": "gpu:1",
    "SLURM_HINT": "nomultithread",
    "SLURM_MEM_PER_CPU": "100",
    "SLURM_NTASKS_PER_GPU": "1",
    "SLURM_RESERVATION": "other",
    "SLURM_RESTART_COUNT": "3",
    "SLURM_STEP_GRES": "none",
    "SLURM_THREADS_PER_CORE": "1",
    "SLURM_TIMELIMIT": "1",
}


@pytest.mark.parametrize("memory", ["mem: 1G", pytest.param("mem_per_cpu: 512M", marks=pytest.mark.full)])
def test_variables_of_another_allocation(jobs: Jobs, memory: str) -> None:
    foreign = OTHER_ALLOCATION | {"SLURM_MEM_PER_NODE": "300"}
    del foreign["SLURM_MEM_PER_NODE" if memory == "mem: 1G" else "SLURM_MEM_PER_CPU"]
    look = "import ray; ray.init(); print(sorted(node['Resources']['memory'] for node in ray.nodes()))"
    spec = f"""
slurm: {{nodes: 2, gpus_per_node: 4, cpus_per_task: 2, {memory}}}
requeue: {{max: 2}}
setup: echo "$SLURM_GPUS_ON_NODE GPUs" >"gpus-$SLURMD_NODENAME"
"""
    job = jobs.run(spec, ["python3", "-c", look], exported(foreign))
    assert job.code == "0:0", job.log
    assert "restarted" not in job.log
    free = float(2**30 - 2**30 * 3 // 10)  # without the object store
    assert f"\n[{free}, {free}]\n" in job.log
    for node in ("node1", "node2"):
        assert (jobs.folder / f"gpus-{node}").read_text() == "4 GPUs\n"


def test_in_salloc(jobs: Jobs) -> None:
    """Where the shell runs on the login host, and in an interactive step on a node."""
    script = jobs.script(TWO, ["true"])
    salloc = ["salloc", "--nodes=1", "--ntasks=1", "--mem=100M"]
    run = ["bash", "-c", f"bash {script}; echo exited with $?"]
    text = f"slurmray: this runs only as a batch script, inside salloc too. Submit it: sbatch {script}\n"
    for step in ([], ["srun", "--interactive", "--preserve-env"]):
        done = jobs.cluster.run([*salloc, *step, *run], "alice")
        assert text in done.stderr, done
        assert done.stdout == "exited with 64\n", done
    done = jobs.cluster.run([*salloc, "sbatch", "--wait", f"--chdir={jobs.folder}", str(script)], "alice")
    assert done.returncode == 0, (done, [log.read_text() for log in jobs.folder.glob("*.out")])


# Follows podman_hpc.py of podman-hpc 1.1.4: Podman's commands, no global options of Podman, and options of a
# site's modules, e.g. --gpu.
PODMAN_HPC = """#!/bin/bash
[[ $1 != -* ]] || { echo "Error: No such option: $1" >&2; exit 2; }
echo "$1" >>"${0%/*}/calls"
for word in "$@"; do
    shift
    [[ $word == --gpu ]] || set -- "$@" "$word"
done
exec podman "$@"
"""


def test_a_wrapper_of_podman(jobs: Jobs) -> None:
    bin_folder = jobs.folder / "bin"
    bin_folder.mkdir(mode=0o777)
    bin_folder.chmod(0o777)
    (bin_folder / "podman-hpc").write_text(PODMAN_HPC)
    (bin_folder / "podman-hpc").chmod(0o755)
    container = {"runtime": "podman", "command": "podman-hpc", "accelerator": "none", "args": ["--gpu"]}
    spec = {"setup": f"PATH={bin_folder}:$PATH", "container": container}
    job = jobs.run(TWO + yaml.safe_dump(spec))
    assert job.code == "0:0", job.log
    assert "container: podman-hpc run docker.io/" in job.log
    assert " podman-hpc exec slurmray-" in job.log
    calls = (bin_folder / "calls").read_text().split()
    assert calls.count("run") == 2
    assert "ps" in calls
