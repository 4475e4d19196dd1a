"""Programs of sh that stand in for others, e.g. for Slurm's commands."""

from __future__ import annotations

from pathlib import Path

# What scontrol and squeue do about a job that Slurm has forgotten, and what squeue prints of an own job.
FORGOTTEN = "echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1"
OWN = "echo $(/usr/bin/id -u) me"


def install(folder: Path, **texts: str) -> Path:
    """Make programs with these names and texts in a folder; return the folder."""
    folder.mkdir(exist_ok=True)
    for name, text in texts.items():
        (folder / name).write_text(f"#!/bin/sh\n{text}\n")
        (folder / name).chmod(0o755)
    return folder
