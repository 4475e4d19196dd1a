"""Converts the parameters of submitit's users to the job spec of a driver."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import cloudpickle

from slurmray.errors import Problem, SpecError
from slurmray.native.bundle import find_code_folders
from slurmray.native.driver import REQUEUE_EXIT_CODE, RUN_DIR, STOP_SIGNAL

# {parameter that all submitit executors have: field of the job spec}
SHARED = {
    "name": ("name",),
    "nodes": ("slurm", "nodes"),
    "gpus_per_node": ("slurm", "gpus_per_node"),
    "cpus_per_task": ("slurm", "cpus_per_task"),
    "timeout_min": ("slurm", "time"),
    "mem_gb": ("slurm", "mem"),
}
# Fields of the job spec that are parameters with the same name.
SECTIONS = (
    *("container", "env", "ray", "network", "checks", "preflight", "prepare", "services"),
    *("stop", "on_node_loss", "spares", "restart", "requeue"),
)
# Other parameters of submitit; `slurm_OPTION`, with an option of sbatch, is one too.
OTHER = (
    *("stderr_to_stdout", "slurm_setup", "slurm_signal_delay_s", "slurm_array_parallelism"),
    "slurm_additional_parameters",
)
# {refused parameter: what to do instead}
_FIXES = {
    "slurm_array": "use map_array, or batch",
    "slurm_clusters": "RayExecutor works with the default cluster only: leave it out",
    "slurm_cpus_per_task": "use cpus_per_task",
    "slurm_error": "logs are in the executor's folder: leave it out",
    "slurm_extra": "use slurm_additional_parameters",
    "slurm_gpus_per_node": "use gpus_per_node",
    "slurm_groups": "RayExecutor's nodes are all alike: use nodes, or submit()",
    "slurm_mem": "use mem_gb",
    "slurm_nodes": "use nodes",
    "slurm_output": "logs are in the executor's folder: leave it out",
    "slurm_srun_args": "there is one task, the driver: leave it out",
    "slurm_time": "use timeout_min",
    "slurm_use_srun": "there is one task, the driver: leave it out",
    "slurm_wait": "result() waits: leave it out",
}
PYTHON = "{}.{}".format(*sys.version_info)
TIMEOUT_MIN = 5  # submitit's default
LEAD = 90  # seconds before the time limit; submitit's default of signal_delay_s


def make_job_data(parameters: Mapping[str, Any], folder: Path, number: str = "%j") -> dict[str, Any]:
    """Return the job spec of these parameters as nested dicts; SpecError lists all wrong parameters.

    folder: of the executor. number: sbatch's placeholder for the job id in file names; `%A_%a` for arrays.
    """
    data: dict[str, Any] = {"slurm": {"time": TIMEOUT_MIN}}
    problems = [Problem(name, text) for name, text in _FIXES.items() if name in parameters]
    problems += _check_types(parameters)
    for name, value in parameters.items():
        if name in SHARED:
            *sections, field = SHARED[name]
            place = data[sections[0]] if sections else data
            place[field] = value
        elif name in SECTIONS:
            data[name] = value
        elif name.startswith("slurm_") and name not in (*OTHER, *_FIXES):
            data["slurm"][name.removeprefix("slurm_")] = value
        elif name not in (*OTHER, *_FIXES):
            known = ", ".join((*SHARED, *SECTIONS, *OTHER, "slurm_OPTION of sbatch"))
            problems.append(Problem(name, f"unknown parameter; known are {known}"))
    problems += _set_units(data["slurm"])
    problems += _set_signals(data, parameters.get("slurm_signal_delay_s"))
    if problems:
        raise SpecError(problems)
    _set_setup(data, parameters)
    _set_log_files(data, parameters, folder, number)
    return data


def _check_types(parameters: Mapping[str, Any]) -> list[Problem]:
    """Return problems with the types of parameters that are not fields of the job spec."""
    kinds: dict[str, tuple[Callable[[Any], bool], str]] = {
        "slurm_setup": (_is_texts, "a list of commands"),
        "slurm_array_parallelism": (_is_count, "an integer, 1 or more"),
        "slurm_additional_parameters": (lambda value: isinstance(value, Mapping), "`name: value` pairs"),
    }
    return [
        Problem(name, f"expected {expected}, got {parameters[name]!r}")
        for name, (fits, expected) in kinds.items()
        if name in parameters and not fits(parameters[name])
    ]


def _is_texts(value: object) -> bool:
    return isinstance(value, list | tuple) and all(isinstance(item, str) for item in value)


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def _is_size(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < float("inf")


def _set_setup(data: dict[str, Any], parameters: Mapping[str, Any]) -> None:
    """Set `setup`. Without a container it puts the submitting Python, which has Ray, first in PATH."""
    lines = list(parameters.get("slurm_setup") or [])
    if is_bare(data.setdefault("container", {"runtime": "none"})):
        lines.append(f"export PATH={shlex.quote(str(Path(sys.executable).parent))}:$PATH")
    data["setup"] = "\n".join(lines)


def _set_log_files(data: dict[str, Any], parameters: Mapping[str, Any], folder: Path, number: str) -> None:
    """Set the log files that submitit expects."""
    slurm, path = data["slurm"], str(folder / "%j_0_log.").replace("%j", number)
    slurm["output"] = f"{path}out"
    if not parameters.get("stderr_to_stdout"):
        slurm["error"] = f"{path}err"
    extra = parameters.get("slurm_additional_parameters") or {}
    slurm["extra"] = [f"--{name}" if value is True else f"--{name}={value}" for name, value in extra.items()]


def _set_units(slurm: dict[str, Any]) -> list[Problem]:
    """Convert memory from GiB to sbatch's format, and return problems with memory and minutes."""
    problems = []
    minutes, memory = slurm["time"], slurm.get("mem", 1)
    if not _is_count(minutes):
        problems.append(Problem("timeout_min", f"expected minutes as an integer, got {minutes!r}"))
    if not _is_size(memory):
        problems.append(Problem("mem_gb", f"expected GiB as a number, got {memory!r}"))
    elif "mem" in slurm:
        slurm["mem"] = f"{round(memory * 1024)}M"
    return problems


