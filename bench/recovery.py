"""Measures the time from a failure to the first line of the trainer's next start: restart beside requeue.

usage: python -m bench.recovery [--hosts 2,8,32] [--cases power,container,raylet] [--ways requeue,restart]
           [--timeouts default,short] [--repeat 1] [--set PATH=VALUE] [--json FILE]
Run it from the checkout, on an idle machine; it needs the same programs as `slurmray rehearse` with Podman.
Goals: a restart takes at most 60 s after a power loss, 30 s after another failure, and 0.3 of a requeue.

Each measurement boots a Slurm of its own, with one host more than the trainer uses: the spare node of a
restart, or a free host for a requeue. Hosts that fail stay off. Up to 8 hosts have Podman and Ray; more have
no containers and a stand-in for Ray. They declare no GPUs: with those, Slurm 22.05 starts no step on other
nodes after a requeue.

The table is printed at the end, also if the run is interrupted; paste it into docs/inside/figures.md, and
draw its charts with bench.chart.
"""

from __future__ import annotations

import argparse
import itertools
import json
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from statistics import median
from typing import NamedTuple

from bench import stand_in_ray
from bench.boot import describe_machine, exit_at_sigterm, log, render, wait_idle
from bench.scale import integers, stand_in_export
from slurmray.errors import RehearsalError, SlurmrayError
from slurmray.rehearsal.cluster.layout import Layout
from slurmray.rehearsal.cluster.slurm_cluster import SlurmCluster
from slurmray.rehearsal.cluster.slurm_conf import ClusterConfig
from slurmray.rehearsal.images import ray_image, stores, suites
from slurmray.rehearsal.machine import cache_folder, require
from slurmray.slurm.run_directories import last_attempt, read_events
from slurmray.slurm.states import FINAL, Event, last_start
from slurmray.spec.container import DEFAULT_IMAGE
from tests.cluster.faults.case import CONTAINER_PROCESS, GUARD

TRAINER = Path(__file__).with_name("scripts") / "recovery_trainer.sh"
MOST_WITH_RAY = 8  # hosts; the CPUs of one machine start Ray on more of them one after the other
FAILURES = ("power", "container", "raylet")
# Way -> fields of the job spec.
WAYS: dict[str, dict[str, object]] = {
    "requeue": {"requeue.max": 1},
    "restart": {"spares": 1, "on_node_loss": "restart"},
}
# Options of slurm.conf. Slurm's own are 300 s for SlurmdTimeout and 120 s for cred_expire.
TIMEOUTS = {"default": {}, "short": {"SlurmdTimeout": "40", "AuthInfo": "cred_expire=15"}}
# Part of the time -> how it ends.
PARTS = {
    "detection": "the trainer is stopped",
    "stop": "all hosts but the failed one are clean, and the next start is asked for",
    "Slurm": "the batch script of the next attempt begins, at once with a restart",
    "checks": "a container can start on every node",
    "containers": "Ray can start in every container, and runs in that of the head node",
    "Ray": "every node is in Ray",
    "trainer": "the trainer's first line",
}
# Part -> the step in the event `nodes` that ends it.
STEPS = {"checks": "image", "containers": "container", "Ray": "ray"}
LINE = re.compile(r"^trainer (began|runs) (\d+\.\d+)\n", re.MULTILINE)
SETTLE = 20  # seconds after the trainer's first line, in which Ray's dashboard starts
START_TIMEOUT = 240  # seconds for the first start
NEXT_TIMEOUT = 900  # seconds; Slurm's default timeouts take 420 of them
PROGRESS = 30  # seconds between two lines about a job that is waited for

Parts = dict[str, float]  # in the order of PARTS, seconds


class Case(NamedTuple):
    """What is measured. failure, timeouts, way: see FAILURES, TIMEOUTS and WAYS."""

    hosts: int
    failure: str
    timeouts: str
    way: str

    @property
    def label(self) -> str:
        """The way, in tables and charts."""
        return self.way + (f", {self.timeouts} timeouts" if self.timeouts != "default" else "")


def split(failed: float, text: str, before: Sequence[Event], after: Sequence[Event]) -> Parts:
    """Return where the seconds from a failure to the trainer's second start went. RehearsalError: unknown.

    failed: when it happened, seconds since 1970. text: the job's log. before, after: events of the attempt
    that failed, and of the last one; the same for a restart.
    """
    lines = [(kind, float(seconds)) for kind, seconds in LINE.findall(text)]
    starts = [index for index, (kind, _) in enumerate(lines) if kind == "began"]
    if len(starts) != 2:
        raise RehearsalError(f"the trainer has started {len(starts)} times, not twice")
    late = [event for event in before if event["time"] > failed]
    asked = [event["time"] for event in late if event["event"] in ("restart", "requeue")]
    if not asked:
        raise RehearsalError("no event restart or requeue after the failure")
    nodes, start = last_start(after)
    ends = [failed, lines[starts[1] - 1][1], asked[0], start[0]["time"]]
    for step in STEPS.values():
        done = [event for event in start if event.get("step") == step and set(nodes) & set(event["nodes"])]
        if not done:
            raise RehearsalError(f"no event of the step {step} after the failure")
        ends.append(done[-1]["time"])
    ends.append(lines[starts[1]][1])
    pairs = itertools.pairwise(itertools.accumulate(ends, max))
    return {part: round(end - begin, 3) for part, (begin, end) in zip(PARTS, pairs, strict=True)}


