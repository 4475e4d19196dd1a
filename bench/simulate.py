"""Measures the controller with simulated nodes: CPU time for heartbeats, and delay until it handles an exit.

Runs a rendered script with its real controller, over pipes and in real time. Only `srun` and `scontrol` are
replaced, through PATH: see `simulated_step`.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import median

from bench.boot import render
from bench.simulated_step import AT_ONCE, SPREAD, Result

ROOT = Path(__file__).parents[1]
HANG = 300  # seconds beyond the trainer's; bounds a hang
CODE = 7  # exit code of a failing trainer


class SimulationError(Exception):
    """The simulated job did not end with its trainer's exit code. The message has its log."""


def simulate(folder: Path, nodes: int, seconds: float, code: int = 0, mode: str = SPREAD) -> Result:
    """Run a job with simulated nodes, whose trainer runs for `seconds` and exits with `code`.

    folder: an empty folder. mode: see `simulated_step.MODES`. SimulationError if the job's exit code differs.
    """
    settings = {"name": "simulation", "slurm.nodes": nodes, "container.runtime": "none"}
    script, result, log = folder / "generated.sh", folder / "result.json", folder / "job.log"
    # A long path is fine: without Ray there are no sockets in it.
    script.write_text(
        render(settings, ["true"]).replace('"temp_dir": "/tmp"', f'"temp_dir": {json.dumps(str(folder))}')
    )
    names = [f"node{number:05}" for number in range(1, nodes + 1)]
    (folder / "names").write_text("".join(name + "\n" for name in names))
    _program(folder / "bin/srun", [*_python(), "-m", "bench.simulated_step", result, seconds, code, mode])
    _program(
        folder / "bin/scontrol",
        ["sh", "-c", f"test $1 = show && cat {shlex.quote(str(folder))}/names", "scontrol"],
    )
    env = {name: value for name, value in os.environ.items() if not name.startswith(("SLURM", "SRUN"))}
    env |= {"PATH": f"{folder}/bin:{env['PATH']}", "PYTHONPATH": str(ROOT), "SLURM_JOB_ID": "1"}
    env |= {"SLURM_JOB_NUM_NODES": str(nodes), "SLURM_JOB_NODELIST": "simulated", "SLURMD_NODENAME": names[0]}
    env |= {"SLURM_JOB_CPUS_PER_NODE": "1", "SLURM_SUBMIT_DIR": str(folder)}
    with log.open("wb") as output:
        controller = subprocess.Popen(
            ["bash", script],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=env,
            cwd=folder,
        )
        try:
            exit_code = controller.wait(HANG + seconds)
        except subprocess.TimeoutExpired:
            controller.kill()
            exit_code = -1
    if exit_code != code or not result.exists():
        text = "\n".join(log.read_text(errors="replace").splitlines()[-20:])
        raise SimulationError(f"{nodes} simulated nodes: exit code {exit_code} instead of {code}\n{text}")
    return Result(**json.loads(result.read_text()))


def measure(folder: Path, nodes: int, seconds: float, repeat: int) -> dict[str, float]:
    """Measure one number of nodes, for `table`. Times of an exit are medians of `repeat` runs."""
    runs = iter(range(1000))

    def run(seconds: float, code: int = 0, mode: str = SPREAD) -> Result:
        subfolder = folder / f"{nodes}-{next(runs)}"
        subfolder.mkdir()
        return simulate(subfolder, nodes, seconds, code, mode)

    long = run(seconds)
    spread = [long.exit_seconds, *(run(1).exit_seconds for _ in range(repeat - 1))]
    return {
        "start_seconds": long.start_seconds,
        "start_cpu": long.start_cpu,
        "heartbeat_share": long.heartbeat_share,
        "exit_seconds": median(spread),
        "exit_at_once_seconds": median(run(1, mode=AT_ONCE).exit_seconds for _ in range(repeat)),
        "failed_exit_seconds": median(run(1, CODE).exit_seconds for _ in range(repeat)),
    }


def table(results: dict[int, dict[str, float]]) -> str:
    """Markdown table of the results of `measure` for each number of nodes."""
    lines = [
        "| simulated nodes | trainer's start, s | controller's CPU seconds until then "
        "| share of a CPU, heartbeats | exit 0 handled after, s | behind all nodes' heartbeats, s "
        "| exit 7, all nodes asked, s |",
        "|---|---|---|---|---|---|---|",
    ]
    for nodes, row in results.items():
        cells = [f"{row['start_seconds']:.2f}", f"{row['start_cpu']:.2f}", f"{row['heartbeat_share']:.1%}"]
        cells += [
            f"{row[name]:.3f}" for name in ("exit_seconds", "exit_at_once_seconds", "failed_exit_seconds")
        ]
        lines.append(f"| {nodes} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _python() -> list[str]:
    """Argv of this interpreter, with the checkout in PYTHONPATH."""
    return ["env", f"PYTHONPATH={ROOT}", sys.executable]


def _program(path: Path, argv: Sequence[object]) -> None:
    """Write a program that runs this command, followed by the program's arguments."""
    path.parent.mkdir(exist_ok=True)
    path.write_text(f'#!/bin/sh\nexec {shlex.join(map(str, argv))} "$@"\n')
    path.chmod(0o755)
