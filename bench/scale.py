"""Measures the overhead of slurmray on many hosts of a real Slurm, with a stand-in for Ray.

usage: python -m bench.scale [--hosts 2,8,32,64] [--repeat 3] [--jobs 30] [--json FILE]
       python -m bench.scale --simulate 1024,4096 [--seconds 30] [--repeat 3] [--json FILE]
Run it from the checkout, on an idle machine; `--help` explains the options.

The first form needs root and Slurm, like `slurmray rehearse`: hosts are namespaces of this machine, the
runtime is `none`, Ray is `stand_in_ray`. Each way is a job on the same hosts; they take turns. Times start
when the batch script's output file appears. CPU seconds are those of all processes on all hosts, with
slurmctld. Requests are RPCs that slurmctld has received, from sdiag.

The second form measures only the controller, see `simulate`; it needs neither root nor Slurm.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from bench import simulate, stand_in_ray
from bench.boot import exit_at_sigterm, log, render, wait_idle, wait_until
from slurmray.rehearsal import machine
from slurmray.rehearsal.cluster.layout import Layout
from slurmray.rehearsal.cluster.slurm_cluster import SlurmCluster
from slurmray.rehearsal.cluster.slurm_conf import ClusterConfig
from slurmray.rehearsal.images import suites

SCRIPTS = Path(__file__).with_name("scripts")
BARE, ECHO, SLURMRAY = "bare", "echo", "slurmray"
WAYS = {
    BARE: "one srun that starts Ray, a probe, no checks",
    ECHO: "one srun that starts nothing",
    SLURMRAY: "slurmray",
}
LAST_LINE = re.compile(r"(?:done|failed|stopped)\b.*\n\Z")  # the last line of a job's output
JOB_TIMEOUT = 180  # seconds
QUIET = 1.0  # seconds without a request: then the job has ended on all hosts
SDIAG_REQUESTS = ("REQUEST_STATS_INFO", "REQUEST_STATS_RESET")


class Measured(NamedTuple):
    """Measurements of one job.

    first_line: seconds. cpu_first, cpu_all: CPU seconds until then, and until the job has ended on all hosts.
    requests: RPC type -> number of RPCs that slurmctld has received.
    """

    first_line: float
    cpu_first: float
    cpu_all: float
    requests: dict[str, int]


def cpu_seconds(stats: Sequence[str], root: int) -> float:
    """CPU seconds of a process and all its descendants, also ended ones. stats: texts of proc_pid_stat(5).

    The kernel adds the time of an ended process to the process that has reaped it.
    """
    parents, ticks = {}, {}
    for stat in stats:
        pid, _, rest = stat.partition(" ")
        fields = rest.rpartition(")")[2].split()
        parents[int(pid)] = int(fields[1])
        ticks[int(pid)] = sum(map(int, fields[11:15]))
    total, pids = 0, {root}
    while pids:
        total += sum(ticks.get(pid, 0) for pid in pids)
        pids = {pid for pid, parent in parents.items() if parent in pids}
    return total / os.sysconf("SC_CLK_TCK")


def read_cpu_seconds(cluster: SlurmCluster) -> float:
    """CPU seconds of all processes of the hosts since they were booted."""
    stats = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            stats.append(path.read_text(errors="replace"))
        except OSError:  # it has ended
            continue
    return cpu_seconds(stats, cluster.first_process)


def parse_sdiag(output: str) -> dict[str, int]:
    """RPC type -> count in the output of `sdiag`, without the RPCs of sdiag."""
    part = output.partition("statistics by message type")[2].partition(
        "Remote Procedure Call statistics by user"
    )[0]
    counts = re.findall(r"^\s*(\w+)\s*\(\s*\d+\)\s*count:(\d+)", part, re.MULTILINE)
    return {name: int(count) for name, count in counts if name not in SDIAG_REQUESTS}


def write_scripts(folder: Path, sizes: Sequence[int]) -> None:
    """Write the jobs' files into the submit folder, with a script of slurmray for each number of hosts."""
    stand_in_ray.install(folder / "python")
    for name in ("scale_trainer.sh", "scale_bare.sh", "scale_echo.sh"):
        shutil.copy(SCRIPTS / name, folder)
    for size in sizes:
        settings = {"name": SLURMRAY, "slurm.nodes": size, "slurm.cpus_per_task": 1, "slurm.time": 10}
        settings |= {"container.runtime": "none"}
        (folder / f"slurmray-{size}.sh").write_text(render(settings, ["bash", "scale_trainer.sh"]))


