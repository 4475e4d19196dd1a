"""The parts of the agent: files that a script has only where its settings need them. All others are the core.

The programs of a job import the files of a part only where they know that it is needed.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List

    from .wire.settings import Settings

CORE = "core"  # files that are in every script
TYPES = "types"  # files that are in none: only type checkers read them
PARTS = {
    name: ["%s.py" % file for file in files.split()]
    for name, files in {
        TYPES: "wire/messages wire/settings controller/actions",
        "gpus": "container/cuda node/checks/gpu_health node/checks/gpus node/gpu_processes "
        "node/gpu_samples node/runtimes/cdi",
        "watch": "controller/stall container/stacks node/evidence",
        "stages": "controller/stage_progress container/prepare container/readiness_check "
        "container/services container/stage container/stages node/host_services node/service_logs",
        "burn_in": "controller/burn_in_figures container/burn_in container/burn_in_stage",
        "notify": "controller/notices",
        "metrics": "controller/metrics node/ray_targets",
        "restart": "controller/requeue controller/restarts controller/roster container/joining",
        "ray_job": "container/ray_job",
        "demands": "container/ray/demands container/ray/unplaceable",
        "check": "container/check_cluster",
        "variables": "node/node_variables",
        "commands": "node/commands",
        "container_setup": "container/container_setup",
        "sweep": "combinations",
        "expansion": "node/checks/expansion",
        "shared_files": "node/shared_file",
        "shared_image": "node/shared_image",
        "build": "node/image_build",
        "engine": "node/image node/pull node/runtimes/podman_or_docker",
        "podman": "node/runtimes/podman",
        "docker": "node/runtimes/docker",
        "apptainer": "node/runtimes/apptainer",
        "none": "node/runtimes/none node/shared_memory container/guard",
        "pyxis": "controller/service_steps node/runtimes/pyxis",
    }.items()
}


def conditions(settings: "Settings") -> "Dict[str, Any]":
    """Each part, with what is true if a job needs it."""
    container, trainer, watch = settings["container"], settings["trainer"], settings["watch"]
    checks, requeue, runtimes = settings["checks"], settings["requeue"], {*container["runtimes"]}
    has_gpus = any(group["gpus_per_node"] for group in settings["groups"])
    has_others = settings.get("fewer_nodes") or any(group["spares"] for group in settings["groups"])
    on_loss = settings["on_node_loss"] != "fail" or watch["action"] == "restart"
    on_exit = settings["restart"]["exit_codes"] or requeue["max"] or requeue["exit_code"]
    has_apptainer, is_shared = runtimes & {"apptainer", "singularity"}, container["stage"] == "shared"
    with_paths = settings["temp_dir"], settings["env_file"], trainer["runtime_env"], container, checks
    return {
        "gpus": has_gpus,
        # Without GPUs and a progress file, nothing shows that a trainer is stalled.
        "watch": watch["stall"] and (has_gpus or watch["progress"]),
        "stages": settings["prepare"] or settings["services"] or checks["burn_in"],
        "burn_in": checks["burn_in"],
        "notify": settings["notify"],
        "metrics": settings["ray"]["metrics"],
        # In the allocation, on other nodes of it, or in another attempt.
        "restart": has_others or on_loss or on_exit,
        "ray_job": trainer["launch"] == "ray-job",
        "demands": trainer["command"],
        "check": not trainer["command"],
        "variables": settings["env_file"] or settings["node_env"],
        "commands": settings["setup"] or settings["node_env"],
        "container_setup": container["setup"],
        "sweep": settings["sweep"],
        "expansion": "$" in str(with_paths),  # e.g. $SCRATCH
        "shared_files": is_shared or has_apptainer,  # Apptainer builds an image into a cache that nodes share
        "shared_image": is_shared,
        "build": container["build"],
        "engine": runtimes & {"podman", "docker"},
        "podman": "podman" in runtimes,
        "docker": "docker" in runtimes,
        "apptainer": has_apptainer,
        "none": runtimes & {"none", "pyxis"},
        "pyxis": "pyxis" in runtimes,
    }


def is_needed(name: str, settings: "Settings") -> bool:
    """Whether a job needs a part."""
    return bool(conditions(settings)[name])


def needed_parts(settings: "Settings") -> "List[str]":
    """Names of the parts that a job needs."""
    return [name for name, condition in conditions(settings).items() if condition]


def part_of(file: str) -> str:
    """The name of the part that has a file of the agent; CORE for all others."""
    return next((name for name, files in PARTS.items() if file in files), CORE)
