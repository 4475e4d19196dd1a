"""Remarks on a valid job: what is allowed and yet may not be what the user wants."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from pathlib import Path

from slurmray.plan import Plan
from slurmray.spec.job_spec import JobSpec

_HEAD_ONLY = "starts processes on the head node only, as `run` does; start them on the other nodes with Ray"
_RUNS_ALREADY = "the job's Ray cluster runs already; leave it out"
# (first words of a command, remark, whether also on one node)
_COMMANDS = (
    (r"torchrun|deepspeed|accelerate launch", _HEAD_ONLY, False),
    (r"mpirun|mpiexec|srun", _HEAD_ONLY, False),
    (r"ray start|ray stop", _RUNS_ALREADY, True),
    (r"ray job submit", "set launch: ray-job, and run to the command after its --", True),
)
SECRET_NAME = re.compile(r"(?:^|_)(?:KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIALS?)(?:_|$)", re.IGNORECASE)


def unset_variables(
    spec: JobSpec, environment: Mapping[str, str], own: tuple[str, ...] = ("SLURM_",)
) -> list[str]:
    """Return the fields of variables that the job takes from the submitter and that are not set.

    own: beginnings of those that the job sets itself, by default those of Slurm.
    """
    fields = spec.submitter_variables
    return [fields[name] for name in fields if name not in environment and not name.startswith(own)]


def remarks(plan: Plan, is_submitted_here: bool = True) -> list[str]:
    """Return one line for each remark, and the preset's notes."""
    spec = plan.spec
    lines = [
        f"env.{name}: its value is in the script. Leave it out (`{name}: null`, --env {name}), and it is "
        "taken from your environment at sbatch"
        for name, value in spec.env.items()
        if value and SECRET_NAME.search(name)
    ]
    for name in ("output", "error"):
        value = dict(spec.slurm.given()).get(name) or ""
        folder = str(Path(str(value)).parent)
        if folder.startswith("~"):
            lines.append(f"slurm.{name}: Slurm does not expand ~; write the path of the home folder")
        elif is_submitted_here and "%" not in folder and not Path(folder).is_dir():
            fix = f"mkdir -p {shlex.quote(folder)}"
            lines.append(f"slurm.{name}: there is no folder {folder}, so the job would have no log: {fix}")
    time = dict(spec.slurm.given()).get("time") or ""
    if re.fullmatch("[0-9]+:[0-9]{2}", str(time)):
        minutes = str(time).partition(":")[0]
        lines.append(f"slurm.time: {time} is {minutes} minutes; {minutes} hours are {minutes}:00:00")
    if isinstance(spec.run, list) and re.match(r"[^/.\s]\S*\s+\S", spec.run[0]):  # a path may have blanks
        lines.append(
            f"run: {spec.run[0]!r} is one program's name; write one item per word, or a text for bash"
        )
    text = " ".join(spec.run) if isinstance(spec.run, list) else spec.run or ""
    for words, remark, on_one_node in _COMMANDS:
        command = re.search(rf"(?:^|[\n;&|(]\s*|\bexec )(?:\S*/)?({words})(?=\s|$)", text)
        if command and (on_one_node or spec.slurm.node_count > 1):
            lines.append(f"run: `{command[1]}`: {remark}")
    return lines + plan.advice.notes