def measure(cluster: SlurmCluster, case: Case, settings: Mapping[str, str]) -> Parts:
    """Run a job in which a worker node fails, until its trainer has started again. settings: see submit."""
    job = submit(cluster, case, settings)
    await_start(cluster, job, 1, START_TIMEOUT)
    time.sleep(SETTLE)
    runs = cluster.folder / "slurmray-runs"
    worker = last_start(read_events(runs / f"{job}-0"))[0][1]
    failed = time.time()
    cause(cluster, case.failure, worker)
    text = await_start(cluster, job, 2, NEXT_TIMEOUT)
    attempts = [read_events(runs / f"{job}-{number}") for number in (0, last_attempt(runs, str(job)))]
    return split(failed, text, *attempts)


def submit(cluster: SlurmCluster, case: Case, more: Mapping[str, str]) -> int:
    """Submit a job; return its id. more: field of the job spec -> value."""
    folder, runtime = cluster.folder, cluster.layout.runtime
    folder.chmod(0o755)  # the container's user is not the submitter
    shutil.copy(TRAINER, folder)
    settings = {"name": case.way, "slurm.nodes": case.hosts, "slurm.cpus_per_task": 1, "slurm.time": 30}
    settings |= {"container.runtime": runtime, **WAYS[case.way], **more}
    args = ["--output=%j.out"]
    if runtime == "none":
        stand_in_ray.install(folder / "python")
        args.append(stand_in_export(folder / "python"))
    else:
        settings["container.shm_size"] = "8g"
    (folder / "job.sh").write_text(render(settings, ["bash", TRAINER.name]))
    return cluster.sbatch("job.sh", args=args)


def await_start(cluster: SlurmCluster, job: int, number: int, timeout: float) -> str:
    """Wait until the trainer has started so many times; return the job's log. Logs the job's state."""
    output = cluster.folder / f"{job}.out"
    begun, state, looks = time.monotonic(), "", 1
    while True:
        text = output.read_text(errors="replace") if output.exists() else ""
        if sum(kind == "began" for kind, _ in LINE.findall(text)) >= number:
            return text
        seconds = time.monotonic() - begun
        if state in FINAL or seconds > timeout:
            rest = "".join(line for line in text.splitlines(keepends=True) if not LINE.match(line))
            raise RehearsalError(f"job is {state} after {seconds:.0f} s without start {number}:\n{rest}")
        if seconds > looks * PROGRESS:
            looks += 1
            state = cluster.job(job).get("JobState", "")
            log(f"  {seconds:.0f} s: {state}")
        time.sleep(0.1)


def cause(cluster: SlurmCluster, failure: str, host: str) -> None:
    """Cause a failure on a host."""
    if failure == "power":
        cluster.power_off(host)
        return
    process = ["--exact", "raylet"]
    if failure == "container":
        is_bare = cluster.layout.runtime == "none"
        process = ["--newest", "--full", GUARD] if is_bare else ["--full", CONTAINER_PROCESS]
    if cluster.run(["pkill", "-KILL", *process], host=host).returncode != 0:
        raise RehearsalError(f"no process {process} on {host}")


@cache
def podman_store() -> Path:
    """The image store of hosts with Podman."""
    folder = cache_folder()
    return stores.load("podman", folder, ray_image.archive(folder, DEFAULT_IMAGE, log), log)


def make_layout(folder: Path, hosts: int) -> Layout:
    """Return the layout of a cluster for a job on so many hosts."""
    root = suites.hosts_root(cache_folder(), None, log)
    if hosts > MOST_WITH_RAY:
        return Layout(folder, "none", root=root)
    return Layout(folder, store=podman_store(), root=root)


def table(results: Mapping[Case, Sequence[Parts]]) -> str:
    """Markdown table of the medians, with the ratio to a requeue of the same case in brackets."""
    totals = {case: median(sum(run.values()) for run in runs) for case, runs in results.items()}
    lines = [
        f"| hosts | failure | way | the trainer's next first line, s | {' | '.join(PARTS)} |",
        "|---" * (4 + len(PARTS)) + "|",
    ]
    for case, runs in results.items():
        requeue = totals.get(case._replace(way="requeue"))
        ratio = f" ({totals[case] / requeue:.2f})" if requeue else ""
        parts = " | ".join(f"{median(run[part] for run in runs):.1f}" for part in PARTS)
        row = f"{case.hosts} | {case.failure} | {case.label} | {totals[case]:.1f}{ratio}"
        lines.append(f"| {row} | {parts} |")
    return "\n".join(lines)