def submit(cluster: SlurmCluster, way: str, size: int) -> tuple[int, Path]:
    """Submit a job; return its id and the path of its output."""
    script = f"slurmray-{size}.sh" if way == SLURMRAY else f"scale_{way}.sh"
    export = stand_in_export(cluster.folder / "python")
    job = cluster.sbatch(script, args=[f"--nodes={size}", export, "--output=%j.out"])
    return job, cluster.folder / f"{job}.out"


def stand_in_export(python: Path) -> str:
    """Return the option of sbatch with which jobs use the stand-in for Ray in this folder."""
    return f"--export=ALL,PYTHONPATH={python},PATH={python}/bin:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"


def measure(cluster: SlurmCluster, way: str, size: int) -> Measured:
    """Run one job and measure it. Sends no request to slurmctld before the job has ended."""
    cluster.run(["sdiag", "--reset"])
    idle = read_cpu_seconds(cluster)
    job, output = submit(cluster, way, size)
    wait_until(output.exists, 30, f"{way} did not start")
    start = time.time()
    cpu_first = None
    deadline = time.monotonic() + JOB_TIMEOUT
    while not LAST_LINE.search(text := output.read_text(errors="replace")):
        if cpu_first is None and "trainer began" in text:
            cpu_first = read_cpu_seconds(cluster) - idle
        if time.monotonic() > deadline:
            raise SystemExit(f"{way} on {size} hosts did not end within {JOB_TIMEOUT} s:\n{text}")
        time.sleep(0.01)
    before: dict[str, int] = {}
    requests = parse_sdiag(cluster.run(["sdiag"]).stdout)
    while requests != before:
        time.sleep(QUIET)
        before, requests = requests, parse_sdiag(cluster.run(["sdiag"]).stdout)
    cpu_all = read_cpu_seconds(cluster) - idle
    state, code = cluster.wait(job, 30)
    began = re.search(r"trainer began (\S+)", text)
    if code != "0:0" or not began or cpu_first is None:
        raise SystemExit(f"{way} on {size} hosts failed: {state} {code}\n{text}")
    return Measured(float(began[1]) - start, cpu_first, cpu_all, requests)


def run_series(cluster: SlurmCluster, jobs: int, size: int) -> int:
    """Run jobs of slurmray one after another; return how many complete, and log the output of the others."""
    completed = 0
    for number in range(1, jobs + 1):
        job, output = submit(cluster, SLURMRAY, size)
        state, code = cluster.wait(job, JOB_TIMEOUT)
        if (state, code) == ("COMPLETED", "0:0"):
            completed += 1
        else:
            log(f"job {number} of {jobs}: {state} {code}\n{output.read_text(errors='replace')}")
    return completed


def medians(runs: Sequence[Measured]) -> Measured:
    """The median of each value."""
    types = sorted(set().union(*(run.requests for run in runs)))
    requests = {name: round(median(run.requests.get(name, 0) for run in runs)) for name in types}
    first, cpu_first, cpu_all = (median(run[place] for run in runs) for place in range(3))  # type: ignore[type-var]
    return Measured(first, cpu_first, cpu_all, requests)  # type: ignore[arg-type]


def table(results: dict[tuple[int, str], list[Measured]]) -> str:
    """Markdown table of the medians, with their ratio to the bare way in brackets."""
    lines = [
        "| hosts | way | trainer's first line, s | CPU seconds until then | in all | requests to slurmctld |",
        "|---|---|---|---|---|---|",
    ]
    summaries = {key: medians(runs) for key, runs in results.items()}
    for (size, way), summary in summaries.items():
        base = summaries.get((size, BARE), summary)
        pairs = [(summary[place], base[place]) for place in range(3)]
        cells = [f"{value:.1f} ({value / reference:.1f})" for value, reference in pairs]  # type: ignore[operator]
        lines.append(f"| {size} | {WAYS[way]} | {' | '.join(cells)} | {sum(summary.requests.values())} |")
    return "\n".join(lines)


