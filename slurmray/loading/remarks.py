"""Remarks on a valid job: what is allowed and yet may not be what the user wants."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path

from slurmray import files
from slurmray.plan import Plan
from slurmray.spec.job_spec import OF_THE_JOB, JobSpec
from slurmray.spec.runtimes import RUNTIMES

_HEAD_ONLY = "starts processes on the head node only, as `run` does; start them on the other nodes with Ray"
_RUNS_ALREADY = "the job's Ray cluster runs already; leave it out"
# (first words of a command, remark, whether also on one node)
_COMMANDS = (
    (r"torchrun|deepspeed|accelerate launch", _HEAD_ONLY, False),
    (r"mpirun|mpiexec|srun", _HEAD_ONLY, False),
    (r"ray start|ray stop", _RUNS_ALREADY, True),
    (r"ray job submit", "set launch: ray-job, and run to the command after its --", True),
)
# Variables of Slurm that differ between nodes, or that a container lacks -> slurmray's, if it has the same.
_OWN_VARIABLES = {
    **dict.fromkeys(("SLURM_NODEID", "SLURM_PROCID"), "NODE_RANK"),
    **dict.fromkeys(("SLURM_NNODES", "SLURM_JOB_NUM_NODES"), "NNODES"),
    **dict.fromkeys(("SLURM_GPUS_ON_NODE", "SLURM_GPUS_PER_NODE"), "GPUS_PER_NODE"),
    "SLURM_JOB_END_TIME": "SLURMRAY_END_TIME",
    "SLURM_RESTART_COUNT": "SLURMRAY_ATTEMPT",
}
_OF_A_NODE = ("SLURM_NODEID", "SLURM_PROCID", "SLURM_LOCALID", "SLURMD_NODENAME", "SLURM_TOPOLOGY_ADDR")
_LEAST_MEMORY = 1024  # MB, of a node without GPUs or for each GPU
SECRET_NAME = re.compile(r"(?:^|_)(?:KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIALS?)(?:_|$)", re.IGNORECASE)


def unset_variables(
    spec: JobSpec, environment: Mapping[str, str], own: tuple[str, ...] = ("SLURM_",)
) -> list[str]:
    """Return the fields of variables that the job takes from the submitter and that are not set.

    own: beginnings of those that the job sets itself, by default those of Slurm.
    """
    fields = spec.submitter_variables
    return [fields[name] for name in fields if name not in environment and not name.startswith(own)]


def _memory_in_mb(spec: JobSpec) -> Iterator[str]:
    """Yield a line for each size without a unit that is hardly enough for Ray itself: GB may be meant."""
    for component in spec.slurm.components:
        options = dict(component.given())
        for name, gpus in (("mem", component.gpus), ("mem-per-gpu", 1)):
            size = options.get(name) or ""
            if size.isdecimal() and 0 < int(size) < _LEAST_MEMORY * max(1, gpus):  # 0: all of the node's
                yield f"slurm.{name.replace('-', '_')}: {size} is {size} MB; {size} GB are {size}G"


def _join(run: list[str] | str | None) -> str:
    """Return a command as one text."""
    return " ".join(run) if isinstance(run, list) else run or ""


def _slurm_variables(spec: JobSpec, run: str) -> Iterator[str]:
    """Yield a line for each variable of Slurm that a program lacks, or that is another node's."""
    for name in filter(_OF_A_NODE.__contains__, spec.env_from_submitter):
        yield f"env.{name}: every node would have the batch host's value; NODE_RANK has the node's number"
    if RUNTIMES[spec.container.runtime].images not in ("engine", "apptainer"):
        return
    texts = {
        "run": run,
        **{f"prepare: {step.name}": _join(step.run) for step in spec.prepare},
        **{f"services: {each.name}": _join(each.run) for each in spec.services if not each.host},
    }
    for place, text in texts.items():
        known = {*OF_THE_JOB, *spec.env, *re.findall(r"\b(SLURM\w+)=", text)}
        for name in dict.fromkeys(re.findall(r"\$\{?(SLURMD?_[A-Z_]+)", text)):
            if name not in known and name not in spec.node_env + spec.container.setup:
                is_node_s = name in _OF_A_NODE
                fix = f"node_env: export NODE_S=${name}" if is_node_s else f"env: {{{name}: null}}"
                own = _OWN_VARIABLES.get(name)
                fix = f"use ${own}" if own else f"pass it on with {fix}"
                yield f"{place}: ${name} is not set in the container; {fix}"


def remarks(plan: Plan, is_submitted_here: bool = True) -> list[str]:
    """Return one line for each remark, and the preset's remarks."""
    spec = plan.spec
    lines = [
        f"env.{name}: its value is in the script. Leave it out (`{name}: null`, --env {name}), and it is "
        "taken from your environment at sbatch"
        for name, value in spec.env.items()
        if value and SECRET_NAME.search(name)
    ]
    options = dict(spec.slurm.given())
    for name in ("output", "error"):
        value = options.get(name) or ""
        folder = str(Path(value.replace("%x", spec.name)).parent)
        if value.startswith("~"):
            lines.append(f"slurm.{name}: Slurm does not expand ~; write the path of the home folder")
        elif variable := re.search(r"\$\{?\w+\}?", value):
            lines.append(f"slurm.{name}: Slurm does not expand {variable[0]}; write the path itself")
        elif is_submitted_here and "%" not in folder and not files.may_exist(Path(folder), Path.is_dir):
            reason = f", as %x is the name {spec.name}" if "%x" in value and "/" in spec.name else ""
            fix = f"mkdir -p {shlex.quote(folder)}"
            text = f"there is no folder {folder}{reason}, so the job would have no log: {fix}"
            lines.append(f"slurm.{name}: {text}")
    time = options.get("time") or ""
    if re.fullmatch("[0-9]+:[0-9]{2}", time):
        minutes = time.partition(":")[0]
        lines.append(f"slurm.time: {time} is {minutes} minutes; {minutes} hours are {minutes}:00:00")
    lines += _memory_in_mb(spec)
    text = _join(spec.run)
    lines += _slurm_variables(spec, text)
    for words, remark, on_one_node in _COMMANDS:
        command = re.search(rf"(?:^|[\n;&|(]\s*|\bexec )(?:\S*/)?({words})(?=\s|$)", text)
        if command and (on_one_node or spec.slurm.node_count > 1):
            lines.append(f"run: `{command[1]}`: {remark}")
    if spec.preset:
        lines += _other_preset(text, spec.preset.name)
    return lines + plan.advice.remarks


def _other_preset(text: str, preset: str) -> list[str]:
    from slurmray.presets.trainers import other_preset

    other = other_preset(text, preset)
    return [f"preset: `run` is a command of {other}, not of {preset}: set preset: {other}"] if other else []
