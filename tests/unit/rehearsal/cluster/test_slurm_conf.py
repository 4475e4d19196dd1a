"""Configuration files of a rehearsal's cluster."""

from __future__ import annotations

from dataclasses import replace

import pytest

from slurmray.rehearsal.cluster import slurm_conf
from slurmray.rehearsal.cluster.slurm_conf import ClusterConfig, Gres


def test_slurm_conf() -> None:
    gres = (Gres("gpu", "h100", 8), Gres("nvme", "", 2))
    cluster = ClusterConfig(absent=("bad",), gres=gres, features=("a",), options={"KillWait": "5"})
    text = slurm_conf.slurm_conf(cluster)
    assert "KillWait=5\n" in text
    assert "KillWait=30" not in text
    assert "GresTypes=gpu,nvme\n" in text
    assert "NodeName=node2 CPUs=4 " in text
    assert " Gres=gpu:h100:8,nvme:2 Feature=a\n" in text
    assert "PartitionName=batch Nodes=node1,node2,bad Default=YES " in text
    assert slurm_conf.gres_conf(cluster) == (
        "Name=gpu Type=h100 File=/dev/rehearsal-gpu-h100[0-7]\nName=nvme Count=2\n"
    )
    assert slurm_conf.gres_devices(cluster)[-1] == "/dev/rehearsal-gpu-h1007"


@pytest.mark.parametrize(("confined", "plugin"), [(False, "disabled"), (True, "cgroup/v1")])
def test_cgroup_conf(confined: bool, plugin: str) -> None:
    cluster = ClusterConfig(confined=confined)
    kind = "cgroup" if confined else "linuxproc"
    assert f"ProctrackType=proctrack/{kind}\n" in slurm_conf.slurm_conf(cluster)
    text = slurm_conf.etc_files(cluster, 24, {}, "/root")["slurm/cgroup.conf"]
    assert f"CgroupPlugin={plugin}\n" in text
    assert ("ConstrainRAMSpace=yes\n" in text) == confined


def test_addresses_are_in_the_order_of_name_resolution() -> None:
    both = replace(ClusterConfig(), addresses="both")
    assert slurm_conf.addresses(both, "node1") == ["10.77.0.2", "fd77::2"]
    assert slurm_conf.addresses(replace(both, addresses="v6-first"), "login") == ["fd77::1", "10.77.0.1"]