def requests_table(results: dict[tuple[int, str], list[Measured]]) -> str:
    """Markdown table of requests to slurmctld by type: `bare / slurmray` for each number of hosts."""
    summaries = {key: medians(runs).requests for key, runs in results.items()}
    sizes = list(dict.fromkeys(size for size, _ in summaries))
    types = sorted({name for (_, way), counts in summaries.items() if way != ECHO for name in counts})
    lines = [f"| request, bare / slurmray | {' | '.join(f'{size} hosts' for size in sizes)} |"]
    lines.append("|---" * (len(sizes) + 1) + "|")
    for name in types:
        cells = [
            " / ".join(str(summaries.get((size, way), {}).get(name, 0)) for way in (BARE, SLURMRAY))
            for size in sizes
        ]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def run_hosts(options: argparse.Namespace) -> dict[str, Any]:
    """Measure on a real Slurm and print the tables; return the content of the JSON file."""
    machine.require("none", own_slurm=True, builds=False)
    nodes = tuple(f"node{index}" for index in range(1, max(options.hosts) + 1))
    results: dict[tuple[int, str], list[Measured]] = {}
    data: dict[str, Any] = {"machine": describe_machine()}
    with tempfile.TemporaryDirectory(prefix="slurmray-scale-") as name:
        folder = Path(name)
        write_scripts(folder, options.hosts)
        root = suites.hosts_root(machine.cache_folder(), None, log)
        with SlurmCluster(ClusterConfig(nodes), Layout(folder, "none", root=root)) as cluster:
            turns = itertools.product(options.hosts, range(options.repeat), WAYS)
            try:
                for size, repetition, way in turns:
                    if not options.busy:
                        wait_idle()
                    measured = measure(cluster, way, size)
                    results.setdefault((size, way), []).append(measured)
                    log(f"{size} hosts, {way}, {repetition + 1}: {measured}")
                if options.jobs:
                    size = max(options.hosts)
                    data["series"] = {
                        "jobs": options.jobs,
                        "completed": run_series(cluster, options.jobs, size),
                    }
                data["leftovers"] = cluster.leftovers()
            finally:
                print(f"{data['machine']}\n")
                print(f"{table(results)}\n\n{requests_table(results)}", flush=True)
    if "series" in data:
        print(
            f"\n{data['series']['completed']} of {options.jobs} jobs on {max(options.hosts)} hosts completed"
        )
    print(
        "\n".join(["", "leftovers on the hosts:", *data["leftovers"]]) if data["leftovers"] else "",
        flush=True,
    )
    data["results"] = [
        {"hosts": size, "way": way, "runs": [run._asdict() for run in runs]}
        for (size, way), runs in results.items()
    ]
    return data


def run_simulation(options: argparse.Namespace) -> dict[str, Any]:
    """Measure with simulated nodes and print the table; return the content of the JSON file."""
    results = {}
    with tempfile.TemporaryDirectory(prefix="slurmray-simulation-") as folder:
        for nodes in options.simulate:
            if not options.busy:
                wait_idle()
            results[nodes] = simulate.measure(Path(folder), nodes, options.seconds, options.repeat)
            log(f"{nodes} simulated nodes: {results[nodes]}")
    print(f"{describe_machine()}\n\n{simulate.table(results)}", flush=True)
    return {"machine": describe_machine(), "simulation": results}


def describe_machine() -> str:
    """Hardware and versions of the measurement."""
    cpu = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    python = ".".join(map(str, sys.version_info[:3]))
    return (
        f"{os.cpu_count()} CPUs ({cpu[1] if cpu else 'unknown'}), Linux {os.uname().release}, Python {python}"
    )


def integers(text: str) -> list[int]:
    """Parse comma-separated integers, for example `2,8`."""
    return [int(number) for number in text.split(",")]


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench.scale",
        description="Measure the overhead of slurmray on many hosts of a real Slurm, or, with --simulate, of "
        "its controller with simulated nodes.",
    )
    parser.add_argument(
        "--hosts",
        type=integers,
        default=[2, 8, 32, 64],
        metavar="N,N",
        help="numbers of hosts (default: 2,8,32,64)",
    )
    parser.add_argument("--repeat", type=int, default=3, help="measurements of each kind (default: 3)")
    parser.add_argument(
        "--jobs",
        type=int,
        default=0,
        help="then run so many jobs of slurmray in a row, on the largest number of hosts (default: 0)",
    )
    parser.add_argument(
        "--simulate",
        type=integers,
        metavar="N,N",
        help="numbers of simulated nodes; needs no root and no Slurm",
    )
    parser.add_argument(
        "--seconds", type=float, default=30, help="how long the trainer of a simulation runs (default: 30)"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all measurements to a file")
    parser.add_argument("--busy", action="store_true", help="do not wait until the machine is idle")
    options = parser.parse_args()
    exit_at_sigterm()
    data = run_simulation(options) if options.simulate else run_hosts(options)
    if options.json:
        options.json.write_text(json.dumps(data, indent=1) + "\n")


if __name__ == "__main__":
    main()
