"""Docker, whose daemon is root, with a home on a file system where root is nobody."""

from __future__ import annotations

import dataclasses
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from slurmray.rehearsal.cluster.config import Cluster
from slurmray.rehearsal.cluster.lab import Lab
from slurmray.rehearsal.cluster.layout import Layout

from .jobs import HANG, Jobs, wait_until

USER = "alice"


@pytest.fixture
def home(docker_layout: Layout, folder: Path) -> Iterator[tuple[Lab, Path]]:
    """Two hosts with Docker, and on all of them a folder that only alice can enter, and not even root."""
    made = folder / "home"
    python = [Path(path) for path in (sys.prefix, sys.base_prefix) if path != "/usr"]
    layout = dataclasses.replace(docker_layout, copy_on_write=python)
    with Lab(Cluster(cpus=2), layout) as lab:
        lab.run(["install", "-d", "-m", "700", "-o", USER, str(made), str(made / "work")])
        lab.run(["chmod", "755", str(made / "work")])
        words = [sys.executable, str(shutil.copy(Path(__file__).with_name("squash.py"), folder)), str(made)]
        servers = [subprocess.Popen(lab.argv(words, None, host)) for host in lab.cluster.hosts]
        try:
            wait_until(
                lambda: (
                    not any(
                        lab.run(["mountpoint", str(made)], host=host).returncode for host in lab.cluster.hosts
                    )
                ),
                lambda: "nothing is mounted",
                20,
            )
            yield lab, made
        finally:
            for host in lab.cluster.hosts:
                lab.run(["umount", "--lazy", str(made)], host=host)
            for server in servers:
                server.terminate()
                server.wait(20)


@pytest.mark.full
def test_a_home_that_root_cannot_enter(home: tuple[Lab, Path]) -> None:
    lab, made = home
    work = made / "work"
    there = lab.run(["ls", str(work)], host="node1")
    assert there.returncode != 0, "root is not nobody here"
    (work / "data").mkdir()
    (work / "data/file").write_text("read by the trainer\n")
    spec = "slurm: {nodes: 2, cpus_per_task: 1, mem: 1G}\ncontainer: {mounts: ['data:/data:ro', data]}\n"
    trainer = ["bash", "-c", "pwd; cat data/file; echo written >result"]
    code, log = run(lab, work, spec.replace("'data:/data:ro', ", ""), trainer)
    assert code == "0:0", log
    assert f"{work}\nread by the trainer\n" in log
    result = work / "result"
    assert (result.read_text(), result.stat().st_uid) == ("written\n", work.stat().st_uid)
    code, log = run(lab, work, spec, trainer)
    assert code == "65:0", log
    assert f"root of docker cannot enter {made}" in log


def run(lab: Lab, work: Path, spec: str, trainer: Sequence[str]) -> tuple[str, str]:
    """Exit code and log of a job; only the file server is left afterwards."""
    jobs = Jobs(lab, work, USER)
    number = jobs.submit(spec, trainer)
    _, code = lab.wait(number, HANG)
    wait_until(lambda: not left(lab), lambda: "\n".join(left(lab)), 15)
    return code, jobs.log(number)


def left(lab: Lab) -> list[str]:
    return [line for line in lab.left_over() if "squash.py" not in line]
