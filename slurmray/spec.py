"""The job spec. The docstrings here are its documentation and its JSON Schema."""

from __future__ import annotations

import re
from typing import Literal

from pydantic import Field, field_validator, model_validator

from slurmray import slurm
from slurmray.slurm_options import Model, SlurmOptions
from slurmray.values import (
    AbsolutePath,
    Count,
    EnvName,
    Flag,
    Line,
    MountField,
    Port,
    Program,
    Text,
    Whole,
    shown,
)

DEFAULT_IMAGE = "docker.io/rayproject/ray:2.60.0-py311"
TEMP_DIR_MAX = 25  # characters; Ray's sockets allow 107, the rest is slurmray's and Ray's own folders

# Options of `ray start` that slurmray sets, each with what to use instead.
RAY_TAKEN: dict[str, str] = {
    "--address": "slurmray sets it",
    "--block": "slurmray sets it",
    "--dashboard-port": "use ray.dashboard_port",
    "--head": "slurmray sets it",
    "--node-ip-address": "use network.interface and network.family",
    "--node-name": "slurmray sets it",
    "--num-cpus": "use slurm.cpus_per_task",
    "--num-gpus": "use slurm.gpus_per_node",
    "--port": "use ray.port",
    "--temp-dir": "use ray.temp_dir",
}


class Build(Model):
    """How to build the image on a node that lacks it. Both paths are relative to the submit folder."""

    file: Line
    """The Containerfile or Dockerfile."""
    context: Line = "."
    """The folder whose files the build can copy."""


class Container(Model):
    """The container that runs on every node."""

    runtime: Literal["auto", "docker", "podman"] = "auto"
    """auto: on each node Podman where it works, else Docker."""
    image: Line = DEFAULT_IMAGE
    """Image with Python and Ray. A name without a registry is looked up locally, then as docker.io/NAME."""
    pull: Literal["always", "missing", "never"] = "missing"
    """When to pull the image."""
    build: Build | None = None
    """Build the image where it is missing, instead of pulling it; container.image is the name it gets."""
    user: Line = "auto"
    """auto: what the job writes belongs to the submitter. image: the image's own USER. Else UID[:GID]."""
    accelerator: Literal["auto", "nvidia", "amd", "none"] = "auto"
    """Whose device flags to use; auto: looked up on the node; none: no flags, and devices are not counted."""
    mounts: list[MountField] = Field(default=[])
    """`SOURCE[:DEST[:OPTIONS]]`. The submit folder is there anyway. `~` is the submitter's home.

    DEST is absolute; without it the source's path. OPTIONS: ro, rw, z, Z, or a propagation as rslave.
    """
    workdir: AbsolutePath | None = None
    """Working directory in the container. Not set: the submit folder."""
    shm_size: Line | None = None
    """Size of /dev/shm, as `64g`. Not set: as large as the node's own."""
    ulimits: list[Line] = Field(default=[])
    """As `memlock=-1:-1`, soft and hard limit."""
    args: list[Text] = Field(default=[])
    """Options for `podman run` or `docker run`, passed on as they are."""

    @field_validator("image")
    @classmethod
    def _image(cls, value: str) -> str:
        if value.startswith("-") or re.search(r"\s", value):
            raise ValueError(f"expected the name of an image, got {shown(value)}")
        return value

    @field_validator("user")
    @classmethod
    def _user(cls, value: str) -> str:
        if not re.fullmatch(r"auto|image|[0-9]+(:[0-9]+)?", value):
            raise ValueError(f"expected auto, image, or numbers as UID[:GID], got {shown(value)}")
        return value

    @field_validator("shm_size")
    @classmethod
    def _shm_size(cls, value: str | None) -> str | None:
        if value is not None and not re.fullmatch(r"[1-9][0-9]*[bkmgBKMG]?", value):
            raise ValueError(f"expected a number with b, k, m or g, as 64g, got {shown(value)}")
        return value

    @field_validator("ulimits")
    @classmethod
    def _ulimits(cls, value: list[str]) -> list[str]:
        for word in value:
            if not re.fullmatch(r"[a-z]+=(-1|[0-9]+)(:(-1|[0-9]+))?", word):
                raise ValueError(f"expected NAME=SOFT[:HARD], as memlock=-1:-1, got {shown(word)}")
        return value

    @model_validator(mode="after")
    def _consistent(self) -> Container:
        if self.build and self.image == DEFAULT_IMAGE:
            raise ValueError("build needs a name for what is built: set container.image")
        places = [mount.destination.rstrip("/") for mount in self.mounts if mount.destination]
        for place in dict.fromkeys(places):
            if places.count(place) > 1:
                raise ValueError(f"two mounts go to {place}; keep one")
        return self


class Network(Model):
    """Which of a node's addresses Ray uses."""

    interface: Line | None = None
    """Interface on every node, as `ib0`. Not set: the address that the node's own name has."""
    family: Literal["auto", "ipv4", "ipv6"] = "auto"
    """Only addresses of this family."""


