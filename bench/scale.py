"""What slurmray itself costs at many hosts, with a Ray and a runtime that cost nothing, on a real Slurm.

usage: python -m bench.scale [--hosts 2,8,32,64] [--repeat 3] [--jobs 30] [--json FILE]
       python -m bench.scale --simulate 1024,4096 [--seconds 30] [--repeat 3] [--json FILE]
From the checkout, on a machine where nothing else runs.

The first form needs root and Slurm, as `slurmray rehearse` does: hosts are namespaces of this machine, the
runtime is `none`, Ray is `stand_in_ray`. Each way is a job on the same hosts; they take turns. Seconds are
counted from the batch script's start, that is from when its output file appears. CPU seconds are those of
all processes on all hosts, slurmctld included. Requests are what slurmctld has received, by sdiag. --jobs:
afterwards so many jobs of slurmray, one after another, on the largest number of hosts.

The second form measures the controller alone, see `simulate`; it needs neither root nor Slurm.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import re
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from bench import simulate, stand_in_ray
from bench.boot import say, settle, until
from slurmray.loading.load import load_spec
from slurmray.rehearsal import machine
from slurmray.rehearsal.cluster.config import Cluster
from slurmray.rehearsal.cluster.lab import Lab
from slurmray.rehearsal.cluster.layout import Layout
from slurmray.rehearsal.images import suites
from slurmray.rendering.script import render_script

SCRIPTS = Path(__file__).with_name("scripts")
BARE, ECHO, SLURMRAY = "bare", "echo", "slurmray"
WAYS = {
    BARE: "one srun that starts Ray, a probe, no checks",
    ECHO: "one srun that starts nothing",
    SLURMRAY: "slurmray",
}
OVER = re.compile(r"(?:done|failed|stopped)\b.*\n\Z")  # the last line of a job's output
JOB_LIMIT = 180  # seconds
QUIET = 1.0  # seconds without a request, after which a job has ended on all hosts
OWN_REQUESTS = ("REQUEST_STATS_INFO", "REQUEST_STATS_RESET")  # of sdiag


class Measured(NamedTuple):
    """One job.

    first_line: seconds. cpu_first, cpu_all: CPU seconds until then, and until all hosts have ended the job.
    requests: RPC type -> how many of them slurmctld has received.
    """

    first_line: float
    cpu_first: float
    cpu_all: float
    requests: dict[str, int]


def cpu_seconds(stats: Sequence[str], root: int) -> float:
    """CPU time of a process and all that ever ran below it. stats: texts of proc_pid_stat(5).

    That of a process which has ended is in its parent, or in whoever waited for it in the parent's place:
    in a namespace its first process.
    """
    parents, ticks = {}, {}
    for text in stats:
        pid, _, rest = text.partition(" ")
        fields = rest.rpartition(")")[2].split()
        parents[int(pid)] = int(fields[1])
        ticks[int(pid)] = sum(map(int, fields[11:15]))
    total, found = 0, {root}
    while found:
        total += sum(ticks.get(pid, 0) for pid in found)
        found = {pid for pid, parent in parents.items() if parent in found}
    return total / os.sysconf("SC_CLK_TCK")


def cpu_seconds_of(lab: Lab) -> float:
    """CPU time of all processes of a rehearsal's hosts since they were booted."""
    stats = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            stats.append(path.read_text(errors="replace"))
        except OSError:  # it has ended meanwhile
            continue
    return cpu_seconds(stats, lab.first_process)


def parse_sdiag(text: str) -> dict[str, int]:
    """{RPC type: count} of what `sdiag` prints, without its own."""
    part = text.partition("statistics by message type")[2].partition(
        "Remote Procedure Call statistics by user"
    )[0]
    found = re.findall(r"^\s*(\w+)\s*\(\s*\d+\)\s*count:(\d+)", part, re.MULTILINE)
    return {name: int(count) for name, count in found if name not in OWN_REQUESTS}


