"""Files that are no bash scripts: of which kind they are, and what to do with them."""

from __future__ import annotations

import re

from slurmray.errors import Problem, SpecError

_PYTHON = re.compile(r"#!.*\bpython")
_OTHER_SHELL = re.compile(r"#!(?!.*\b(?:bash|sh)\b)")
_YAML = re.compile(r"(?:(?:#.*|---.*|\s*)\n)*[a-z_]\w*:(?:\s|$)")  # what is before the first name
# The beginning of a line -> the kind of YAML that has it, and what to do; the first one counts.
_KINDS_OF_YAML = (
    (
        r"type: *(?:task|service|dev-environment)\b",
        "is for dstack. In a job spec nodes is slurm.nodes, resources.gpu slurm.gpus_per_node, image "
        "container.image, commands run; env is the same",
    ),
    (
        r"(?:num_nodes|resources|secrets|envs|file_mounts):",
        "is a SkyPilot task. In a job spec num_nodes is slurm.nodes, resources.accelerators "
        "slurm.gpus_per_node, envs env, secrets env with null; run is the same without what starts Ray",
    ),
    (r"(?:slurm|container|ray|preset|run):", "is a job spec already: use slurmray render"),
    ("", "is YAML, no bash script; init --from reads only bash"),
)


def check_kind(name: str, text: str) -> None:
    """SpecError if a file is no bash script for sbatch."""
    if problem := _problem(name, text):
        raise SpecError([Problem(name, problem)])


def _problem(name: str, text: str) -> str | None:
    if not text.strip():
        return "is empty; name a bash script that starts Ray under Slurm"
    if "\r\n" in text:
        return "has the line ends of Windows, which sbatch refuses; use dos2unix"
    if name.endswith(".py") or _PYTHON.match(text):
        return f"is a Python program: slurmray render --nodes 2 -- python3 {name}"
    if name.endswith((".yaml", ".yml")) or _YAML.match(text):
        return next(fix for line, fix in _KINDS_OF_YAML if re.search(f"^{line}", text, re.MULTILINE))
    return "is no bash script; init --from reads only bash" if _OTHER_SHELL.match(text) else None
