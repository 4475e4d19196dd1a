"""Jobs in containers of pyxis. Their faults are in faults/."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from slurmray.rehearsal.cluster.layout import Layout
from slurmray.rehearsal.cluster.slurm_cluster import SlurmCluster
from slurmray.rehearsal.cluster.slurm_conf import ClusterConfig, Gres

from . import enroot
from .jobs import Jobs, wait_until

pytestmark = pytest.mark.pyxis
SLURM = {"nodes": 2, "gpus_per_node": 8, "cpus_per_task": 2, "mem": "1G"}
# A service of each node: writes a line whenever it starts, and exits with 7 if the file end-RANK is there.
RUN = """echo started >>web-$NODE_RANK
id -un; ls /
sleep 1000 &
until [ -e end-$NODE_RANK ]; do sleep 0.1; done
mv end-$NODE_RANK ended-$NODE_RANK
exit 7"""
HAS_STARTED = "until [[ $(wc -l <web-1) == %d ]]; do sleep 0.1; done; "


@pytest.fixture(scope="module")
def pyxis_cluster(pyxis_layout: Layout) -> Iterator[SlurmCluster]:
    config = ClusterConfig(gres=(Gres("gpu", "", 8),), options=enroot.options(pyxis_layout.folder))
    with SlurmCluster(config, pyxis_layout) as cluster:
        yield cluster


@pytest.fixture
def jobs(pyxis_cluster: SlurmCluster, folder: Path) -> Iterator[Jobs]:
    """Jobs of alice. A test fails if pyxis or enroot have kept a container of theirs."""
    yield Jobs(pyxis_cluster, folder, "alice")
    argv = ["bash", "-c", "ls -d /run/pyxis/*/data/* /run/pyxis/*/*.squashfs 2>/dev/null; true"]

    def kept() -> str:
        return "".join(pyxis_cluster.run(argv, host=host).stdout for host in pyxis_cluster.config.nodes)

    wait_until(lambda: not kept(), kept, 60)


@pytest.fixture
def container(archive: Path) -> dict[str, Any]:
    return {"runtime": "pyxis", "image": str(enroot.image(archive))}


def spec(container: dict[str, Any], *services: dict[str, Any]) -> str:
    return yaml.safe_dump({"slurm": SLURM, "container": container, "services": list(services)})


def service(name: str, **more: Any) -> dict[str, Any]:
    """A service with an image that has only busybox."""
    return {"name": name, "image": str(enroot.service_image()), "run": ["sh", "-c", RUN], **more}


def test_the_built_in_check(jobs: Jobs, container: dict[str, Any]) -> None:
    job = jobs.run(spec(container))
    assert job.code == "0:0", job.log
    assert "2 nodes, 16 GPUs, 4 CPUs" in job.log


def test_exit_code_and_commands_from_outside(jobs: Jobs, container: dict[str, Any]) -> None:
    run = "echo started; until [[ -e go ]]; do sleep 0.1; done; exit 5"
    job = jobs.submit(spec(container), ["bash", "-c", run])
    jobs.wait_for(job, "\nstarted\n")
    (line,) = [line for line in jobs.log(job).splitlines() if "] attach: " in line]
    attach = ["bash", "-c", line.partition("] attach: ")[2]]
    wait_until(
        lambda: "Autoscaler status" in jobs.cluster.run(attach, "alice").stdout, lambda: jobs.log(job), 60
    )
    (jobs.folder / "go").touch()
    assert jobs.wait_end(job).code == "5:0"


def test_no_image(jobs: Jobs, container: dict[str, Any]) -> None:
    job = jobs.run(spec({**container, "image": "/none.sqsh"}))
    assert job.code == "66:0", job.log
    assert "No such file or directory: /none.sqsh" in job.log


def test_services_with_an_image(jobs: Jobs, container: dict[str, Any]) -> None:
    """They restart, end with the job, and run where they are to run."""
    ready = {"run": "test -e web-$NODE_RANK"}
    one = service("one", where="head", run=["sh", "-c", "echo $SLURMD_NODENAME >one; sleep 1000"])
    run = (HAS_STARTED % 1) + "touch end-1; " + (HAS_STARTED % 2) + "touch end-1; " + (HAS_STARTED % 3)
    job = jobs.run(
        spec(container, service("web", restarts=2, ready=ready), one), ["bash", "-c", run + "cat one"]
    )
    assert job.code == "0:0", job.log
    assert "\nnode1\n" in job.log
    assert "service web exited with 7 on node2: restart 2 of 2" in job.log
    assert (jobs.folder / "web-0").read_text() == "started\n"
    output = (job.run / "logs/service-web@node2.log").read_text()
    assert output.count("alice\n") == 3
    assert "python3" not in output.partition("alice\n")[2].partition("usr\n")[0]


def test_the_end_of_a_service_ends_the_job(jobs: Jobs, container: dict[str, Any]) -> None:
    run = (HAS_STARTED % 1) + "touch end-1; sleep 1000"
    job = jobs.run(spec(container, service("web")), ["bash", "-c", run])
    assert job.code == "70:0", job.log
    assert "node2: service web exited with 7" in job.last_line


def test_no_image_for_a_service(jobs: Jobs, container: dict[str, Any]) -> None:
    job = jobs.run(spec(container, service("web", image="/none.sqsh")), ["sleep", "1000"])
    assert job.code == "70:0", job.log
    assert "the step of service web ended, srun exited with 1" in job.last_line
    assert "No such file or directory: /none.sqsh" in job.log


def test_scancel_with_services(jobs: Jobs, container: dict[str, Any]) -> None:
    job = jobs.submit(spec(container, service("web")), ["bash", "-c", "echo started; exec sleep 1000"])
    jobs.wait_for(job, "\nstarted\n")
    assert jobs.cluster.run(["scancel", str(job)], "alice").returncode == 0
    assert jobs.wait_end(job).code == "143:0"


@pytest.mark.parametrize("process", ["setsid", "start"])
def test_a_killed_service(jobs: Jobs, container: dict[str, Any], process: str) -> None:
    """The service itself, or the task of its step."""
    job = jobs.submit(spec(container, service("web")), ["bash", "-c", "echo started; exec sleep 1000"])
    jobs.wait_for(job, "\nstarted\n")
    pattern = {"setsid": "^sh service-web", "start": "^sh -c"}[process]
    pids = jobs.cluster.run(["pgrep", "--oldest", "-f", pattern], host="node2").stdout.split()
    assert pids
    jobs.cluster.run(["kill", "-KILL", *pids], host="node2")
    ended = jobs.wait_end(job)
    assert ended.code == "70:0", ended.log
