"""The section `container` of the job spec."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, ValidationInfo, field_validator, model_validator

from slurmray.spec.image_names import ImageName, find_misfit
from slurmray.spec.mounts import MountField
from slurmray.spec.runtimes import RUNTIMES, Choice, candidates
from slurmray.spec.slurm_section import Model
from slurmray.spec.types import (
    AbsolutePath,
    Count,
    FilePath,
    Line,
    Text,
    accept,
    find_duplicates,
    matches,
    pattern,
    shown,
)

DEFAULT_IMAGE = "docker.io/rayproject/ray:2.60.0-py311"

# Field that a runtime does not support -> what to use instead.
_INSTEAD = {
    "args": "use step_args",
    "step_args": "use args",
    "setup": "use the field setup outside container",
    "command": "set runtime to podman, docker, apptainer or singularity",
}

# Options of srun that the script depends on: one task on each node, of this job, and its streams.
_SRUN_RESERVED = (
    *("--jobid", "--nodes", "-N", "--nodelist", "-w", "--ntasks", "-n", "--ntasks-per-node"),
    *("--export", "--input", "-i", "--output", "-o", "--error", "-e", "--label", "-l", "--pty"),
    *("--kill-on-bad-exit", "-K", "--wait", "-W", "--multi-prog", "--relative", "-r"),
)
# Options of `podman run` and `docker run` by which a container runs another program, or outlives its job.
_RUN_RESERVED = re.compile("(?:--(?:detach|entrypoint|name|pidfile|restart|rm)|-[itPq]*d[itPq]*)(?:=|$)")


def _check_srun_option(argument: str) -> str:
    # A short option may have its value in the same word, e.g. -n4.
    option = argument.partition("=")[0] if argument.startswith("--") else argument[:2]
    if option in _SRUN_RESERVED:
        raise ValueError(f"{option}: slurmray sets it; leave it out")
    return argument


def _check_run_option(argument: str) -> str:
    if _RUN_RESERVED.match(argument):
        option = argument.partition("=")[0]
        raise ValueError(f"{option}: slurmray starts and ends the container; leave it out")
    return argument


_ULIMIT = "[a-z]+=(-1|[0-9]{1,19})(:(-1|[0-9]{1,19}))?"
_PYTHON = "[A-Za-z0-9_][A-Za-z0-9._+-]*|[/$][^:]*"
_USER = "auto|image|[0-9]{1,10}(:[0-9]{1,10})?"
_SHM_SIZE = "[1-9][0-9]{0,17}[bkmgBKMG]?"


_ULIMIT_RULE = matches(_ULIMIT, "expected NAME=SOFT[:HARD], e.g. memlock=-1:-1, got {got}")
_PYTHON_RULE = matches(
    _PYTHON, "expected a name, or an absolute path without colons, e.g. /opt/venv/bin/python3, got {got}"
)
_USER_RULE = matches(_USER, "expected auto, image, or UID[:GID] in numbers, got {got}")


class Build(Model):
    """How to build the image on a node without it. Both paths are relative to the submit folder."""

    file: Line
    """The Containerfile or Dockerfile."""
    context: Line = "."
    """The folder whose files the build can copy."""


class Container(Model):
    """The container on every node, unless runtime is none."""

    runtime: Choice = "auto"
    """auto: on each node Podman or Docker, first the one that has the image. none: no container.

    See docs/reference/runtimes.md.
    """
    command: Line | None = None
    """The program, if the runtime goes by another name, e.g. `podman-hpc`. Not set: the runtime's name."""
    image: ImageName = DEFAULT_IMAGE
    """Image with Python and Ray. A name without a registry is looked up locally, then as docker.io/NAME.

    For Apptainer and Singularity also the path of a .sif file or of a sandbox (e.g. ./sandbox), or
    oci-archive:PATH. For pyxis also the path of a squashfs file, which begins with / or ./.
    """
    pull: Literal["always", "missing", "never"] = "missing"
    """When to pull the image."""
    stage: Literal["node", "shared"] = "node"
    """Who pulls or builds the image. node: each node that lacks it.

    shared: one of them, and the others load its archive from the folder `images` beside the run directory.
    """
    build: Build | None = None
    """Build the image on nodes without it, instead of pulling it; it gets the name container.image."""
    archive: FilePath | None = None
    """Load the image from this tar (of `docker save`) on nodes without it, instead of pulling it.

    Podman 4.3 loads no compressed one, e.g. .tar.gz; Podman 5.4 does.
    """
    user: Annotated[Line, _USER_RULE, pattern(f"^(?:{_USER})$")] = "auto"
    """auto: files of the job belong to the submitter. image: USER of the image. Or UID[:GID]."""
    accelerator: Literal["auto", "nvidia", "amd", "none"] = "auto"
    """Vendor of the GPUs; auto: detected on the node; none: no device options, and GPUs are not counted."""
    mounts: list[MountField] = Field(default=[])
    """`SOURCE[:DEST[:OPTIONS]]`. The submit folder is always mounted. `~` is the submitter's home.

    DEST is absolute; without it, the source's path. OPTIONS: ro, rw, z, Z, or a propagation, e.g. rslave.
    """
    workdir: AbsolutePath | None = None
    """Working directory in the container. Not set: the submit folder."""
    python: Annotated[Line, _PYTHON_RULE, pattern(f"^(?:{_PYTHON})$")] = "python3"
    """The Python that has Ray: a path, e.g. `/opt/venv/bin/python3`, or a name that is looked up in PATH.

    The folder of a path comes first in the PATH of all commands in the container.
    """
    setup: Text = ""
    """Commands in the container (bash), on every node before Ray starts, e.g. `pip install -r x.txt`.

    What they export is the environment of Ray and the trainer, so they may activate a Python. The first that
    fails ends the job. What they install is gone with the container.
    """
    setup_timeout: Count = 600
    """Seconds for `setup`."""
    shm_size: Annotated[Line, pattern(f"^{_SHM_SIZE}$")] | None = None
    """Size of /dev/shm, e.g. `64g`. Not set: the size of the node's /dev/shm."""
    ulimits: list[Annotated[Line, _ULIMIT_RULE, pattern(f"^{_ULIMIT}$")]] = Field(default=[])
    """Soft and hard limits, e.g. `memlock=-1:-1`. Rootless Podman cannot raise the job's hard ones."""
    args: list[Annotated[Text, AfterValidator(_check_run_option)]] = Field(default=[])
    """More options of `podman run`, `docker run`, `apptainer exec` or `singularity exec`."""
    step_args: list[Annotated[Text, AfterValidator(_check_srun_option)]] = Field(default=[])
    """With pyxis or none: more options of the `srun` that starts the task on each node."""

    @field_validator("*", mode="before")
    @classmethod
    def _check_support(cls, value: object, info: ValidationInfo) -> object:
        runtime = info.data.get("runtime")
        if runtime and info.field_name in RUNTIMES[runtime].unsupported:
            instead = _INSTEAD.get(info.field_name or "", "leave it out")
            raise ValueError(f"not supported with runtime {runtime}: {instead}")
        return value

    @field_validator("args")
    @classmethod
    def _check_shared_memory(cls, value: list[str], info: ValidationInfo) -> list[str]:
        runtime = info.data.get("runtime", "docker")
        text = "\n".join(value)
        if RUNTIMES[runtime].images == "engine" and re.search(r"^--shm-size(?=[=\n])", text, re.MULTILINE):
            raise ValueError("--shm-size: use container.shm_size")
        # Podman refuses --shm-size, which each container gets, with a namespace that others have. Docker
        # ignores it.
        if "podman" in candidates(runtime) and (
            option := re.search(r"^--ipc[=\n](?!(?:private|shareable)?$).*", text, re.MULTILINE)
        ):
            why = "the container's /dev/shm is as large as the node's anyway, see container.shm_size"
            raise ValueError(f"{' '.join(option[0].split())}: leave it out; {why}")
        return value

    @field_validator("shm_size")
    @classmethod
    def _check_shm_size(cls, value: str | None) -> str | None:
        if value is not None and not re.fullmatch(_SHM_SIZE, value):
            raise ValueError(f"expected a number with b, k, m or g, e.g. 64g, got {shown(value)}")
        if value is not None and value.isdecimal() and len(value) < 7:
            raise ValueError(f"{value} means bytes: add a unit, e.g. {value}g")
        return value

    @model_validator(mode="after")
    def _check_consistency(self) -> Container:
        places = [mount.destination.rstrip("/") for mount in self.mounts if mount.destination]
        wrong = [f"two mounts have the destination {place}; keep one" for place in find_duplicates(places)]
        if why := find_misfit(self.image, self.runtime):
            wrong.append(f"image: {why}")
        if self.build and self.archive:
            wrong.append("build and archive are both set; keep one of them")
        if self.build and self.image == DEFAULT_IMAGE:
            wrong.append("build needs a name for the image: set container.image")
        if self.stage == "shared" and (self.archive or self.pull == "never"):
            why = "all nodes load archive" if self.archive else "with pull: never no node pulls"
            wrong.append(f"stage: {why}; leave stage out")
        if RUNTIMES[self.runtime].images == "apptainer":
            name = self.runtime.capitalize()
            if self.pull == "always":
                wrong.append(f"pull: {name} keeps converted images, so use another tag instead of always")
            if any(set(mount.options) - {"ro", "rw", "z", "Z"} for mount in self.mounts):
                wrong.append(f"mounts: {name} has no bind propagation, only ro and rw")
        return accept(self, wrong)
