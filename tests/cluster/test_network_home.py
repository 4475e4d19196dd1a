"""A home on a network file system: root cannot enter it (root_squash), and its server may stall."""

from __future__ import annotations

import dataclasses
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from slurmray.rehearsal.cluster.layout import Layout
from slurmray.rehearsal.cluster.slurm_cluster import SlurmCluster
from slurmray.rehearsal.cluster.slurm_conf import ClusterConfig

from .jobs import HANG, Jobs, wait_until

USER = "alice"


@dataclasses.dataclass
class Home:
    """A shared folder that alice can enter, but root cannot. servers: its file systems, in nsenter."""

    cluster: SlurmCluster
    folder: Path
    servers: list[subprocess.Popen[bytes]]


@pytest.fixture(scope="module")
def home(docker_layout: Layout, share: Path) -> Iterator[Home]:
    """Two hosts with Docker, and a home of alice."""
    folder = share / "network-home"
    folder.mkdir(mode=0o755)
    home_folder = folder / "home"
    python = [Path(path) for path in (sys.prefix, sys.base_prefix) if path != "/usr"]
    layout = dataclasses.replace(docker_layout, copy_on_write=python)
    with SlurmCluster(ClusterConfig(cpus=2), layout) as cluster:
        cluster.run(["install", "-d", "-m", "700", "-o", USER, str(home_folder), str(home_folder / "work")])
        cluster.run(["chmod", "755", str(home_folder / "work")])
        program = shutil.copy(Path(__file__).with_name("root_squash_fs.py"), folder)
        argv = [sys.executable, str(program), str(home_folder)]
        servers = [subprocess.Popen(cluster.argv(argv, None, host)) for host in cluster.config.hosts]
        try:
            wait_until(
                lambda: (
                    not any(
                        cluster.run(["mountpoint", str(home_folder)], host=host).returncode
                        for host in cluster.config.hosts
                    )
                ),
                lambda: "nothing is mounted",
                20,
            )
            yield Home(cluster, home_folder, servers)
        finally:
            for host in cluster.config.hosts:
                cluster.run(["umount", "--lazy", str(home_folder)], host=host)
            for server in servers:
                server.terminate()
                server.wait(20)


@pytest.mark.full
def test_a_home_that_root_cannot_enter(home: Home) -> None:
    cluster, home_folder = home.cluster, home.folder
    work = home_folder / "work"
    there = cluster.run(["ls", str(work)], host="node1")
    assert there.returncode != 0, "root can enter the folder, so the test proves nothing"
    (work / "data").mkdir()
    (work / "data/file").write_text("read by the trainer\n")
    spec = "slurm: {nodes: 2, cpus_per_task: 1, mem: 1G}\ncontainer: {mounts: ['data:/data:ro', data]}\n"
    trainer = ["bash", "-c", "pwd; cat data/file; echo written >result"]
    code, log = run(cluster, work, spec.replace("'data:/data:ro', ", ""), trainer)
    assert code == "0:0", log
    assert f"{work}\nread by the trainer\n" in log
    result = work / "result"
    assert (result.read_text(), result.stat().st_uid) == ("written\n", work.stat().st_uid)
    code, log = run(cluster, work, spec, trainer)
    assert code == "65:0", log
    assert f"root of docker cannot enter {home_folder}" in log


@pytest.mark.full
def test_a_home_that_stalls(home: Home) -> None:
    """For longer than the heartbeat timeout, while run directory and log are in it."""
    jobs = Jobs(home.cluster, home.folder / "work", USER)
    trainer = ["bash", "-c", "echo started; sleep 80; echo ended"]
    number = jobs.submit("slurm: {nodes: 2, cpus_per_task: 1, mem: 1G}", trainer)
    jobs.wait_for(number, "\nstarted\n")
    for server in home.servers:
        child = Path(f"/proc/{server.pid}/task/{server.pid}/children").read_text()
        os.kill(int(child), signal.SIGSTOP)  # nsenter then stops itself
    try:
        time.sleep(60)
    finally:
        for server in home.servers:
            server.send_signal(signal.SIGCONT)  # nsenter passes it on
    _, code = home.cluster.wait(number, HANG)
    log = jobs.log(number)
    assert code == "0:0", log
    assert "\nended\n" in log
    wait_until(lambda: not leftovers(home.cluster), lambda: "\n".join(leftovers(home.cluster)), 15)


def run(cluster: SlurmCluster, work: Path, spec: str, trainer: Sequence[str]) -> tuple[str, str]:
    """Run a job; return its exit code and log when only the file server still runs."""
    jobs = Jobs(cluster, work, USER)
    number = jobs.submit(spec, trainer)
    _, code = cluster.wait(number, HANG)
    wait_until(lambda: not leftovers(cluster), lambda: "\n".join(leftovers(cluster)), 15)
    return code, jobs.log(number)


def leftovers(cluster: SlurmCluster) -> list[str]:
    return [line for line in cluster.leftovers() if "root_squash_fs.py" not in line]
