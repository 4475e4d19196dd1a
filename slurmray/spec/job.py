"""The job spec. The docstrings here are its documentation and its JSON Schema."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, ValidationError, ValidationInfo, field_validator

from slurmray.errors import SpecError
from slurmray.slurm import syntax
from slurmray.spec.container import UNKNOWN_TO, Container
from slurmray.spec.messages import mistakes
from slurmray.spec.preset import Preset, name_or_section
from slurmray.spec.ray import Ray, check_debug
from slurmray.spec.slurm import Model, SlurmOptions
from slurmray.spec.stages import Prepare, Service
from slurmray.spec.types import EnvName, Line, Program, Text, Whole, repeated

_IN_RUN = "leave it out, or give the trainer another one in `run`"
# What `env` would not change, and what to do instead.
_SET = {
    "RAY_ADDRESS": "leave it out; the trainer joins the job's own Ray",
    "RAY_AUTH_MODE": "use ray.auth",
    "RAY_AUTH_TOKEN_PATH": "use ray.auth",
    **dict.fromkeys(("NNODES", "NODE_RANK", "GPUS_PER_NODE", "MASTER_ADDR", "MASTER_PORT"), _IN_RUN),
    "SLURMRAY_ATTEMPT": _IN_RUN,
}


class Network(Model):
    """Which of a node's addresses Ray uses."""

    interface: Line | None = None
    """Interface on every node, for example `ib0`. Not set: the address that the node's own name has."""
    family: Literal["auto", "ipv4", "ipv6"] = "auto"
    """Only addresses of this family."""


class Checks(Model):
    """What every node is checked for before its container starts, in addition to slurmray's own checks."""

    paths: list[Line] = Field(default=[])
    """Files or folders that must exist. `~` is the submitter's home."""
    same_commit: Line | None = None
    """A git work tree that must be at the same commit on every node as on the head node."""


class Stop(Model):
    """How the trainer is stopped, or a command of `prepare` that still runs."""

    lead: Whole = Field(default=60, ge=0, le=65535)
    """Seconds before the time limit at which the trainer gets the signal; 0: no signal then.

    Slurm may be up to a minute early. The trainer has this time less 15 seconds, and never less than `grace`.
    """
    signal: Literal["HUP", "INT", "QUIT", "TERM", "USR1", "USR2"] = "TERM"
    """The signal that the trainer gets first, near the time limit and at scancel."""
    grace: Whole = Field(default=10, ge=0)
    """Seconds from the signal at scancel until SIGKILL; fewer where the cluster's KillWait is too short."""


class Requeue(Model):
    """Whether Slurm starts the job again; each attempt has a cluster and a run directory of its own."""

    max: Whole = Field(default=0, ge=0)
    """How many times after a lost node or preemption; SLURMRAY_ATTEMPT counts all attempts."""
    exit_code: Whole = Field(default=0, ge=0, le=255)
    """Exit code with which the trainer asks for another attempt, any number of times; 0: none.

    `max` counts lost nodes and preemption only. At scancel, after which there is no other attempt, such a
    trainer gets TERM instead of stop.signal.
    """

    @property
    def possible(self) -> bool:
        """Whether there may be another attempt."""
        return bool(self.max or self.exit_code)


