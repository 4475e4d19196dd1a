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


def _has_variables(settings: "Settings") -> bool:
    """In paths, e.g. $SCRATCH."""
    paths = settings["temp_dir"], settings["env_file"], settings["trainer"]["runtime_env"]
    return "$" in str([paths, settings["container"], settings["checks"]])


def _shares_image(settings: "Settings") -> bool:
    return settings["container"]["stage"] == "shared"


def _has_runtime(*names: str) -> "Condition":
    return lambda settings: set(names) & set(settings["container"]["runtimes"])


_HAS_APPTAINER = _has_runtime("apptainer", "singularity")
CORE = "core"  # files that are in every script
# Name -> whether a job needs it, and its files.
PARTS: "Dict[str, Tuple[Condition, List[str]]]" = {
    name: (condition, ["%s.py" % file for file in files.split()])
    for name, condition, files in (
        ("types", lambda _: False, "wire/messages wire/settings"),  # only type checkers read them
        (
            "gpus",
            _has_gpus,
            "container/cuda node/checks/gpu_health node/checks/gpus node/gpu_processes node/gpu_samples "
            "node/runtimes/cdi",
        ),
        ("watch", _watches_stalls, "controller/stall container/stacks node/evidence"),
        (
            "stages",
            _has_stages,
            "controller/stage_progress container/prepare container/readiness_check container/services "
            "container/stage container/stages node/host_services node/service_logs",
        ),
        (
            "burn_in",
            lambda settings: settings["checks"]["burn_in"],
            "controller/burn_in_figures container/burn_in container/burn_in_stage",
        ),
        ("notify", lambda settings: settings["notify"], "controller/notices"),
        ("metrics", lambda settings: settings["ray"]["metrics"], "controller/metrics node/ray_targets"),
        ("restart", _may_start_again, "controller/requeue controller/roster container/joining"),
        ("ray_job", lambda settings: settings["trainer"]["launch"] == "ray-job", "container/ray_job"),
        ("check", lambda settings: not settings["trainer"]["command"], "container/check_cluster"),
        ("variables", lambda settings: settings["env_file"] or settings["node_env"], "node/node_variables"),
        ("setup", lambda settings: settings["container"]["setup"], "container/setup"),
        ("sweep", lambda settings: settings["sweep"], "combinations"),
        ("expansion", _has_variables, "node/checks/expansion"),
        # Apptainer builds an image into a cache that nodes share.
        (
            "shared_files",
            lambda settings: _shares_image(settings) or _HAS_APPTAINER(settings),
            "node/shared_file",
        ),
        ("shared_image", _shares_image, "node/shared_image"),
        ("build", lambda settings: settings["container"]["build"], "node/image_build"),
        ("engine", _has_runtime("podman", "docker"), "node/image node/pull node/runtimes/engine"),
        ("podman", _has_runtime("podman"), "node/runtimes/podman"),
        ("docker", _has_runtime("docker"), "node/runtimes/docker"),
        ("apptainer", _HAS_APPTAINER, "node/runtimes/apptainer"),
        ("none", _has_runtime("none", "pyxis"), "node/runtimes/none node/shared_memory container/guard"),
        ("pyxis", _has_runtime("pyxis"), "controller/service_steps node/runtimes/pyxis"),
    )
}


def is_needed(name: str, settings: "Settings") -> bool:
    """Whether a job needs a part."""
    return bool(PARTS[name][0](settings))


def needed_parts(settings: "Settings") -> "List[str]":
    """Names of the parts that a job needs."""
    return [name for name in PARTS if is_needed(name, settings)]


def part_of(file: str) -> str:
    """The name of the part that has a file of the agent; CORE for all others."""
    return next((name for name, (_, files) in PARTS.items() if file in files), CORE)


def missing_parts(settings: "Settings", files: "Collection[str]") -> "List[str]":
    """Names of the parts that a job needs, and whose files are not among these."""
    return [name for name in needed_parts(settings) if not set(PARTS[name][1]) <= set(files)]
