"""The files of the agent's parts. agent/parts.py has when a job needs a part."""

from __future__ import annotations

CORE = "core"  # files that are in every script
PARTS = {
    name: [f"{file}.py" for file in files.split()]
    for name, files in {
        "types": "wire/messages wire/settings controller/actions",  # only type checkers read them
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
        "check": "container/check_cluster",
        "variables": "node/node_variables",
        "commands": "node/commands",
        "setup": "container/setup",
        "sweep": "combinations",
        "expansion": "node/checks/expansion",
        "shared_files": "node/shared_file",
        "shared_image": "node/shared_image",
        "build": "node/image_build",
        "engine": "node/image node/pull node/runtimes/engine",
        "podman": "node/runtimes/podman",
        "docker": "node/runtimes/docker",
        "apptainer": "node/runtimes/apptainer",
        "none": "node/runtimes/none node/shared_memory container/guard",
        "pyxis": "controller/service_steps node/runtimes/pyxis",
    }.items()
}


def part_of(file: str) -> str:
    """The name of the part that has a file of the agent; CORE for all others."""
    return next((name for name, files in PARTS.items() if file in files), CORE)
