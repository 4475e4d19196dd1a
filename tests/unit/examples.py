"""The job specs of examples/, and other values for their fields."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parents[2]
# `NAME.config.yaml` is a trainer's own file.
EXAMPLES = {
    path.stem: path
    for path in sorted((ROOT / "examples").glob("*.yaml"))
    if not path.name.endswith(".config.yaml")
}
# Flag of `slurmray init` -> value.
CHANGES = {
    "--nodes": "7",
    "--gpus-per-node": "h100:4",
    "--cpus-per-task": "40",
    "--mem": "1T",
    "--time": "12:00:00",
    "--partition": 'a "b": c',
    "--account": "null",
    "--image": "localhost:5000/mine:1",
    "--runtime": "docker",
}
