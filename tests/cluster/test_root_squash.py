"""Docker, whose daemon runs as root, with a home on a file system with root_squash."""

from __future__ import annotations

import dataclasses
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from slurmray.rehearsal.cluster.config import ClusterConfig
from slurmray.rehearsal.cluster.layout import Layout
from slurmray.rehearsal.cluster.slurm_cluster import SlurmCluster

from .jobs import HANG, Jobs, wait_until

USER = "alice"


@pytest.fixture
def home(docker_layout: Layout, folder: Path) -> Iterator[tuple[SlurmCluster, Path]]:
    """Two hosts with Docker, and a shared folder that alice can enter, but root cannot."""
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
            yield cluster, home_folder
        finally:
            for host in cluster.config.hosts:
                cluster.run(["umount", "--lazy", str(home_folder)], host=host)
            for server in servers:
                server.terminate()
                server.wait(20)


@pytest.mark.full
def test_a_home_that_root_cannot_enter(home: tuple[SlurmCluster, Path]) -> None:
    cluster, home_folder = home
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


def run(cluster: SlurmCluster, work: Path, spec: str, trainer: Sequence[str]) -> tuple[str, str]:
    """Run a job; return its exit code and log when only the file server still runs."""
    jobs = Jobs(cluster, work, USER)
    number = jobs.submit(spec, trainer)
    _, code = cluster.wait(number, HANG)
    wait_until(lambda: not leftovers(cluster), lambda: "\n".join(leftovers(cluster)), 15)
    return code, jobs.log(number)


def leftovers(cluster: SlurmCluster) -> list[str]:
    return [line for line in cluster.leftovers() if "root_squash_fs.py" not in line]