def write_scripts(folder: Path, sizes: Sequence[int]) -> None:
    """Put into the submit folder what the jobs need; slurmray's script once for each number of hosts."""
    stand_in_ray.install(folder / "python")
    for name in ("scale_trainer.sh", "scale_bare.sh", "scale_echo.sh"):
        shutil.copy(SCRIPTS / name, folder)
    for size in sizes:
        settings = {"name": SLURMRAY, "slurm.nodes": size, "slurm.cpus_per_task": 1, "slurm.time": 10}
        settings |= {"container.runtime": "none"}
        spec = load_spec(
            None, [(field, str(value)) for field, value in settings.items()], ["bash", "scale_trainer.sh"]
        )
        (folder / f"slurmray-{size}.sh").write_text(render_script(spec))


def submit(lab: Lab, way: str, size: int) -> tuple[int, Path]:
    """Submit a job; its number, and where its output will be."""
    script = f"slurmray-{size}.sh" if way == SLURMRAY else f"scale_{way}.sh"
    python = lab.folder / "python"
    export = (
        f"--export=ALL,PYTHONPATH={python},PATH={python}/bin:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"
    )
    job = lab.sbatch(script, args=[f"--nodes={size}", export, "--output=%j.out"])
    return job, lab.folder / f"{job}.out"


def measure(lab: Lab, way: str, size: int) -> Measured:
    """Run one job and count what it takes. Nothing asks slurmctld about it before it has ended."""
    lab.run(["sdiag", "--reset"])
    idle = cpu_seconds_of(lab)
    job, output = submit(lab, way, size)
    until(output.exists, 30, f"{way} did not start")
    start = time.time()
    cpu_first = None
    deadline = time.monotonic() + JOB_LIMIT
    while not OVER.search(text := output.read_text(errors="replace")):
        if cpu_first is None and "trainer began" in text:
            cpu_first = cpu_seconds_of(lab) - idle
        if time.monotonic() > deadline:
            raise SystemExit(f"{way} on {size} hosts has not ended after {JOB_LIMIT} s:\n{text}")
        time.sleep(0.01)
    before: dict[str, int] = {}
    requests = parse_sdiag(lab.run(["sdiag"]).stdout)
    while requests != before:
        time.sleep(QUIET)
        before, requests = requests, parse_sdiag(lab.run(["sdiag"]).stdout)
    cpu_all = cpu_seconds_of(lab) - idle
    state, code = lab.wait(job, 30)
    began = re.search(r"trainer began (\S+)", text)
    if code != "0:0" or not began or cpu_first is None:
        raise SystemExit(f"{way} on {size} hosts failed: {state} {code}\n{text}")
    return Measured(float(began[1]) - start, cpu_first, cpu_all, requests)


def run_series(lab: Lab, jobs: int, size: int) -> int:
    """How many of so many jobs of slurmray complete, one after another. Of the others the output is shown."""
    completed = 0
    for number in range(1, jobs + 1):
        job, output = submit(lab, SLURMRAY, size)
        state, code = lab.wait(job, JOB_LIMIT)
        if (state, code) == ("COMPLETED", "0:0"):
            completed += 1
        else:
            say(f"job {number} of {jobs}: {state} {code}\n{output.read_text(errors='replace')}")
    return completed


def medians(runs: Sequence[Measured]) -> Measured:
    """The median of each figure."""
    types = sorted(set().union(*(run.requests for run in runs)))
    requests = {name: round(median(run.requests.get(name, 0) for run in runs)) for name in types}
    first, cpu_first, cpu_all = (median(run[place] for run in runs) for place in range(3))  # type: ignore[type-var]
    return Measured(first, cpu_first, cpu_all, requests)  # type: ignore[arg-type]


def table(results: dict[tuple[int, str], list[Measured]]) -> str:
    """Medians as Markdown, with their ratio to the bare way in brackets."""
    lines = [
        "| hosts | way | trainer's first line, s | CPU seconds until then | in all | requests to slurmctld |",
        "|---|---|---|---|---|---|",
    ]
    found = {key: medians(runs) for key, runs in results.items()}
    for (size, way), one in found.items():
        base = found.get((size, BARE), one)
        pairs = [(one[place], base[place]) for place in range(3)]
        cells = [f"{value:.1f} ({value / reference:.1f})" for value, reference in pairs]  # type: ignore[operator]
        lines.append(f"| {size} | {WAYS[way]} | {' | '.join(cells)} | {sum(one.requests.values())} |")
    return "\n".join(lines)


