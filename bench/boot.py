"""Measures the time until the trainer runs and until all hosts are clean: slurmray and three other ways.

`python -m bench.boot --help` lists the options. Run it from the checkout; it needs the same programs as
`slurmray rehearse`. All scripts are submitted with a real sbatch, on the same hosts with the same image; the
ways take turns. Times start when the batch script's output file appears. CPU seconds are those of all
processes of the machine. The table is printed at the end, also if the run is interrupted; paste it into
docs/inside/figures.md, and draw its chart with bench.chart.

To compare with another commit, write its script for two hosts in a checkout of it, and pass it with --script:
python -c 'import pathlib, bench.boot; bench.boot.write_scripts(pathlib.Path("/tmp"), [2])'
"""

from __future__ import annotations

import argparse
import itertools
import os
import platform
import re
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import NamedTuple

from slurmray.loading.load import load_plan
from slurmray.rehearsal.cluster.layout import Layout
from slurmray.rehearsal.cluster.slurm_cluster import SlurmCluster
from slurmray.rehearsal.cluster.slurm_conf import ClusterConfig, Gres
from slurmray.rehearsal.images import ray_image, stores, suites
from slurmray.rehearsal.machine import cache_folder, require
from slurmray.rendering.script import render_script
from slurmray.spec.container import DEFAULT_IMAGE

SCRIPTS = Path(__file__).with_name("scripts")
WAYS = {
    "bare": "one srun, a probe, no checks",
    "slurmray": "slurmray",
    "unchecked": "slurmray with `preflight: none`",
    "symmetric-run": "`srun podman run … ray symmetric-run`",
    "verl": "the verl script's sequence",
}
SCRIPT = "script"  # the way of --script
JOB_TIMEOUT = 400  # seconds; with symmetric-run, `ray stop` alone takes 100
CLEANUP_TIMEOUT = 15  # seconds after the job's end; leftovers stay if they are still there


class Measured(NamedTuple):
    """Measurements of one job, in seconds since its batch script started.

    tasks: when a task of the trainer has run on each node. clean: when all hosts are clean; None if leftovers
    stay. busy: CPU seconds until the first line.
    """

    first_line: float
    tasks: float
    clean: float | None
    containers_left: int
    busy: float


