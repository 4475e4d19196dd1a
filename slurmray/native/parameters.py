"""From the parameters of submitit's users to the job spec of a driver."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import cloudpickle

from slurmray.errors import Problem, SpecError
from slurmray.native.driver import REQUEUE_EXIT_CODE
from slurmray.native.luggage import code_folders

# submitit's parameters for every executor, and the field of the job spec that each one sets.
SHARED = {
    "name": ("name",),
    "nodes": ("slurm", "nodes"),
    "gpus_per_node": ("slurm", "gpus_per_node"),
    "cpus_per_task": ("slurm", "cpus_per_task"),
    "timeout_min": ("slurm", "time"),
    "mem_gb": ("slurm", "mem"),
}
# Sections of the job spec that are parameters by their own names.
SECTIONS = (
    *("container", "env", "ray", "network", "checks", "preflight", "prepare", "services"),
    *("stop", "on_node_loss", "requeue"),
)
# submitit's own, besides `slurm_` and the name of an option of sbatch.
OWN = ("stderr_to_stdout", "slurm_setup", "slurm_array_parallelism", "slurm_additional_parameters")
PYTHON = "{}.{}".format(*sys.version_info)
TIMEOUT_MIN = 5  # submitit's default
LEAD = 90  # seconds before the time limit; submitit's default of signal_delay_s


def job_data(parameters: Mapping[str, Any], folder: Path, number: str = "%j") -> dict[str, Any]:
    """Return the job spec of these parameters as nested mappings; SpecError names all that are none of them.

    folder: of the executor. number: what stands for the job in names of files, `%A_%a` for those of an array.
    """
    data: dict[str, Any] = {"slurm": {"time": TIMEOUT_MIN}}
    problems = []
    for name, value in parameters.items():
        if name in SHARED:
            *sections, field = SHARED[name]
            place = data[sections[0]] if sections else data
            place[field] = f"{round(value * 1024)}M" if name == "mem_gb" else value
        elif name in SECTIONS:
            data[name] = dict(value) if isinstance(value, Mapping) else value
        elif name.startswith("slurm_") and name not in OWN:
            data["slurm"][name.removeprefix("slurm_")] = value
        elif name not in OWN:
            known = ", ".join((*SHARED, *SECTIONS, *OWN, "slurm_OPTION of sbatch"))
            problems.append(Problem(name, f"no such parameter; there are {known}"))
    minutes = data["slurm"]["time"]
    if isinstance(minutes, bool) or not isinstance(minutes, int) or minutes < 1:
        problems.append(Problem("timeout_min", f"expected minutes as a whole number, got {minutes!r}"))
    if problems:
        raise SpecError(problems)
    _give_setup(data, parameters)
    _give_files(data, parameters, folder, number)
    _give_signals(data)
    return data


def _give_setup(data: dict[str, Any], parameters: Mapping[str, Any]) -> None:
    """Without a container Ray is that of the Python which submits."""
    lines = list(parameters.get("slurm_setup") or [])
    if "container" not in data:
        data["container"] = {"runtime": "none"}
        lines.append(f"export PATH={shlex.quote(str(Path(sys.executable).parent))}:$PATH")
    data["setup"] = "\n".join(lines)


def _give_files(data: dict[str, Any], parameters: Mapping[str, Any], folder: Path, number: str) -> None:
    """Files lie where submitit looks for them, as those of its own jobs do."""
    slurm, path = data["slurm"], str(folder / "%j_0_log.").replace("%j", number)
    slurm["output"] = f"{path}out"
    if not parameters.get("stderr_to_stdout"):
        slurm["error"] = f"{path}err"
    extra = parameters.get("slurm_additional_parameters") or {}
    slurm["extra"] = [f"--{name}" if value is True else f"--{name}={value}" for name, value in extra.items()]


def _give_signals(data: dict[str, Any]) -> None:
    """The driver is asked for a checkpoint by USR2, and asks for another attempt by its exit code."""
    lead = data["slurm"].pop("signal_delay_s", LEAD)
    data["stop"] = {"lead": lead, **data.get("stop", {}), "signal": "USR2"}
    data["requeue"] = {**data.get("requeue", {}), "exit_code": REQUEUE_EXIT_CODE}


def give_driver(data: dict[str, Any], folder: Path, home: Path, luggage: Path, array: bool) -> None:
    """Complete the job spec with what runs: the driver, the caller's modules, and what says which job it is.

    home: the part of `folder` that is the same for all jobs. luggage: as `pack` makes it.
    """
    versions = [PYTHON, cloudpickle.__version__]
    data["run"] = ["python3", "-u", "-m", "slurmray.native.driver", str(folder), *versions]
    data["run_dir"] = str(home / "slurmray-runs")
    facts = ["SLURM_JOB_ID", "SLURM_JOB_NODELIST", "SLURM_JOB_NUM_NODES"]
    facts += ["SLURM_ARRAY_JOB_ID", "SLURM_ARRAY_TASK_ID"] if array else []
    env = dict(data.get("env", {}))
    folders = code_folders()
    path = os.pathsep.join([str(luggage), *map(str, folders), *filter(None, [env.get("PYTHONPATH")])])
    container = data["container"]
    if container.get("runtime") == "none":
        data["setup"] += f"\nexport PYTHONPATH={shlex.quote(path)}${{PYTHONPATH:+:$PYTHONPATH}}"
        env.pop("PYTHONPATH", None)
    else:
        env["PYTHONPATH"] = path
        container["mounts"] = [*(container.get("mounts") or []), *map(str, _outermost([home, *folders]))]
    data["env"] = {**env, **dict.fromkeys(facts)}


def _outermost(folders: list[Path]) -> list[Path]:
    """Without those that are in another one, or in the submit folder, which is there anyway."""
    here = Path.cwd()
    others = [folder for folder in dict.fromkeys(folders) if not folder.is_relative_to(here)]
    return [one for one in others if not any(one != other and one.is_relative_to(other) for other in others)]
