"""A run directory that cannot be used, and a secret that is not set: found before Ray starts."""

from __future__ import annotations

import pytest

from slurmray.rehearsal.cluster.slurm_cluster import SlurmCluster

from .case import Fault

ROW = "the run directory cannot be used"


@pytest.mark.fault(ROW)
def test_not_shared(fault: Fault, cluster: SlurmCluster) -> None:
    fault.submit(["true"], run_dir="/var/tmp/runs")
    fault.wait_for_log("node2            run directory")
    cluster.wait(fault.job, 60)
    cluster.run(["rm", "-r", "/var/tmp/runs"], host="node1")
    job = fault.wait_end()
    assert job.code == "65:0", job.log
    assert "is not the folder of the head node" in job.last_line
    assert "ray: head at" not in job.log


@pytest.mark.fault(ROW)
def test_not_writable(fault: Fault) -> None:
    fault.submit(["true"], run_dir="/var/lib/runs")
    job = fault.wait_end("cannot make the run directory /var/lib/runs/")
    assert job.code == "64:0", job.log


@pytest.mark.fault(ROW)
@pytest.mark.full
def test_not_writable_on_one_node(fault: Fault, cluster: SlurmCluster) -> None:
    runs = fault.jobs.folder / "runs"
    runs.mkdir(mode=0o1777)
    runs.chmod(0o1777)
    bound = cluster.run(
        ["bash", "-c", f"mount --bind {runs} {runs} && mount -o remount,bind,ro {runs}"], host="node2"
    )
    assert bound.returncode == 0, bound.stderr
    try:
        fault.submit(["true"], run_dir="runs")
        job = fault.wait_end("node2            run directory")
    finally:
        cluster.run(["umount", str(runs)], host="node2")
    assert job.code == "65:0", job.log
    assert "ray: head at" not in job.log


@pytest.mark.fault(ROW)
def test_full(fault: Fault, cluster: SlurmCluster) -> None:
    small = "mkdir -p /run/runs && mount -t tmpfs -o size=64k,mode=1777 tmpfs /run/runs"
    fill = f"{small}; head -c 1M /dev/zero >/run/runs/x"
    cluster.run(["bash", "-c", fill], host="node1")
    try:
        fault.submit(["true"], run_dir="/run/runs")
        job = fault.wait_end("cannot write to the run directory /run/runs/")
    finally:
        cluster.run(["umount", "/run/runs"], host="node1")
    assert job.code == "65:0", job.log


@pytest.mark.fault("a secret is missing")
def test_a_secret(fault: Fault) -> None:
    fault.submit(["true"], env={"NO_SUCH_SECRET": None}, container={"image": "docker.io/none/such:1"})
    job = fault.wait_end("env.NO_SUCH_SECRET is not set where the job was submitted")
    assert job.code == "64:0", job.log
    assert "image" not in job.log