def log(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def write_scripts(folder: Path, sizes: Sequence[int]) -> None:
    """Write the jobs' files into the submit folder, with a script of slurmray for each number of nodes."""
    folder.chmod(0o755)  # the container's user is not the submitter
    for path in SCRIPTS.iterdir():
        shutil.copy(path, folder)
    for size in sizes:
        settings = {
            "name": "slurmray",
            "slurm.nodes": size,
            "slurm.gpus_per_node": 8,
            "slurm.cpus_per_task": 4,
        }
        settings |= {"slurm.time": 10, "container.runtime": "podman", "container.shm_size": "8g"}
        trainer = ["python3", "trainer.py", str(size)]
        (folder / f"slurmray-{size}.sh").write_text(render(settings, trainer))
        unchecked = settings | {"preflight": "none"}
        (folder / f"unchecked-{size}.sh").write_text(render(unchecked, trainer))


def render(settings: Mapping[str, object], trainer: Sequence[str]) -> str:
    """Return the script of a job. settings: field of the job spec -> value."""
    fields = [(field, str(value)) for field, value in settings.items()]
    return render_script(load_plan(None, fields, trainer))


def measure(cluster: SlurmCluster, way: str, size: int) -> Measured:
    """Run one job, and wait until its hosts are clean."""
    script = f"{way}-{size}.sh" if way in {"slurmray", "unchecked", SCRIPT} else f"{way}.sh"
    job = cluster.sbatch(
        script, args=[f"--nodes={size}", f"--export=ALL,IMAGE={DEFAULT_IMAGE}", "--output=%j.out"]
    )
    output = cluster.folder / f"{job}.out"
    wait_until(output.exists, 30, f"{script} did not start")
    start, busy = time.time(), busy_seconds(Path("/proc/stat").read_text())
    state, code = cluster.wait(job, JOB_TIMEOUT)
    text = output.read_text(errors="replace")
    began = re.search(r"trainer began (\S+)\n(cpu .*)", text)
    done = re.search(r"tasks done (\S+)\n", text)
    if code != "0:0" or not began or not done or f"trainer sees {size} nodes, {8 * size} GPUs" not in text:
        raise SystemExit(f"{script} failed: {state} {code}\n{text}")
    deadline = time.monotonic() + CLEANUP_TIMEOUT
    while (leftovers := cluster.leftovers()) and time.monotonic() < deadline:
        time.sleep(0.05)
    containers = sum(": Podman container " in leftover for leftover in leftovers)
    clean = None if leftovers else time.time() - start
    busy = busy_seconds(began[2]) - busy
    return Measured(float(began[1]) - start, float(done[1]) - start, clean, containers, busy)


def wait_until(condition: Callable[[], bool], timeout: float, failure: str) -> None:
    """Poll a condition every 10 ms; exit with `failure` after `timeout` seconds."""
    deadline = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > deadline:
            raise SystemExit(failure)
        time.sleep(0.01)


def wait_idle() -> None:
    """Wait until the CPUs have been idle for two seconds: with few CPUs, Ray's start is CPU-bound."""

    def idle() -> float:
        return float(Path("/proc/uptime").read_text().split()[1])

    for _ in range(300):
        before = idle()
        time.sleep(2)
        if idle() - before > 0.9 * 2 * (os.cpu_count() or 1):
            return
    raise SystemExit("other programs use the CPUs of this machine: measure when it is idle")


def remove_leftovers(cluster: SlurmCluster) -> None:
    """Remove the leftovers of a job, so that the next one starts on clean hosts."""
    for host in cluster.pids:
        cluster.run(["podman", "rm", "--all", "--force", "--time", "0"], host=host)
    deadline = time.monotonic() + 60
    while leftovers := cluster.leftovers():
        if time.monotonic() > deadline:
            raise SystemExit(f"leftovers cannot be removed: {leftovers}")
        time.sleep(0.2)


def busy_seconds(stat: str) -> float:
    """CPU seconds of the machine since boot: user, nice and system of proc_stat(5)."""
    return sum(map(int, stat.split()[1:4])) / os.sysconf("SC_CLK_TCK")


def table(results: dict[tuple[str, int], list[Measured]]) -> str:
    """Markdown table of the medians, with their ratio to the first way in brackets.

    That of CPU seconds is followed by the utilization of all CPUs until the first line.
    """
    lines = [
        "| hosts | way | trainer's first line, s | a task on each node, s | CPU seconds until the first line "
        "| job over, hosts clean, s |",
        "|---|---|---|---|---|---|",
    ]
    ways = list(dict.fromkeys(way for way, _ in results))
    for size in dict.fromkeys(size for _, size in results):
        baseline = results[ways[0], size]
        first_base = median(run.first_line for run in baseline)
        tasks_base = median(run.tasks for run in baseline)
        busy_base = median(run.busy for run in baseline)
        clean_base = median(run.clean or 0 for run in baseline)
        for way in ways:
            if not (runs := results.get((way, size))):
                continue
            first, tasks = median(run.first_line for run in runs), median(run.tasks for run in runs)
            row = f"| {size} | {WAYS.get(way, way)} | {first:.1f} ({first / first_base:.2f}) | "
            row += f"{tasks:.1f} ({tasks / tasks_base:.2f}) | "
            busy = median(run.busy for run in runs)
            row += f"{busy:.1f} ({busy / busy_base:.2f}; {busy / first / (os.cpu_count() or 1):.0%}) | "
            clean = [run.clean for run in runs if run.clean is not None]
            if len(clean) == len(runs):
                ratio = f" ({median(clean) / clean_base:.2f})" if clean_base else ""
                row += f"{median(clean):.1f}{ratio} |"
            else:
                row += f"never: {max(run.containers_left for run in runs)} containers left |"
            lines.append(row)
    return "\n".join(lines)


def report(machine: str, results: dict[tuple[str, int], list[Measured]], options: argparse.Namespace) -> str:
    """The table, below a line about the machine and the runs."""
    done = sum(len(runs) for runs in results.values())
    planned = len(options.hosts) * len(options.ways) * options.repeat
    medians = f"medians of {options.repeat}"
    if done < planned:
        medians = f"PARTIAL, interrupted after {done} of {planned} runs: medians of {options.repeat} or fewer"
    head = f"{machine}; {medians}, ratios to the first way in brackets."
    return f"{head}\n\n{table(results)}"


def describe_machine(cluster: SlurmCluster) -> str:
    """Versions and hardware of the measurement."""
    cpu = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    slurm = cluster.run(["slurmctld", "-V"]).stdout.split()[-1]
    podman = cluster.run(["podman", "--version"]).stdout.split()[-1]
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return (
        f"Slurm {slurm}, Podman {podman}, Ray {ray_image.RAY_VERSION}; {os.cpu_count()} CPUs "
        f"({cpu[1] if cpu else platform.machine()}), {memory:.0f} GiB, Linux {platform.release()}"
    )


def exit_at_sigterm() -> None:
    """End with SystemExit at SIGTERM, to print the results also after timeout(1)."""
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench.boot",
        description="Measure the time until the trainer runs, compared with other ways to start Ray.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument("--hosts", type=int, nargs="+", default=[2, 3, 4], help="numbers of hosts")
    parser.add_argument("--repeat", type=int, default=3, help="jobs of each way on each number of hosts")
    parser.add_argument(
        "--ways", nargs="+", choices=WAYS, default=list(WAYS), help="ways to start; ratios are to the first"
    )
    parser.add_argument(
        "--script",
        type=Path,
        help="script of another commit for one number of hosts, which becomes the first way",
    )
    options = parser.parse_args()
    if options.script:
        if len(options.hosts) != 1 or not options.script.is_file():
            parser.error("--script needs one number of hosts, and a file")
        options.ways.insert(0, SCRIPT)
    exit_at_sigterm()
    require("podman", own_slurm=True, builds=True)
    cache = cache_folder()
    store = stores.load("podman", cache, ray_image.archive(cache, DEFAULT_IMAGE, log), log)
    nodes = tuple(f"node{index}" for index in range(1, max(options.hosts) + 1))
    results: dict[tuple[str, int], list[Measured]] = {}
    with tempfile.TemporaryDirectory(prefix="slurmray-bench-") as folder:
        write_scripts(Path(folder), options.hosts)
        if options.script:
            shutil.copy(options.script, Path(folder) / f"{SCRIPT}-{options.hosts[0]}.sh")
        layout = Layout(Path(folder), store=store, root=suites.hosts_root(cache, None, log))
        with SlurmCluster(ClusterConfig(nodes, gres=(Gres("gpu", "", 8),)), layout) as cluster:
            description = describe_machine(cluster)
            turns = itertools.product(range(options.repeat), options.hosts, options.ways)
            try:
                for turn, size, way in turns:
                    wait_idle()
                    measured = measure(cluster, way, size)
                    results.setdefault((way, size), []).append(measured)
                    clean = (
                        f"{measured.clean:.1f} s"
                        if measured.clean
                        else f"never ({measured.containers_left} containers)"
                    )
                    log(f"{turn + 1}: {way}, {size} hosts: {measured.first_line:.1f} s, clean {clean}")
                    remove_leftovers(cluster)
            finally:
                print(report(description, results, options), flush=True)


if __name__ == "__main__":
    main()