class JobSpec(Model):
    """A Ray cluster in containers on the nodes of one Slurm job, and the command that runs on it."""

    name: Line = "slurmray"
    """Name of the job."""
    preset: Preset | None = Field(default=None, json_schema_extra=name_or_section)
    """The trainer: its arguments are completed and its placement is checked. A name alone is enough."""
    slurm: SlurmOptions = Field(default_factory=SlurmOptions)
    setup: Text = ""
    """Host commands (bash), run first on every node, for example `module load podman`."""
    run_dir: Line = "slurmray-runs"
    """Folder that all nodes share, for logs; JOBID-ATTEMPT below it. Relative to the submit folder."""
    template: Line | None = None
    """A site's own template, which extends job.sbatch.j2: see docs/guides/my-cluster.md.

    Examples are in templates/sites. Read when the script is rendered; relative to the current folder,
    `~` is your home.
    """
    container: Container = Field(default_factory=Container)
    env: dict[EnvName, Text | None] = Field(default={})
    """Environment of Ray and the trainer. null: the submitter's own value, which is not in the script."""
    network: Network = Field(default_factory=Network)
    ray: Ray = Field(default_factory=Ray, validate_default=True)
    checks: Checks = Field(default_factory=Checks)
    preflight: Literal["fail", "warn", "none"] = "fail"
    """Checks before Ray starts. fail: a finding ends the job; warn: it is only logged; none: no checks."""
    prepare: list[Prepare] = Field(default=[])
    """Commands before the trainer, one after another, for example data preparation or a download."""
    services: list[Service] = Field(default=[])
    """Processes beside Ray, for example a retriever. They start after `prepare`."""
    run: Program = None
    """The trainer: a list is a command and its arguments, a text is for bash. Not set: a built-in check."""
    launch: Literal["exec", "ray-job"] = Field(default="exec", validate_default=True)
    """exec: the trainer is a process in the head node's container. ray-job: submitted by Ray's job API."""
    stop: Stop = Field(default_factory=Stop, validate_default=True)
    on_node_loss: Literal["fail", "continue"] = "fail"
    """continue: the job goes on when it loses a worker node while the trainer runs."""
    requeue: Requeue = Field(default_factory=Requeue)

    def __init__(self, /, **fields: Any) -> None:
        """The fields above; a section is a dict of its own fields. SpecError lists all mistakes at once."""
        try:
            super().__init__(**fields)
        except ValidationError as error:
            raise SpecError(mistakes(error, type(self))) from None

    @field_validator("env")
    @classmethod
    def _not_what_is_set(cls, value: dict[str, str | None]) -> dict[str, str | None]:
        if wrong := [f"{name} is set by slurmray: {_SET[name]}" for name in value if name in _SET]:
            raise ValueError(*wrong)
        return value

    @field_validator("ray")
    @classmethod
    def _one_debugger(cls, value: Ray, info: ValidationInfo) -> Ray:
        check_debug(value.debug, info.data.get("env", {}))
        return value

    @field_validator("launch")
    @classmethod
    def _who_reads_it(cls, value: str, info: ValidationInfo) -> str:
        # Ray hands a runtime environment to drivers that its job API starts. To others ray.init() gives it.
        if value == "exec" and "ray" in info.data and info.data["ray"].runtime_env is not None:
            raise ValueError("ray.runtime_env needs ray-job; with exec give it to ray.init() in the trainer")
        return value

    @field_validator("stop", mode="after")
    @classmethod
    def _lead_fits(cls, value: Stop, info: ValidationInfo) -> Stop:
        time = dict(info.data["slurm"].given()).get("time") if "slurm" in info.data else None
        try:
            limit = syntax.seconds(time or "UNLIMITED")
        except ValueError:
            return value  # Slurm reports it
        if limit is not None and value.lead >= limit:
            fix = "ask for more, or for less stop.lead"
            raise ValueError(f"lead of {value.lead} s is no less than slurm.time, {time}: {fix}")
        return value

    @field_validator("prepare", "services")
    @classmethod
    def _names(cls, value: list[Prepare] | list[Service]) -> list[Prepare] | list[Service]:
        if twice := repeated([item.name for item in value]):
            raise ValueError(*(f"two are called {name}; give each a name of its own" for name in twice))
        return value

    @field_validator("services")
    @classmethod
    def _images_of_services(cls, value: list[Service], info: ValidationInfo) -> list[Service]:
        runtime = info.data["container"].runtime if "container" in info.data else "auto"
        names = [service.name for service in value if service.image and runtime in UNKNOWN_TO]
        if names:
            raise ValueError(
                *(f"{name}: an image of its own needs the runtime podman or docker" for name in names)
            )
        return value

    @field_validator("services")
    @classmethod
    def _gpus_of_services(cls, value: list[Service], info: ValidationInfo) -> list[Service]:
        there, taken = _gpus(info.data["slurm"]) if "slurm" in info.data else None, _taken(value)
        if there is not None and taken > there:
            text = f"they take {_shares(value)} = {taken} GPUs, a node has {there}"
            raise ValueError(f"{text}: give them fewer, or ask for more in slurm.gpus_per_node")
        return value

    @property
    def env_from_submitter(self) -> list[str]:
        """Names in `env` whose values are the submitter's own."""
        return [name for name, value in self.env.items() if value is None]

    @property
    def ray_gpus(self) -> int:
        """GPUs of each node that services leave to Ray."""
        return self.gpus - _taken(self.services)

    @property
    def gpus_of_services(self) -> str:
        """`retriever 2 + judge 1`: GPUs of each node; empty if services take none."""
        return _shares(self.services)

    @property
    def gpus(self) -> int:
        """GPUs on each node; 0 where none are asked for."""
        return _gpus(self.slurm)


def _gpus(options: SlurmOptions) -> int:
    if options.gpus_per_node is not None:
        return syntax.gpus_in_count(options.gpus_per_node)[1]
    return syntax.gpus_in_gres(options.gres)[1] if options.gres is not None else 0


def _taken(services: list[Service]) -> int:
    return sum(service.gpus for service in services)


def _shares(services: list[Service]) -> str:
    return " + ".join(f"{service.name} {service.gpus}" for service in services if service.gpus)