def _set_signals(data: dict[str, Any], delay: object) -> list[Problem]:
    """Set stop.signal, which makes the driver write a checkpoint, and the exit code that requeues the job."""
    driver: dict[str, dict[str, Any]] = {
        "stop": {"signal": STOP_SIGNAL},
        "requeue": {"exit_code": REQUEUE_EXIT_CODE},
    }
    minutes = data["slurm"]["time"]
    half = max(1, minutes * 30) if isinstance(minutes, int) else LEAD  # the limit may be shorter than 90 s
    lead = min(LEAD, half) if delay is None else delay
    problems = []
    for section, fields in driver.items():
        given = data.get(section, {})
        if not isinstance(given, Mapping):  # JobSpec reports it
            continue
        given = {name: value for name, value in given.items() if value is not None}
        if section == "stop" and delay is not None and "lead" in given:
            problems.append(Problem("stop.lead", "slurm_signal_delay_s sets the same field: leave one out"))
        problems += [
            Problem(f"{section}.{name}", "RayExecutor sets it: leave it out")
            for name in fields.keys() & given.keys()
        ]
        data[section] = {**({"lead": lead} if section == "stop" else {}), **given, **fields}
    if isinstance(data["stop"], Mapping) and data["stop"]["lead"] == 0:
        problems.append(Problem("stop.lead", "the driver needs a warning: expected 1 second or more"))
    return problems


def is_bare(container: object) -> bool:
    """Whether Ray runs without a container."""
    return isinstance(container, Mapping) and container.get("runtime") == "none"


def add_driver(data: dict[str, Any], folder: Path, home: Path, bundle: Path, array: bool) -> None:
    """Add the driver's command, the caller's modules and variables that identify the job to the job spec.

    home: the part of `folder` that is the same for all jobs. bundle: the zip from pack().
    """
    versions = [PYTHON, cloudpickle.__version__]
    data["run"] = ["python3", "-u", "-m", "slurmray.native.driver", str(folder), *versions]
    data["run_dir"] = str(home / RUN_DIR)
    job_variables = ["SLURM_JOB_ID", "SLURM_JOB_NODELIST", "SLURM_JOB_NUM_NODES"]
    job_variables += ["SLURM_ARRAY_JOB_ID", "SLURM_ARRAY_TASK_ID"] if array else []
    env = dict(data.get("env", {}))
    folders = find_code_folders()
    for entry in (home, *folders):
        if os.pathsep in str(entry):
            text = "PYTHONPATH and mounts cannot have paths with a colon; rename the folder"
            raise SpecError([Problem(str(entry), text)])
    path = os.pathsep.join([str(bundle), *map(str, folders), *filter(None, [env.get("PYTHONPATH")])])
    container = data["container"]
    if is_bare(container):
        data["setup"] += f"\nexport PYTHONPATH={shlex.quote(path)}${{PYTHONPATH:+:$PYTHONPATH}}"
        env.pop("PYTHONPATH", None)
    else:
        env["PYTHONPATH"] = path
        mounts = [*(container.get("mounts") or []), *map(str, _find_outermost([home, *folders]))]
        data["container"] = {**container, "mounts": mounts}
    data["env"] = {**env, **dict.fromkeys(job_variables)}


def _find_outermost(folders: list[Path]) -> list[Path]:
    """Return the folders that are not inside another one or the submit folder, which is always mounted."""
    here = Path.cwd()
    others = [folder for folder in dict.fromkeys(folders) if not folder.is_relative_to(here)]
    return [one for one in others if not any(one != other and one.is_relative_to(other) for other in others)]
