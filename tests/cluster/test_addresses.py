"""Hosts that are known by IPv4 only, by IPv6 only, IPv6 first, and both."""

from __future__ import annotations

import re
from pathlib import Path

from slurmray.rehearsal.lab import Lab

from .jobs import Jobs

V4, V6 = r"10\.77\.\d+\.\d+", r"\[fd77::[0-9a-f:]+\]"


def test_every_way_to_know_a_host(addressed_lab: Lab, folder: Path) -> None:
    jobs = Jobs(addressed_lab, folder)
    addresses = addressed_lab.cluster.addresses
    job = jobs.run()
    assert "2 nodes, 0 GPUs, 4 CPUs" in job.log
    assert re.search(f"head at {V6 if addresses == 'v6' else V4}:[0-9]+,", job.log), job.log
    if addresses == "both":
        job = jobs.run("slurm: {nodes: 2, cpus_per_task: 2}\nnetwork: {family: ipv6}")
        assert "2 nodes, 0 GPUs, 4 CPUs" in job.log
        assert re.search(f"head at {V6}:[0-9]+,", job.log), job.log
