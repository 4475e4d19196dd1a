"""The parts of the agent: files that a script has only where its settings need them. All others are the core.

The programs of a job use a part under the same condition, `is_needed`, and import its files nowhere else.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Collection, Dict, List, Tuple

    from .wire.settings import Settings

    Condition = Callable[[Settings], Any]  # whether a job needs the part


def _has_gpus(settings: "Settings") -> bool:
    return any(group["gpus_per_node"] for group in settings["groups"])


def _watches_stalls(settings: "Settings") -> bool:
    """Without GPUs and a progress file, nothing shows that a trainer is stalled."""
    watch = settings["watch"]
    return bool(watch["stall"] and (_has_gpus(settings) or watch["progress"]))


def _has_stages(settings: "Settings") -> bool:
    return bool(settings["prepare"] or settings["services"] or settings["checks"]["burn_in"])


def _may_start_again(settings: "Settings") -> bool:
    """In the allocation, on other nodes of it, or in another attempt."""
    restart, requeue = settings["restart"], settings["requeue"]
    has_others = settings.get("fewer_nodes") or any(group["spares"] for group in settings["groups"])
    on_loss = settings["on_node_loss"] != "fail" or settings["watch"]["action"] == "restart"
    return bool(has_others or on_loss or restart["exit_codes"] or requeue["max"] or requeue["exit_code"])


def _has_runtime(*names: str) -> "Condition":
    return lambda settings: set(names) & set(settings["container"]["runtimes"])


def _shares_image(settings: "Settings") -> bool:
    return settings["container"]["stage"] == "shared"


def _has_shared_files(settings: "Settings") -> bool:
    """Apptainer builds an image into a cache that nodes share."""
    return _shares_image(settings) or bool(_has_runtime("apptainer", "singularity")(settings))


CORE = "core"  # files that are in every script
# Name -> files, and whether a job needs them.
PARTS: "Dict[str, Tuple[Tuple[str, ...], Condition]]" = {
    "types": (("wire/messages.py", "wire/settings.py"), lambda _: False),  # only type checkers read them
    "gpus": (
        (
            "container/cuda.py",
            "node/checks/gpu_health.py",
            "node/checks/gpus.py",
            "node/gpu_processes.py",
            "node/gpu_samples.py",
            "node/runtimes/cdi.py",
        ),
        _has_gpus,
    ),
    "watch": (("controller/stall.py", "container/stacks.py", "node/evidence.py"), _watches_stalls),
    "stages": (
        (
            "controller/stage_progress.py",
            "container/prepare.py",
            "container/readiness_check.py",
            "container/services.py",
            "container/stage.py",
            "container/stages.py",
            "node/host_services.py",
            "node/service_logs.py",
        ),
        _has_stages,
    ),
    "burn_in": (
        ("controller/burn_in_figures.py", "container/burn_in.py", "container/burn_in_stage.py"),
        lambda settings: settings["checks"]["burn_in"],
    ),
    "notify": (("controller/notices.py",), lambda settings: settings["notify"]),
    "metrics": (
        ("controller/metrics.py", "node/ray_targets.py"),
        lambda settings: settings["ray"]["metrics"],
    ),
    "restart": (
        ("controller/requeue.py", "controller/roster.py", "container/joining.py"),
        _may_start_again,
    ),
    "ray_job": (("container/ray_job.py",), lambda settings: settings["trainer"]["launch"] == "ray-job"),
    "check": (("container/check_cluster.py",), lambda settings: not settings["trainer"]["command"]),
    "variables": (
        ("node/node_variables.py",),
        lambda settings: settings["env_file"] or settings["node_env"],
    ),
    "setup": (("container/setup.py",), lambda settings: settings["container"]["setup"]),
    "shared_files": (("node/shared_file.py",), _has_shared_files),
    "shared_image": (("node/shared_image.py",), _shares_image),
    "engine": (
        ("node/image.py", "node/pull.py", "node/runtimes/engine.py"),
        _has_runtime("podman", "docker"),
    ),
    "podman": (("node/runtimes/podman.py",), _has_runtime("podman")),
    "docker": (("node/runtimes/docker.py",), _has_runtime("docker")),
    "apptainer": (("node/runtimes/apptainer.py",), _has_runtime("apptainer", "singularity")),
    "none": (("node/runtimes/none.py", "container/guard.py"), _has_runtime("none", "pyxis")),
    "pyxis": (("node/runtimes/pyxis.py",), _has_runtime("pyxis")),
    "sweep": (("combinations.py",), lambda settings: settings["sweep"]),
}


def is_needed(name: str, settings: "Settings") -> bool:
    """Whether a job needs a part."""
    return bool(PARTS[name][1](settings))


def needed_parts(settings: "Settings") -> "List[str]":
    """Names of the parts that a job needs."""
    return [name for name in PARTS if is_needed(name, settings)]


def part_of(file: str) -> str:
    """The name of the part that has a file of the agent; CORE for all others."""
    return next((name for name, (files, _) in PARTS.items() if file in files), CORE)


def missing_parts(settings: "Settings", files: "Collection[str]") -> "List[str]":
    """Names of the parts that a job needs, and whose files are not among these."""
    return [name for name in needed_parts(settings) if not set(PARTS[name][0]) <= set(files)]