class Ray(Model):
    """How Ray is started. Everything that is not said here has Ray's own default."""

    port: Port = "auto"
    """Port of the GCS on the head node; auto: free ones, of the job's own."""
    dashboard_port: Port = "auto"
    """Port of the dashboard on the head node."""
    ready_timeout: Count = 600
    """Seconds for the cluster to become whole, from the start of the containers on."""
    temp_dir: AbsolutePath = "/tmp"  # noqa: S108 - the default of Ray
    """Folder on the node's own disk; the job's private folder is made in it. At most 25 characters."""
    auth: Literal["auto", "token", "none"] = "auto"
    """auto: token authentication where Ray has it (2.52 and later). token: an older Ray ends the job."""
    metrics: Flag = False
    """Ray exports metrics, on a port that anyone who reaches the node can read."""
    args: list[Text] = Field(default=[])
    """More options of `ray start`, on every node."""
    head_args: list[Text] = Field(default=[])
    """More options of `ray start`, on the head node."""
    worker_args: list[Text] = Field(default=[])
    """More options of `ray start`, on the worker nodes."""

    @field_validator("temp_dir")
    @classmethod
    def _short(cls, value: str) -> str:
        if len(value) > TEMP_DIR_MAX:
            raise ValueError(
                f"{len(value)} characters; at most {TEMP_DIR_MAX}, because Ray's sockets below it allow 107"
            )
        if not re.fullmatch(r"[A-Za-z0-9_./-]+", value):
            raise ValueError(f"use only letters, digits and _ . - / in it, got {shown(value)}")
        return value

    @field_validator("args", "head_args", "worker_args")
    @classmethod
    def _ours(cls, value: list[str]) -> list[str]:
        for word in value:
            if instead := RAY_TAKEN.get(word.partition("=")[0]):
                raise ValueError(f"{word.partition('=')[0]}: {instead}")
        return value

    @model_validator(mode="after")
    def _two_ports(self) -> Ray:
        if self.port == self.dashboard_port != "auto":
            raise ValueError(f"port and dashboard_port are both {self.port}")
        return self


class Checks(Model):
    """What every node is checked for before its container starts, besides what slurmray checks anyway."""

    paths: list[Line] = Field(default=[])
    """Files or folders that must be there. `~` is the submitter's home."""
    same_commit: Line | None = None
    """A git work tree that must be at the same commit on every node as on the head."""


class Stop(Model):
    """How the trainer is asked to end."""

    lead: Whole = Field(default=60, ge=0, le=65535)
    """Seconds before the time limit at which the trainer gets the signal; 0: it gets none then.

    Slurm may be up to a minute early. The trainer has all of it but the last 15 seconds, and never less than
    `grace`.
    """
    signal: Literal["HUP", "INT", "QUIT", "TERM", "USR1", "USR2"] = "TERM"
    """The signal that the trainer gets first, then and at scancel."""
    grace: Whole = Field(default=10, ge=0)
    """Seconds from scancel until it is killed; less where the cluster's KillWait does not leave so many."""


class Requeue(Model):
    """Whether the job starts anew by itself, with a cluster and a run directory of its own."""

    max: Whole = Field(default=0, ge=0)
    """How many times, after the loss of a node or preemption; SLURMRAY_ATTEMPT counts them."""


class JobSpec(Model):
    """A Ray cluster in containers on the nodes of one Slurm job, and the command that runs on it."""

    name: Line = "slurmray"
    """Name of the job."""
    slurm: SlurmOptions = Field(default_factory=SlurmOptions)
    setup: Text = ""
    """Host commands (bash), run first of all on every node, as `module load podman`."""
    run_dir: Line = "slurmray-runs"
    """Folder that all nodes share, for logs; JOBID-ATTEMPT below it. Relative to the submit folder."""
    container: Container = Field(default_factory=Container)
    env: dict[EnvName, Text | None] = Field(default={})
    """Environment of Ray and the trainer. null: the submitter's own value, never written down."""
    network: Network = Field(default_factory=Network)
    ray: Ray = Field(default_factory=Ray)
    checks: Checks = Field(default_factory=Checks)
    preflight: Literal["fail", "warn", "none"] = "fail"
    """What a finding of the checks before Ray starts does: ends the job, is only logged; none: no checks."""
    run: Program = None
    """The trainer: a list is a command and its arguments, a text is for bash. Not set: a built-in check."""
    stop: Stop = Field(default_factory=Stop)
    on_node_loss: Literal["fail", "continue"] = "fail"
    """continue: the job goes on when it loses a worker node while the trainer runs."""
    requeue: Requeue = Field(default_factory=Requeue)

    @property
    def gpus(self) -> int:
        """GPUs on each node; 0 where none are asked for."""
        if self.slurm.gpus_per_node is not None:
            return slurm.gpus_in_count(self.slurm.gpus_per_node)[1]
        return slurm.gpus_in_gres(self.slurm.gres)[1] if self.slurm.gres is not None else 0
