"""Measures what samples of the nodes (`watch.interval`) cost while a trainer runs, on many hosts.

usage: python -m bench.watch [--hosts 64] [--intervals 0,30,5] [--seconds 120] [--busy]
Run it from the checkout, as root, on an idle machine. Slurm is real; its hosts are namespaces of this
machine, the runtime is `none`, Ray is `stand_in_ray`, and nvidia-smi a shell script that prints what the real
one does about 8 GPUs. The time that the real one needs comes on top of it.

CPU seconds are those of all processes on all hosts, with slurmctld. 0: without samples. Memory is that of the
agent's own processes on one host, the last, at the end of the measurement: node agent, guard and container
process. Proportional: of pages that several processes share, on all hosts, only the share of each counts.
"""

from __future__ import annotations

import argparse
import re
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from bench import stand_in_ray
from bench.boot import exit_at_sigterm, log, render, wait_idle, wait_until
from bench.scale import describe_machine, integers, read_cpu_seconds, stand_in_export
from slurmray.rehearsal import machine
from slurmray.rehearsal.cluster.layout import Layout
from slurmray.rehearsal.cluster.slurm_cluster import SlurmCluster
from slurmray.rehearsal.cluster.slurm_conf import ClusterConfig, Gres
from slurmray.rehearsal.images import suites
from tests import nvidia_smi
from tests.cluster.faults.case import GUARD, NODE_AGENT

GPUS = 8
# In the format of nvidia-smi 580.159.04 (recorded with an H200).
SAMPLES = "".join(
    f'echo "GPU-{number}, 97, 99824, 660.32, 1755, 61, 143771, 700.00, 0x0000000000000000, 0, 0, 16"\n'
    for number in range(GPUS)
)
NVIDIA_SMI = f"""#!/bin/sh
case $1 in *utilization*)
{SAMPLES};; esac
{nvidia_smi.script(*(nvidia_smi.gpu(f"GPU-{number}") for number in range(GPUS)))}
"""
SETTLE = 20.0  # seconds after the trainer's first line
START_TIMEOUT = 240  # seconds
JOB_TIMEOUT = 120  # seconds, for its end


class Used(NamedTuple):
    """CPU seconds of all hosts, and KiB of memory of the agent on one."""

    cpu: float
    resident: int
    proportional: int


def read_memory(cluster: SlurmCluster, host: str) -> tuple[int, int]:
    """Resident and proportional memory of the agent's processes on a host, in KiB."""
    script = 'for pid in $(pgrep --full "$1"); do cat "/proc/$pid/smaps_rollup"; done'
    shown = cluster.run(["bash", "-c", script, "-", f"{NODE_AGENT}|{GUARD}"], host=host).stdout
    resident, proportional = (
        sum(map(int, re.findall(rf"^{name}: +(\d+) kB$", shown, re.MULTILINE))) for name in ("Rss", "Pss")
    )
    return resident, proportional


def measure(cluster: SlurmCluster, interval: int, seconds: float) -> Used:
    """Run a job; return what its hosts use in so many seconds in which its trainer sleeps."""
    folder, hosts = cluster.folder, len(cluster.config.nodes)
    settings = {
        **{"name": "watch", "slurm.nodes": hosts, "slurm.cpus_per_task": 1, "slurm.time": 30},
        **{"slurm.gpus_per_node": GPUS, "container.accelerator": "nvidia", "container.runtime": "none"},
        **{"preflight": "none", "watch.interval": interval, "watch.stall": 0},
        "setup": f"export PATH={folder}/bin:$PATH SLURMRAY_ACCELERATOR=",
    }
    trainer = ["bash", "-c", "echo trainer began; until [[ -e go ]]; do sleep 1; done"]
    (folder / "job.sh").write_text(render(settings, trainer))
    job = cluster.sbatch("job.sh", args=[stand_in_export(folder / "python"), "--output=%j.out"])
    output = folder / f"{job}.out"
    wait_until(lambda: output.exists() and "trainer began" in output.read_text(), START_TIMEOUT, "no trainer")
    time.sleep(SETTLE)
    before = read_cpu_seconds(cluster)
    time.sleep(seconds)
    used = Used(read_cpu_seconds(cluster) - before, *read_memory(cluster, cluster.config.nodes[-1]))
    (folder / "go").touch()
    state, code = cluster.wait(job, JOB_TIMEOUT)
    (folder / "go").unlink()
    if code != "0:0":
        raise SystemExit(f"the job is {state} {code}\n{output.read_text()}")
    return used


def table(results: Mapping[int, Used], hosts: int, seconds: float) -> str:
    """Markdown table of the CPU time, and of what it is more than without samples, and of the memory."""
    lines = [
        "| watch.interval, s | CPU seconds | of a core on each host | more than without samples "
        "| memory on a host, MiB | proportional |",
        "|---|---|---|---|---|---|",
    ]
    base = results.get(0)
    for interval, used in results.items():
        share = 100 * used.cpu / seconds / hosts
        more = "" if base is None else f"{share - 100 * base.cpu / seconds / hosts:.3f} %"
        memory = f"{used.resident / 1024:.1f} | {used.proportional / 1024:.1f}"
        lines.append(f"| {interval} | {used.cpu:.1f} | {share:.3f} % | {more} | {memory} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench.watch",
        description="Measure what samples of the nodes, and the agent's memory, cost while a trainer runs.",
    )
    parser.add_argument("--hosts", type=int, default=64, help="number of hosts (default: 64)")
    parser.add_argument(
        "--intervals",
        type=integers,
        default=[0, 30, 5],
        metavar="N,N",
        help="values of watch.interval (default: 0,30,5)",
    )
    parser.add_argument("--seconds", type=float, default=120, help="of each measurement (default: 120)")
    parser.add_argument("--busy", action="store_true", help="do not wait until the machine is idle")
    options = parser.parse_args()
    exit_at_sigterm()
    machine.require("none", own_slurm=True, builds=False)
    nodes = tuple(f"node{number}" for number in range(1, options.hosts + 1))
    config = ClusterConfig(nodes, gres=(Gres("gpu", "", GPUS),))
    results: dict[int, Used] = {}
    with tempfile.TemporaryDirectory(prefix="slurmray-watch-") as name:
        folder = Path(name)
        stand_in_ray.install(folder / "python")
        (folder / "bin").mkdir()
        program = folder / "bin/nvidia-smi"
        program.write_text(NVIDIA_SMI)
        program.chmod(0o755)
        root = suites.hosts_root(machine.cache_folder(), None, log)
        with SlurmCluster(config, Layout(folder, "none", root=root)) as cluster:
            for node in nodes:
                cluster.run(["touch", "/dev/nvidiactl"], host=node)
            for interval in options.intervals:
                if not options.busy:
                    wait_idle()
                results[interval] = measure(cluster, interval, options.seconds)
                log(f"interval {interval}: {results[interval].cpu:.1f} CPU seconds")
    print(f"{describe_machine()}; {options.hosts} hosts, {options.seconds:.0f} s\n")
    print(table(results, options.hosts, options.seconds), flush=True)


if __name__ == "__main__":
    main()
