"""Hosts with only IPv4, only IPv6, and both in either order."""

from __future__ import annotations

import re
from pathlib import Path

from slurmray.rehearsal.cluster import slurm_conf
from slurmray.rehearsal.cluster.slurm_cluster import SlurmCluster

from .jobs import Jobs

V4, V6 = r"10\.77\.\d+\.\d+", r"\[fd77::[0-9a-f:]+\]"
HOSTS = {
    "v4": ["10.77.0.3"],
    "v6": ["fd77::3"],
    "v6-first": ["fd77::3", "10.77.0.3"],
    "both": ["10.77.0.3", "fd77::3"],
}


def test_host_names_resolve_to_all_addresses(addressed_cluster: SlurmCluster) -> None:
    done = addressed_cluster.run(["srun", "-N2", "-n1", "getent", "ahosts", "node2"])
    found = list(dict.fromkeys(line.split()[0] for line in done.stdout.splitlines()))
    assert found == HOSTS[addressed_cluster.config.addresses]


def test_each_address_family(addressed_cluster: SlurmCluster, folder: Path) -> None:
    jobs = Jobs(addressed_cluster, folder)
    addresses = addressed_cluster.config.addresses
    if addresses != "both":  # which prefers IPv4, as most tests do
        job = jobs.run()
        assert "2 nodes, 0 GPUs, 4 CPUs" in job.log
        assert re.search(f"head at {V6 if addresses == 'v6' else V4}:[0-9]+,", job.log), job.log
    if addresses == "both":
        proxy = "env: {http_proxy: 'http://127.0.0.1:9'}"
        job = jobs.run(
            f"slurm: {{nodes: 2, cpus_per_task: 2}}\nnetwork: {{family: ipv6}}\n{proxy}",
            ["python3", "-c", "import os, ray; ray.init(); print(len(ray.nodes()), os.environ['no_proxy'])"],
        )
        direct = re.findall("^2 (.*)", job.log, re.MULTILINE)[0].split(",")
        known = [slurm_conf.addresses(addressed_cluster.config, f"node{number}") for number in (1, 2)]
        assert {"node1", "node2", *(each for node in known for each in node)} <= set(direct), job.log
        assert re.search(f"head at {V6}:[0-9]+,", job.log), job.log
    else:
        subnet = "fd77::/16" if addresses == "v6" else "10.77.0.0/16"
        job = jobs.run(f"slurm: {{nodes: 2, cpus_per_task: 2}}\nnetwork: {{subnet: '{subnet}'}}", ["true"])
        assert job.code == "0:0", job.log
        assert re.search(f"head at {V6 if addresses == 'v6' else V4}:[0-9]+,", job.log), job.log
    job = jobs.run("slurm: {nodes: 2, cpus_per_task: 2}\nnetwork: {subnet: 192.0.2.0/24}", ["true"])
    assert job.code == "65:0", job.log
    assert "no usable address in 192.0.2.0/24; found" in job.last_line, job.log
