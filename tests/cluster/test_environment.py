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
