"""Imports short launchers, and runs what is left of them."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from slurmray import yaml_source
from slurmray.importing.draft_text import Imported
from slurmray.importing.launcher import read_launcher

TRAINER = "python train.py"
# Each prints its own name and arguments, as bash quotes them.
_PROGRAMS = (
    "python",
    "python3",
    "uv",
    "torchrun",
    "accelerate",
    "vllm",
    "ssh",
    "pixi",
    "poetry",
    "deepspeed",
    "hf",
    "rsync",
    "shifter",
    # What slurmray does itself, so that a job spec that still does it shows.
    "ray",
    "srun",
    "scontrol",
    "sbatch",
    "docker",
    "apptainer",
    "curl",
    "train.sh",
    "timeout",
    "env-run",
)
_PRINT = '#!/bin/bash\nprintf \'%q \' "${0##*/}" "$@" >>"$PRINTED"\necho >>"$PRINTED"\n'
# What the job sets: two nodes of 8 GPUs.
_JOB = {
    **{"NNODES": "2", "GPUS_PER_NODE": "8", "NODE_RANK": "0", "MASTER_ADDR": "head", "SLURM_JOB_ID": "7"},
    **{"HOME": "/home/me", "LC_ALL": "C"},
}


def import_text(text: str, arguments: Sequence[str] | None = None) -> Imported:
    return read_launcher("my.slurm", text.encode(), arguments)


def fields(text: str, arguments: Sequence[str] | None = None) -> dict[str, Any]:
    """Return the fields of a script's job spec."""
    data = yaml_source.read("job.yaml", import_text(text, arguments).text).data
    assert isinstance(data, dict)
    return data


def execute(
    run: str | list[str], folder: Path, preset: Sequence[str] = (), env: dict[str, Any] | None = None
) -> tuple[int, list[str]]:
    """Run `run` as a job does; return its exit code, and each program that it started, with its arguments.

    preset: the arguments that a preset adds.
    """
    programs, printed = folder / "programs", folder / "printed"
    programs.mkdir(exist_ok=True)
    for name in _PROGRAMS:
        (programs / name).write_text(_PRINT)
        (programs / name).chmod(0o755)
    printed.write_text("")
    argv = ["bash", "-c", run, "slurmray", *preset] if isinstance(run, str) else [*run, *preset]
    given = {name: str(value) for name, value in (env or {}).items() if value is not None}
    path = f"{programs}:{os.environ['PATH']}"
    done = subprocess.run(
        argv,
        cwd=folder,
        env={**_JOB, **given, "PATH": path, "PRINTED": str(printed)},
        check=False,
        timeout=60,
    )
    return done.returncode, [line.strip() for line in printed.read_text().splitlines()]


def started(
    text: str, folder: Path, preset: Sequence[str] = (), arguments: Sequence[str] | None = None, **env: str
) -> list[str]:
    """Return the commands that the imported trainer of a script starts."""
    made = fields(text, arguments)
    return execute(made["run"], folder, preset, {**made.get("env", {}), **env})[1]


def verdicts(text: str) -> dict[int, str]:
    """Return what the comments of a job spec, written by `read_launcher`, have about each line."""
    found: dict[int, str] = {}
    for spans, verdict in re.findall(r"^#   lines? ([0-9, -]+): (.*)$", text, re.MULTILINE):
        for span in spans.split(", "):
            first, _, last = span.partition("-")
            for line in range(int(first), int(last or first) + 1):
                assert line not in found, f"two comments about line {line}"
                found[line] = verdict
    return found


def looks(text: str) -> list[int]:
    """Return the lines of a script that the user has to look at."""
    found = verdicts(import_text(text).text)
    return [line for line, verdict in found.items() if verdict.startswith("please look")]
