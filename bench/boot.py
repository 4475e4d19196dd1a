"""How long until the trainer runs and until every host is clean: slurmray and three other ways, on one Slurm.

usage: python -m bench.boot [--hosts 2 3 4] [--repeat 3] [--ways bare slurmray]
From the checkout; it needs what `slurmray rehearse` needs. Every script goes through a real sbatch on the
same hosts with the same image; the ways take turns. Seconds are counted from the batch script's start, that
is from the moment its output file appears. What was measured is printed at the end, also where the run is cut
short. CPU seconds are the whole machine's.
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
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import NamedTuple

from slurmray.loading.load import load_spec
from slurmray.rehearsal.cluster.config import Cluster, Gres
from slurmray.rehearsal.cluster.lab import Lab
from slurmray.rehearsal.cluster.layout import Layout
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
JOB_LIMIT = 400  # seconds for one job: `ray stop` alone takes 100 of them under symmetric-run
CLEAN_LIMIT = 15  # seconds after the job's end; what is left then stays


class Measured(NamedTuple):
    """Seconds after the batch script's start; clean is None where something was left for good.

    busy is in CPU seconds of the whole machine, from there to the first line.
    """

    first_line: float
    clean: float | None
    containers_left: int
    busy: float


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def write_scripts(folder: Path, sizes: Sequence[int]) -> None:
    """Put into the submit folder what the jobs need; slurmray's script once for each number of nodes."""
    folder.chmod(0o755)  # the image's user is not the submitter
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
        spec = load_spec(
            None,
            [(path, str(value)) for path, value in settings.items()],
            ["python3", "trainer.py", str(size)],
        )
        (folder / f"slurmray-{size}.sh").write_text(render_script(spec))
        unchecked = spec.model_copy(update={"preflight": "none"})
        (folder / f"unchecked-{size}.sh").write_text(render_script(unchecked))


def measure(lab: Lab, way: str, size: int) -> Measured:
    """Run one job and watch it and its hosts to the end."""
    script = f"{way}-{size}.sh" if way in {"slurmray", "unchecked"} else f"{way}.sh"
    job = lab.sbatch(
        script, args=[f"--nodes={size}", f"--export=ALL,IMAGE={DEFAULT_IMAGE}", "--output=%j.out"]
    )
    output = lab.folder / f"{job}.out"
    until(output.exists, 30, f"{script} did not start")
    start, busy = time.time(), busy_seconds(Path("/proc/stat").read_text())
    state, code = lab.wait(job, JOB_LIMIT)
    text = output.read_text(errors="replace")
    began = re.search(r"trainer began (\S+)\n(cpu .*)", text)
    if code != "0:0" or not began or f"trainer sees {size} nodes, {8 * size} GPUs" not in text:
        raise SystemExit(f"{script} failed: {state} {code}\n{text}")
    deadline = time.monotonic() + CLEAN_LIMIT
    while (left := lab.left_over()) and time.monotonic() < deadline:
        time.sleep(0.05)
    containers = sum(": Podman container " in text for text in left)
    clean = None if left else time.time() - start
    return Measured(float(began[1]) - start, clean, containers, busy_seconds(began[2]) - busy)


def until(true: Callable[[], bool], limit: float, failure: str) -> None:
    """Wait for something, looking every hundredth of a second."""
    deadline = time.monotonic() + limit
    while not true():
        if time.monotonic() > deadline:
            raise SystemExit(failure)
        time.sleep(0.01)


def settle() -> None:
    """Wait until the CPUs have been idle for two seconds: with few of them, Ray's start is bound by them."""

    def idle() -> float:
        return float(Path("/proc/uptime").read_text().split()[1])

    for _ in range(300):
        before = idle()
        time.sleep(2)
        if idle() - before > 0.9 * 2 * (os.cpu_count() or 1):
            return
    raise SystemExit("other programs keep this machine busy: measure when it is idle")


def sweep(lab: Lab) -> None:
    """Remove what a way has left, so that the next one starts on clean hosts."""
    for host in lab.pids:
        lab.run(["podman", "rm", "--all", "--force", "--time", "0"], host=host)
    deadline = time.monotonic() + 60
    while left := lab.left_over():
        if time.monotonic() > deadline:
            raise SystemExit(f"cannot be cleaned: {left}")
        time.sleep(0.2)


