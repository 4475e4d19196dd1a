"""Imports short launchers."""

from __future__ import annotations

import re
from typing import Any

from slurmray import yaml_source
from slurmray.importing.launcher import Imported, read_launcher

TRAINER = "python train.py"


def import_text(text: str) -> Imported:
    return read_launcher("my.slurm", text.encode())


def fields(text: str) -> dict[str, Any]:
    """Return the fields of a script's job spec."""
    data = yaml_source.read("job.yaml", import_text(text).text).data
    assert isinstance(data, dict)
    return data


def verdicts(text: str) -> dict[int, str]:
    """Return what the comments of a job spec, written by `read_launcher`, have about each line."""
    found: dict[int, str] = {}
    for first, last, verdict in re.findall(r"^#   lines? ([0-9]+)(?:-([0-9]+))?: (.*)$", text, re.MULTILINE):
        for line in range(int(first), int(last or first) + 1):
            assert line not in found, f"two comments about line {line}"
            found[line] = verdict
    return found


def looks(text: str) -> list[int]:
    """Return the lines of a script that the user has to look at."""
    found = verdicts(import_text(text).text)
    return [line for line, verdict in found.items() if verdict.startswith("please look")]
