"""Measures how nodes get an image that none of them has: each pulls it, or one does (container.stage).

usage: python -m bench.images [--hosts 8] [--rates 0,50] [--repeat 1]
Run it from the checkout, on an idle machine; `--help` explains the options. It needs root and the same
programs as `slurmray rehearse`.

Each measurement is a job on newly booted hosts of a real Slurm with Podman, whose stores are empty. The
registry is `scripts/registry.py` on the host of the login node; the image is that of the rehearsal. The hosts
are namespaces of this machine, so they share its CPUs and its disk.
"""

from __future__ import annotations

import argparse
import itertools
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import NamedTuple

from bench.boot import describe_machine, exit_at_sigterm, log, render, wait_idle
from slurmray.rehearsal import machine
from slurmray.rehearsal.cluster.layout import Layout
from slurmray.rehearsal.cluster.slurm_cluster import SlurmCluster
from slurmray.rehearsal.cluster.slurm_conf import LOGIN, ClusterConfig
from slurmray.rehearsal.images import ray_image, suites
from slurmray.slurm.run_directories import read_events
from slurmray.spec.container import DEFAULT_IMAGE

REGISTRY = Path(__file__).with_name("scripts") / "registry.py"
PORT = 5000
# Podman wants TLS of a registry.
PODMAN = """#!/bin/bash
verb=$1
shift
[[ $verb != pull ]] || set -- --tls-verify=false "$@"
exec podman "$verb" "$@"
"""
STAGES = {"node": "each node pulls", "shared": "one node pulls, `stage: shared`"}
JOB_TIMEOUT = 900  # seconds


class Measured(NamedTuple):
    """Seconds until the last node had the image, and megabytes that the registry has sent."""

    seconds: float
    megabytes: float


@contextmanager
def serve(cluster: SlurmCluster, archive: Path, rate: float) -> Iterator[str]:
    """Run the registry on the login host; yield its address."""
    argv = cluster.argv(["python3", str(cluster.folder / REGISTRY.name), str(archive), str(PORT), str(rate)])
    registry = subprocess.Popen(argv)
    try:
        address = f"{LOGIN}:{PORT}"
        url = f"http://{address}/v2/"
        fetch = f"import urllib.request as u, time\nfor _ in range(600):\n try: u.urlopen('{url}'); break\n"
        cluster.run(["python3", "-c", f"{fetch} except OSError: time.sleep(.1)"])
        yield address
    finally:
        registry.kill()
        registry.wait()


def measure(cluster: SlurmCluster, stage: str, hosts: int, address: str) -> Measured:
    """Run one job."""
    podman = cluster.folder / "podman"
    podman.write_text(PODMAN)
    podman.chmod(0o755)
    settings: dict[str, object] = {"name": stage, "slurm.nodes": hosts, "slurm.cpus_per_task": 1}
    settings |= {"slurm.time": 30, "container.runtime": "podman", "container.command": podman}
    settings |= {"container.image": f"{address}/ray:1", "container.shm_size": "1g", "container.stage": stage}
    (cluster.folder / "job.sh").write_text(render(settings, ["true"]))
    job = cluster.sbatch("job.sh", args=["--output=%j.out"])
    _, code = cluster.wait(job, JOB_TIMEOUT)
    text = (cluster.folder / f"{job}.out").read_text(errors="replace")
    if code != "0:0":
        raise SystemExit(f"the job failed: {code}\n{text}")
    events = read_events(cluster.folder / f"slurmray-runs/{job}-0")
    times = [event["time"] for event in events if event.get("step") == "image"]
    ask = f"import urllib.request as u; print(u.urlopen('http://{address}/sent').read().decode())"
    sent = cluster.run(["python3", "-c", ask]).stdout
    return Measured(max(times) - events[0]["time"], int(sent) / 1e6)


def table(results: Mapping[tuple[float, str], Sequence[Measured]]) -> str:
    """Markdown table of the medians, with the ratio to the first way in brackets."""
    lines = [
        "| registry's link | way | all nodes have the image, s | sent by the registry, MB |",
        "|---|---|---|---|",
    ]
    for (rate, stage), runs in results.items():
        seconds, sent = (median(values) for values in zip(*runs, strict=True))
        base = median(run.seconds for run in results[rate, "node"])
        link = f"{rate:g} MB/s" if rate else "not limited"
        lines.append(f"| {link} | {STAGES[stage]} | {seconds:.0f} ({seconds / base:.2f}) | {sent:.0f} |")
    return "\n".join(lines)


def main() -> None:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--hosts", type=int, default=8, help="nodes of the job (default: 8)")
    parser.add_argument(
        "--rates", default="0,50", help="MB/s of the registry's link; 0: not limited (default: 0,50)"
    )
    parser.add_argument("--repeat", type=int, default=1, help="measurements of each way (default: 1)")
    options = parser.parse_args()
    exit_at_sigterm()
    cache = machine.cache_folder()
    archive, root = ray_image.archive(cache, DEFAULT_IMAGE, log), suites.hosts_root(cache, None, log)
    nodes = tuple(f"node{number}" for number in range(1, options.hosts + 1))
    results: dict[tuple[float, str], list[Measured]] = {}
    about = ""
    rates = [float(rate) for rate in options.rates.split(",")]
    for _, rate, stage in itertools.product(range(options.repeat), rates, STAGES):
        wait_idle()
        with tempfile.TemporaryDirectory(prefix="slurmray-images-") as name:
            folder = Path(name)
            folder.chmod(0o755)
            (folder / REGISTRY.name).write_bytes(REGISTRY.read_bytes())
            layout = Layout(folder, root=root, files=[archive])
            with (
                SlurmCluster(ClusterConfig(nodes), layout) as cluster,
                serve(cluster, archive, rate) as address,
            ):
                about = about or describe_machine(cluster)
                run = measure(cluster, stage, options.hosts, address)
        log(f"{rate:g} MB/s, {STAGES[stage]}: {run.seconds:.1f} s, {run.megabytes:.0f} MB")
        results.setdefault((rate, stage), []).append(run)
    print(f"{about}; {options.hosts} hosts, medians of {options.repeat}.\n\n{table(results)}")


if __name__ == "__main__":
    main()
