"""The container runtimes of a job spec. The table in slurmray/agent/node/runtimes has those of a node."""

from __future__ import annotations

from typing import Literal, NamedTuple

Choice = Literal["auto", "docker", "podman", "apptainer", "singularity", "pyxis", "none"]


class Runtime(NamedTuple):
    """What a job may have with a runtime.

    templates: files in templates/runtimes with the story's functions for it. unsupported: fields of
    `container`. images: the kind of its images' names. has_service_images: whether a service may have a
    container of its own.
    """

    templates: tuple[str, ...]
    unsupported: tuple[str, ...]
    images: Literal["engine", "apptainer", "pyxis", "none"] = "engine"
    has_service_images: bool = True


_LIKE_APPTAINER = Runtime(
    ("apptainer",), ("stage", "build", "user", "shm_size", "ulimits", "step_args"), "apptainer", False
)
_BY_SRUN = ("pull", "stage", "build", "archive", "user", "shm_size", "ulimits", "command", "args")
# container.runtime -> what it means.
RUNTIMES = {
    "auto": Runtime(("podman", "docker"), ("command", "step_args")),
    "podman": Runtime(("podman",), ("step_args",)),
    "docker": Runtime(("docker",), ("step_args",)),
    "apptainer": _LIKE_APPTAINER,
    "singularity": _LIKE_APPTAINER,
    # The task itself runs in the container.
    "pyxis": Runtime(("none", "pyxis"), _BY_SRUN, "pyxis"),
    "none": Runtime(("none",), (*_BY_SRUN, "image", "mounts", "setup"), "none", False),
}


def candidates(runtime: str) -> tuple[str, ...]:
    """Return those of which a node uses the first one that works there."""
    return ("podman", "docker") if runtime == "auto" else (runtime,)