def requests_table(results: dict[tuple[int, str], list[Measured]]) -> str:
    """Requests to slurmctld by type as Markdown: `bare / slurmray` for each number of hosts."""
    found = {key: medians(runs).requests for key, runs in results.items()}
    sizes = list(dict.fromkeys(size for size, _ in found))
    types = sorted({name for (_, way), counts in found.items() if way != ECHO for name in counts})
    lines = [f"| request, bare / slurmray | {' | '.join(f'{size} hosts' for size in sizes)} |"]
    lines.append("|---" * (len(sizes) + 1) + "|")
    for name in types:
        cells = [
            " / ".join(str(found.get((size, way), {}).get(name, 0)) for way in (BARE, SLURMRAY))
            for size in sizes
        ]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def run_hosts(options: argparse.Namespace) -> dict[str, Any]:
    """The form with a real Slurm; prints as it goes, and returns what goes into the JSON file."""
    machine.require("none", own_slurm=True, builds=False)
    nodes = tuple(f"node{index}" for index in range(1, max(options.hosts) + 1))
    results: dict[tuple[int, str], list[Measured]] = {}
    found: dict[str, Any] = {"machine": about()}
    with tempfile.TemporaryDirectory(prefix="slurmray-scale-") as name:
        folder = Path(name)
        write_scripts(folder, options.hosts)
        root = suites.hosts_root(machine.cache_folder(), None, say)
        with Lab(Cluster(nodes), Layout(folder, "none", root=root)) as lab:
            turns = itertools.product(options.hosts, range(options.repeat), WAYS)
            try:
                for size, repetition, way in turns:
                    if not options.busy:
                        settle()
                    one = measure(lab, way, size)
                    results.setdefault((size, way), []).append(one)
                    say(f"{size} hosts, {way}, {repetition + 1}: {one}")
                if options.jobs:
                    size = max(options.hosts)
                    found["series"] = {"jobs": options.jobs, "completed": run_series(lab, options.jobs, size)}
                found["left_over"] = lab.left_over()
            finally:
                print(f"{found['machine']}\n")
                print(f"{table(results)}\n\n{requests_table(results)}", flush=True)
    if "series" in found:
        print(
            f"\n{found['series']['completed']} of {options.jobs} jobs on {max(options.hosts)} hosts completed"
        )
    print(
        "\n".join(["", "left on the hosts:", *found["left_over"]]) if found["left_over"] else "", flush=True
    )
    found["results"] = [
        {"hosts": size, "way": way, "runs": [run._asdict() for run in runs]}
        for (size, way), runs in results.items()
    ]
    return found


def run_simulation(options: argparse.Namespace) -> dict[str, Any]:
    """The form with simulated nodes."""
    found = {}
    with tempfile.TemporaryDirectory(prefix="slurmray-simulation-") as folder:
        for nodes in options.simulate:
            if not options.busy:
                settle()
            found[nodes] = simulate.measure(Path(folder), nodes, options.seconds, options.repeat)
            say(f"{nodes} simulated nodes: {found[nodes]}")
    print(f"{about()}\n\n{simulate.table(found)}", flush=True)
    return {"machine": about(), "simulation": found}


def about() -> str:
    """What the figures were measured on."""
    cpu = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    python = ".".join(map(str, sys.version_info[:3]))
    return (
        f"{os.cpu_count()} CPUs ({cpu[1] if cpu else 'unknown'}), Linux {os.uname().release}, Python {python}"
    )


def numbers(text: str) -> list[int]:
    """`2,8` as a list."""
    return [int(each) for each in text.split(",")]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.scale")
    parser.add_argument("--hosts", type=numbers, default=[2, 8, 32, 64])
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=0)
    parser.add_argument("--simulate", type=numbers, metavar="NODES")
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--busy", action="store_true", help="do not wait until the machine is idle")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))  # as `timeout` ends it
    found = run_simulation(options) if options.simulate else run_hosts(options)
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