def busy_seconds(stat: str) -> float:
    """What the machine's CPUs have worked since it was booted: user, nice and system of proc_stat(5)."""
    return sum(map(int, stat.split()[1:4])) / os.sysconf("SC_CLK_TCK")


def table(results: dict[tuple[str, int], list[Measured]]) -> str:
    """Medians, with their ratio to the first way in brackets, as a Markdown table of what was measured.

    Behind the CPU seconds: how much that is of what all CPUs could have done in that time.
    """
    lines = [
        "| hosts | way | trainer's first line, s | CPU seconds until then | job over, hosts clean, s |",
        "|---|---|---|---|---|",
    ]
    ways = list(dict.fromkeys(way for way, _ in results))
    for size in dict.fromkeys(size for _, size in results):
        bare = results[ways[0], size]
        first_base = median(one.first_line for one in bare)
        clean_base = median(one.clean or 0 for one in bare)
        for way in ways:
            if not (runs := results.get((way, size))):
                continue
            first = median(one.first_line for one in runs)
            row = f"| {size} | {WAYS[way]} | {first:.1f} ({first / first_base:.2f}) | "
            busy = median(one.busy for one in runs)
            row += f"{busy:.1f} ({busy / first / (os.cpu_count() or 1):.0%}) | "
            clean = [one.clean for one in runs if one.clean is not None]
            if len(clean) == len(runs):
                ratio = f" ({median(clean) / clean_base:.2f})" if clean_base else ""
                row += f"{median(clean):.1f}{ratio} |"
            else:
                row += f"never: {max(one.containers_left for one in runs)} containers left |"
            lines.append(row)
    return "\n".join(lines)


def report(about: str, results: dict[tuple[str, int], list[Measured]], options: argparse.Namespace) -> str:
    """The table, and what it is of."""
    done = sum(len(runs) for runs in results.values())
    whole = len(options.hosts) * len(options.ways) * options.repeat
    medians = f"medians of {options.repeat}"
    if done < whole:
        medians = f"PARTIAL, cut short after {done} of {whole} runs: medians of {options.repeat} or fewer"
    head = f"{about}; {medians}, ratios to the first way in brackets."
    return f"{head}\n\n{table(results)}"


def machine(lab: Lab) -> str:
    """What the figures were measured on."""
    cpu = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    slurm = lab.run(["slurmctld", "-V"]).stdout.split()[-1]
    podman = lab.run(["podman", "--version"]).stdout.split()[-1]
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return (
        f"Slurm {slurm}, Podman {podman}, Ray {ray_image.RAY_VERSION}; {os.cpu_count()} CPUs "
        f"({cpu[1] if cpu else platform.machine()}), {memory:.0f} GiB, Linux {platform.release()}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.boot")
    parser.add_argument("--hosts", type=int, nargs="+", default=[2, 3, 4])
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=list(WAYS))
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))  # as `timeout` ends it
    require("podman", own_slurm=True, builds=True)
    cache = cache_folder()
    store = stores.podman_store(cache, ray_image.archive(cache, DEFAULT_IMAGE, say), say)
    nodes = tuple(f"node{index}" for index in range(1, max(options.hosts) + 1))
    results: dict[tuple[str, int], list[Measured]] = {}
    with tempfile.TemporaryDirectory(prefix="slurmray-bench-") as folder:
        write_scripts(Path(folder), options.hosts)
        layout = Layout(Path(folder), store=store, root=suites.hosts_root(cache, None, say))
        with Lab(Cluster(nodes, gres=(Gres("gpu", "", 8),)), layout) as lab:
            about = machine(lab)
            turns = itertools.product(range(options.repeat), options.hosts, options.ways)
            try:
                for turn, size, way in turns:
                    settle()
                    one = measure(lab, way, size)
                    results.setdefault((way, size), []).append(one)
                    clean = f"{one.clean:.1f} s" if one.clean else f"never ({one.containers_left} containers)"
                    say(f"{turn + 1}: {way}, {size} hosts: {one.first_line:.1f} s, clean {clean}")
                    sweep(lab)
            finally:
                print(report(about, results, options), flush=True)


if __name__ == "__main__":
    main()