def report(machine: str, results: Mapping[Case, Sequence[Parts]], options: argparse.Namespace) -> str:
    """The table, with a line about the machine and the runs above, and one about the parts below."""
    done = sum(len(runs) for runs in results.values())
    planned = len(list_cases(options))
    medians = f"medians of {options.repeat}"
    if done < planned:
        medians = f"PARTIAL, {done} of {planned} measurements: medians of {options.repeat} or fewer"
    hosts = f"more than {MOST_WITH_RAY} hosts: no containers, and a stand-in for Ray"
    short = ", ".join(f"{name}={value}" for name, value in TIMEOUTS["short"].items())
    parts = "; ".join(f"{part}: {end}" for part, end in PARTS.items())
    machine += "".join(f"; {name}: {value}" for name, value in options.settings)
    head = f"{machine}; {hosts}; short timeouts: {short}; {medians}, ratios to a requeue in brackets."
    return f"{head}\n\n{table(results)}\n\nHow each part ends: {parts}."


def list_cases(options: argparse.Namespace) -> list[Case]:
    """The measurements to take, in their order."""
    cases = itertools.starmap(
        Case, itertools.product(options.hosts, options.cases, options.timeouts, options.ways)
    )
    # Slurm's timeouts count only where a host is lost.
    planned = [case for case in cases if case.failure == "power" or case.timeouts == options.timeouts[0]]
    return [case for case in planned for _ in range(options.repeat)]


def run_cases(options: argparse.Namespace) -> int:
    """Measure, print the table and write the JSON file; return how many measurements failed."""
    machine, failed = "", 0
    results: dict[Case, list[Parts]] = {}
    try:
        for case in list_cases(options):
            if not options.busy:
                wait_idle()
            name = f"{case.hosts} hosts, {case.failure}, {case.label}"
            log(name)
            nodes = tuple(f"node{number}" for number in range(1, case.hosts + 2))
            config = ClusterConfig(nodes, options=TIMEOUTS[case.timeouts])
            try:
                with (
                    tempfile.TemporaryDirectory(prefix="slurmray-recovery-") as folder,
                    SlurmCluster(config, make_layout(Path(folder), case.hosts)) as cluster,
                ):
                    machine = machine or describe_machine(cluster)
                    parts = measure(cluster, case, dict(options.settings))
            except SlurmrayError as error:
                failed += 1
                log(f"{name}: {error}")
                continue
            results.setdefault(case, []).append(parts)
            log(f"{name}: {sum(parts.values()):.1f} s, {parts}")
    finally:
        print(report(machine, results, options), flush=True)
        if options.json:
            rows = [{**case._asdict(), "runs": runs} for case, runs in results.items()]
            options.json.write_text(json.dumps({"machine": machine, "results": rows}, indent=1) + "\n")
    return failed


def values_of(allowed: Sequence[str]) -> Callable[[str], list[str]]:
    """Return a parser of comma-separated values."""

    def parse(text: str) -> list[str]:
        values = text.split(",")
        if wrong := [value for value in values if value not in allowed]:
            choices = ", ".join(allowed)
            raise argparse.ArgumentTypeError(f"no such value: {wrong[0]} (choose from {choices})")
        return values

    return parse


def setting(text: str) -> tuple[str, str]:
    """A field of the job spec and its value."""
    name, separator, value = text.partition("=")
    if not separator:
        raise argparse.ArgumentTypeError(f"not PATH=VALUE: {text}")
    return name, value


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench.recovery",
        description="Measure the time from a failure to the trainer's next start: restart beside requeue. "
        "All of it takes more than an hour.",
    )
    parser.add_argument(
        "--hosts",
        type=integers,
        default=[2, 8, 32],
        metavar="N,N",
        help="numbers of hosts of the trainer (default: 2,8,32)",
    )
    for option, allowed, text in (
        ("--cases", FAILURES, "what fails on a worker node: a host loses power, or SIGKILL to a process"),
        (
            "--timeouts",
            tuple(TIMEOUTS),
            "Slurm's; with the default ones a requeue after a power loss takes over 7 min",
        ),
        ("--ways", tuple(WAYS), "how the trainer gets its next start"),
    ):
        choices = ",".join(allowed)
        parser.add_argument(
            option,
            type=values_of(allowed),
            default=list(allowed),
            metavar="A,B",
            help=f"{text} (default: {choices})",
        )
    parser.add_argument("--repeat", type=int, default=1, help="measurements of each case (default: 1)")
    parser.add_argument(
        "--set",
        type=setting,
        action="append",
        default=[],
        dest="settings",
        metavar="PATH=VALUE",
        help="a field of the job spec, e.g. heartbeat_timeout=10",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all measurements to a file")
    parser.add_argument("--busy", action="store_true", help="do not wait until the machine is idle")
    options = parser.parse_args()
    if min(options.hosts) < 2:
        parser.error("--hosts: at least 2: the failure is on a worker node")
    exit_at_sigterm()
    require("podman", own_slurm=True, builds=True)
    if failed := run_cases(options):
        sys.exit(f"{failed} of {len(list_cases(options))} measurements failed")


if __name__ == "__main__":
    main()
