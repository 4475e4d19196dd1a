"""The job spec. Its docstrings are its reference and the descriptions in its JSON Schema."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Annotated, Any, Literal, cast

from pydantic import (
    AfterValidator,
    Field,
    ModelWrapValidatorHandler,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)
from typing_extensions import Self, Unpack

from slurmray.agent.inherited import FOREIGN
from slurmray.agent.paths import FOLDER_VARIABLE
from slurmray.errors import SpecError
from slurmray.slurm import syntax
from slurmray.spec.container import Container
from slurmray.spec.fields import JobFields
from slurmray.spec.image_names import find_misfit
from slurmray.spec.prepare_and_services import Prepare, Service
from slurmray.spec.preset import Preset, allow_name
from slurmray.spec.ray_section import Ray, find_debug_variables
from slurmray.spec.runtimes import RUNTIMES
from slurmray.spec.slurm_section import Component, GroupBase, Model, SlurmOptions
from slurmray.spec.small_sections import Checks, Network, Notify, Requeue, Restart, Stop, Watch
from slurmray.spec.sweep_field import check_slurm, check_values
from slurmray.spec.types import (
    MAX_VARIABLES,
    EnvName,
    FilePath,
    Integer,
    Line,
    Name,
    Program,
    Text,
    accept,
    find_duplicates,
)
from slurmray.spec.validation_errors import list_problems

_IN_RUN = "leave it out, or set it in `run`"
# Variables that slurmray sets, so that `env` cannot, and what to do instead.
_RESERVED_VARIABLES = {
    **dict.fromkeys(FOREIGN, "leave it out; the trainer joins the job's own Ray"),
    "RAY_OVERRIDE_RESOURCES": "use ray.args",
    "RAY_AUTH_MODE": "use ray.auth",
    "RAY_AUTH_TOKEN_PATH": "use ray.auth",
    **dict.fromkeys(("NNODES", "NODE_RANK", "GPUS_PER_NODE", "MASTER_ADDR", "MASTER_PORT"), _IN_RUN),
    **dict.fromkeys(
        ("SLURMRAY_ATTEMPT", "SLURMRAY_RESTART", "SLURMRAY_RUN_DIR", "SLURMRAY_END_TIME"), _IN_RUN
    ),
    FOLDER_VARIABLE: "leave it out; clean-up finds the job's processes by it",
}
# The same for variables that Slurm sets in the job; null, as known there, is no mistake.
OF_THE_JOB = ("SLURM_JOB_ID", "SLURM_JOB_NAME", "SLURM_ARRAY_JOB_ID", "SLURM_ARRAY_TASK_ID")


def _check_below(path: str) -> str:
    if path[0] in "/~" or ".." in PurePosixPath(path).parts:
        raise ValueError(f"{path} is not below the current folder; go to one above both")
    if ":" in path.partition("/")[0]:
        raise ValueError(f"rsync takes what is before the colon for a host; write ./{path}")
    return path


def _allow_one_item(schema: dict[str, Any]) -> None:
    """Allow one item in place of a list."""
    items = {"type": schema.pop("type"), "items": schema["items"]}
    schema["anyOf"] = [schema.pop("items"), items]


class JobSpec(Model):
    """A Ray cluster in containers on the nodes of a Slurm job, and the command that runs on it."""

    name: Name = "slurmray"
    """Name of the job."""
    preset: Preset | None = Field(default=None, json_schema_extra=allow_name)
    """The trainer, to complete its arguments and check its placement: a name, or the fields below."""
    slurm: SlurmOptions = Field(default_factory=SlurmOptions.model_construct)
    setup: Text = ""
    """Host commands (bash), run first on every node, e.g. `module load podman`. They must not `exit`."""
    run_dir: FilePath = "slurmray-runs"
    """Folder for run directories, on a file system that all nodes share. Relative to the submit folder."""
    template: FilePath | None = None
    """A site's own template, which extends job.sbatch.j2: see docs/guides/my-cluster.md.

    Examples are in templates/sites. Read when the script is rendered; relative to the current folder,
    `~` is your home.
    """
    container: Container = Field(default_factory=Container.model_construct)
    env: dict[EnvName, Text | None] = Field(default={})
    """Environment of Ray and the trainer. null: the submitter's value at sbatch; it is not in the script."""
    env_file: FilePath | None = None
    """File with more variables, read on every node: lines NAME=VALUE, without quotes; # begins a comment.

    For secrets: slurmray writes its values neither to the script nor to the log or the run directory. Others
    must not be able to read it. `env` overrides it.
    """
    node_env: Text = ""
    """Host commands (bash), run on every node after `setup`. Ray and the trainer get what they export.

    For values that differ between nodes, e.g. `export NCCL_IB_HCA=$(my-site-hca)`. They override `env`.
    """
    network: Network = Field(default_factory=Network.model_construct)
    ray: Ray = Field(default_factory=Ray.model_construct, validate_default=True)
    checks: Checks = Field(default_factory=Checks.model_construct)
    preflight: Literal["fail", "warn", "none"] = "fail"
    """Optional checks before Ray starts. fail: a finding ends the job; warn: it is logged; none: no checks.

    Those marked `preflight` in docs/reference/checks.md. Findings of the others always end the job.
    """
    prepare: list[Prepare] = Field(default=[])
    """Commands that run before the trainer, in order, e.g. a download."""
    services: list[Service] = Field(default=[])
    """Processes beside Ray, e.g. a retriever. They start after `prepare`."""
    run: Program = None
    """Command of the trainer: a list of arguments, or a text for bash, which gets the preset's as "$@".

    Not set: the built-in check.
    """
    sweep: dict[EnvName, list[Line]] = Field(default={}, validate_default=True)
    """Parameters with their values, e.g. `{lr: [1e-6, 5e-6]}`: a task of a job array for each combination.

    `$lr` in `run` is its value; the trainer, prepare steps and services also have it as an environment
    variable. At most 1,000 tasks; `slurm.array: "%4"` lets 4 run at a time. See docs/guides/sweeps.md.
    """
    launch: Literal["exec", "ray-job"] = Field(default="exec", validate_default=True)
    """exec: the trainer is a process in the head node's container. ray-job: a job of Ray's job API."""
    stop: Stop = Field(default_factory=Stop.model_construct, validate_default=True)
    spares: Integer = Field(default=0, ge=0)
    """Nodes in addition to slurm.nodes, which take the place of nodes that fail.

    They are checked like the others, have image and container, and wait. The trainer does not count them.
    """
    restart: Restart = Field(default_factory=Restart.model_construct)
    on_node_loss: Literal["fail", "continue", "restart"] = Field(default="fail", validate_default=True)
    """What happens if a node is lost while the trainer runs.

    continue: the trainer goes on without a worker node, and a spare one joins Ray. restart: Ray and trainer
    are started again on the other nodes and the spare ones, with what the preset adds to resume; where no
    spare one is left, also on the node itself if only its container or Ray has ended.
    """
    heartbeat_timeout: Integer = Field(default=25, ge=10)
    """Seconds without a heartbeat after which a node is lost, unless its host answers to a new connection.

    A host gets up to 3 s to answer. A node whose host answers is lost after twice this time and up to 5 s, as
    TCP may need as long again after a network cut. A node whose host has booted again, or that Slurm has
    marked down, is lost at once; Slurm does so only after SlurmdTimeout, often 300 s.

    Raise it for nodes that stop answering for a while. Lower it to lose less time after a power loss. Nodes
    send a heartbeat every 2.5 s, or ten within a shorter timeout. On a busy node they may be seconds late,
    and after a short cut TCP repeats them only after 6 s; hence at least 10.
    """
    requeue: Requeue = Field(default_factory=Requeue.model_construct)
    watch: Watch = Field(default_factory=Watch.model_construct)
    notify: Notify | None = None
    sync: list[Annotated[FilePath, AfterValidator(_check_below)]] = Field(default=[])
    """Files and folders to copy to the cluster before a job is submitted there, with `host` in a profile.

    They are below the current folder, and get the same paths in the submit folder. Nothing is removed there.
    """
    include: list[FilePath] = Field(default=[], json_schema_extra=_allow_one_item)
    """Paths of other job specs, relative to this file. They have the fields that this one lacks.

    Sections are merged field by field, lists are not merged. Of several files, the last one has priority. At
    most 64 files, of 256 KB in all.
    """

    def __init__(self, /, **fields: Unpack[JobFields]) -> None:
        """Make a job spec from its fields; a section may be a dict. SpecError lists all mistakes."""
        super().__init__(**cast("dict[str, Any]", fields))

    @model_validator(mode="wrap")
    @classmethod
    def _raise_spec_error(cls, data: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        try:
            return handler(data)
        except ValidationError as error:
            raise SpecError(list_problems(error, cls)) from None

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """Return a copy with other values of some fields; SpecError where it would be no valid job spec."""
        del deep  # nothing in it changes
        given = {name: getattr(self, name) for name in self.model_fields_set}
        return type(self)(**{**given, **(update or {})})

    @field_validator("include")
    @classmethod
    def _check_include(cls, value: list[str]) -> list[str]:
        if value:
            raise ValueError("only in files: use load()")
        return value

    @field_validator("env")
    @classmethod
    def _check_reserved(cls, value: dict[str, str | None]) -> dict[str, str | None]:
        reserved = _RESERVED_VARIABLES | {name: _IN_RUN for name in OF_THE_JOB if value.get(name) is not None}
        if wrong := [f"{name} is set by slurmray: {reserved[name]}" for name in value if name in reserved]:
            raise ValueError(*wrong)
        size = sum(len(name) + len((text or "").encode()) for name, text in value.items())
        if size > MAX_VARIABLES:
            raise ValueError(
                f"has {size} bytes, and programs get at most {MAX_VARIABLES} in all variables; use files"
            )
        return value

    @field_validator("sweep")
    @classmethod
    def _check_sweep(cls, value: dict[str, list[str]], info: ValidationInfo) -> dict[str, list[str]]:
        reserved = {*_RESERVED_VARIABLES, *OF_THE_JOB}
        wrong = [f"{name} is set by slurmray; use another name" for name in value if name in reserved]
        wrong += [
            f"{name} is also in env; leave it out there" for name in value if name in info.data.get("env", {})
        ]
        wrong += check_values(value)
        if "slurm" in info.data:
            wrong += check_slurm(info.data["slurm"], has_sweep=bool(value))
        if value and re.search(r"\$\{?SLURM_", info.data.get("run_dir", "")):
            wrong.append("run_dir: each task has a folder in it; leave the variables of Slurm out")
        return accept(value, wrong)

    @field_validator("ray")
    @classmethod
    def _check_debugger(cls, value: Ray, info: ValidationInfo) -> Ray:
        return accept(value, find_debug_variables(value.debug, info.data.get("env", {})))

    @field_validator("ray")
    @classmethod
    def _check_gpus(cls, value: Ray, info: ValidationInfo) -> Ray:
        if not value.gpus_per_node or "slurm" not in info.data:
            return value
        if info.data["slurm"].groups:
            raise ValueError("gpus_per_node is of all nodes, and slurm has groups; leave it out")
        if info.data["slurm"].gpus:
            raise ValueError(
                "gpus_per_node is for GPUs without GRES, and slurm requests some; use one of them"
            )
        return value

    @field_validator("ray")
    @classmethod
    def _check_head(cls, value: Ray, info: ValidationInfo) -> Ray:
        if "slurm" not in info.data or value.head.gpus is None:
            return value
        gpus, (available, *others) = value.head.gpus, _count_gpus(info.data["slurm"], value)
        if gpus > available:
            raise ValueError(
                f"head.gpus: {gpus} are more than the {available} of the head node; leave it out"
            )
        if gpus < available and not any(others):
            raise ValueError(f"head.gpus: {gpus} leaves too few for a trainer; leave it out")
        return value

    @field_validator("launch")
    @classmethod
    def _check_runtime_env(cls, value: str, info: ValidationInfo) -> str:
        # Ray passes a runtime environment only to drivers that its job API starts.
        if value == "exec" and "ray" in info.data and info.data["ray"].runtime_env is not None:
            raise ValueError("ray.runtime_env needs ray-job; with exec, pass it to ray.init() in the trainer")
        return value

    @field_validator("stop", mode="after")
    @classmethod
    def _check_lead(cls, value: Stop, info: ValidationInfo) -> Stop:
        time = dict(info.data["slurm"].given()).get("time") if "slurm" in info.data else None
        try:
            limit = syntax.seconds(time or "UNLIMITED")
        except ValueError:
            return value  # Slurm reports it
        if limit is not None and value.lead >= limit:
            fix = "raise slurm.time, or lower stop.lead"
            raise ValueError(f"lead of {value.lead} s is not less than slurm.time, {time}: {fix}")
        return value

    @field_validator("on_node_loss")
    @classmethod
    def _check_node_loss(cls, value: str, info: ValidationInfo) -> str:
        # Seen with Slurm 22.05 and 24.11 when a node is set DOWN, even with --no-kill in each component.
        if value == "continue" and "slurm" in info.data and info.data["slurm"].groups:
            raise ValueError("Slurm ends a job with groups when a host goes down; use restart or fail")
        is_fixed = "restart" in info.data and info.data["restart"].min_nodes is None
        if value != "restart" and "restart" in info.data and not is_fixed:
            raise ValueError("restart.min_nodes needs restart; set it to restart, or leave min_nodes out")
        return value

    @field_validator("spares")
    @classmethod
    def _check_spares(cls, value: int, info: ValidationInfo) -> int:
        if value and "slurm" in info.data and info.data["slurm"].groups:
            raise ValueError("each group has its own; set it in slurm.groups")
        return value

    @field_validator("restart")
    @classmethod
    def _check_restart(cls, value: Restart, info: ValidationInfo) -> Restart:
        if "slurm" not in info.data or not value.min_nodes:
            return value
        if info.data["slurm"].groups:
            raise ValueError("min_nodes: the groups of a job have fixed numbers of nodes; leave it out")
        if value.min_nodes > (nodes := info.data["slurm"].nodes):
            raise ValueError(f"min_nodes: {value.min_nodes} is more than slurm.nodes, {nodes}; lower it")
        return value

    @field_validator("prepare", "services")
    @classmethod
    def _check_names(cls, value: list[Prepare] | list[Service]) -> list[Prepare] | list[Service]:
        twice = find_duplicates([item.name for item in value])
        return accept(value, [f"two are called {name}; rename one" for name in twice])

    @field_validator("services")
    @classmethod
    def _check_service_images(cls, value: list[Service], info: ValidationInfo) -> list[Service]:
        runtime = info.data["container"].runtime if "container" in info.data else "auto"
        wrong = []
        for service in value:
            if service.image and not RUNTIMES[runtime].has_service_images:
                wrong.append(f"{service.name}: image needs runtime podman, docker or pyxis; leave it out")
            elif service.image and (why := find_misfit(service.image, runtime)):
                wrong.append(f"{service.name}: image: {why}")
            elif service.image and runtime == "pyxis" and "slurm" in info.data and info.data["slurm"].groups:
                # The service is a step, and a step has nodes of one component only.
                wrong.append(
                    f"{service.name}: image is not possible with pyxis and slurm.groups; leave it out"
                )
        return accept(value, wrong)

    @field_validator("services")
    @classmethod
    def _check_service_gpus(cls, value: list[Service], info: ValidationInfo) -> list[Service]:
        if not {"slurm", "ray"} <= info.data.keys():
            return value
        slurm, ray = info.data["slurm"], info.data["ray"]
        nodes = _count_gpus(slurm, ray)
        in_ray = slurm.node_count - _count_service_nodes(value)
        places = {"workers": nodes[1:in_ray], "head": nodes[:1], "services": nodes[in_ray:]}
        for role, gpus in places.items():
            used, available = _count_service_gpus(value, role), min(gpus, default=0)
            if gpus and used > available:
                text = f"they use {_describe_shares(value, role)} = {used} GPUs, a node has {available}"
                raise ValueError(f"{text}: give them fewer, or request more with {_choose_gpus_field(ray)}")
        return value

    @field_validator("services")
    @classmethod
    def _check_service_nodes(cls, value: list[Service], info: ValidationInfo) -> list[Service]:
        nodes = info.data["slurm"].node_count if "slurm" in info.data else None
        if nodes is None:
            return value
        wrong = [
            f"{service.name}: where: {service.where} of {nodes} nodes leaves none for Ray; raise slurm.nodes"
            for service in value
            if isinstance(service.where, int) and service.where > nodes - (not service.shared)
        ]
        if not wrong and nodes - _count_service_nodes(value) == 1:
            wrong = [
                f"{service.name}: 1 node in Ray leaves no workers; use where: all, or raise slurm.nodes"
                for service in value
                if service.where == "workers"
            ]
        return accept(value, wrong)

    @property
    def outlives_nodes(self) -> bool:
        """Whether the job goes on when Slurm marks one of its nodes down."""
        return not self.slurm.groups and (self.on_node_loss != "fail" or self.spares > 0)

    @property
    def spare_nodes(self) -> int:
        """Number of all spare nodes."""
        return sum(map(self.spares_of, self.slurm.components))

    def spares_of(self, component: Component) -> int:
        """Number of spare nodes of a component of the job."""
        return component.spares if isinstance(component, GroupBase) else self.spares

    @property
    def may_resume(self) -> bool:
        """Whether the trainer may start again: a node was lost, it asks for that, or it is stalled."""
        is_restart = "restart" in (self.on_node_loss, self.watch.action) or bool(self.restart.exit_codes)
        return self.requeue.is_possible or is_restart

    @property
    def env_from_submitter(self) -> list[str]:
        """Names in `env` with the submitter's value."""
        return [name for name, value in self.env.items() if value is None]

    @property
    def submitter_variables(self) -> dict[str, str]:
        """The variables that the job takes from its submitter -> their fields, for messages."""
        fields = {name: f"env.{name}" for name in self.env_from_submitter}
        if self.notify:
            fields.setdefault(self.notify.variable, f"notify.url: {self.notify.variable}")
        return fields

    @property
    def ray_nodes(self) -> int:
        """Nodes in Ray: the first ones of the job, without those that are for services alone."""
        return self.slurm.node_count - _count_service_nodes(self.services)

    @property
    def ray_gpus(self) -> int:
        """GPUs of each worker node for Ray, without those of services; of the head node if only it has some.

        In a job with groups: of the nodes that have GPUs.
        """
        return self.gpus - _count_service_gpus(self.services, self._role_with_gpus)

    @property
    def head_gpus(self) -> int:
        """GPUs of the head node for Ray, at most as many as of the others."""
        available = self._gpus_of_nodes[0]
        offered = available if self.ray.head.gpus is None else self.ray.head.gpus
        return min(self.ray_gpus, offered, available - _count_service_gpus(self.services, "head"))

    @property
    def trainer_nodes(self) -> int:
        """Nodes that the trainer counts: those in Ray with all of its GPUs, or all without GPUs."""
        if not self.ray_gpus:
            return self.ray_nodes
        workers = self._gpus_of_nodes[1 : self.ray_nodes]
        return (self.head_gpus == self.ray_gpus) + sum(gpus > 0 for gpus in workers)

    @property
    def ray_resources(self) -> list[tuple[int | None, int]]:
        """CPUs and GPUs that each node in Ray offers, the head node first. CPUs: None is not known here."""
        cpus = [each.cpus_per_task for each in self.slurm.components for _ in range(each.nodes)]
        offered = self.ray_gpus
        gpus = [offered if number else 0 for number in self._gpus_of_nodes]
        if self.ray.head.cpus is not None:
            cpus[0] = self.ray.head.cpus
        gpus[0] = self.head_gpus
        return list(zip(cpus, gpus, strict=True))[: self.ray_nodes]

    @property
    def gpus_of_services(self) -> str:
        """GPUs of each service on these nodes, e.g. `retriever 2 + judge 1`; empty if they use none."""
        return _describe_shares(self.services, self._role_with_gpus)

    @property
    def gpus(self) -> int:
        """GPUs on each node that has some; 0 if none are requested."""
        return max(self._gpus_of_nodes)

    @property
    def gpus_field(self) -> str:
        """The field with the number of GPUs."""
        return _choose_gpus_field(self.ray)

    @property
    def _gpus_of_nodes(self) -> list[int]:
        return _count_gpus(self.slurm, self.ray)

    @property
    def _role_with_gpus(self) -> str:
        return "workers" if any(self._gpus_of_nodes[1 : self.ray_nodes]) else "head"


def _choose_gpus_field(ray: Ray) -> str:
    return "ray.gpus_per_node" if ray.gpus_per_node else "slurm.gpus_per_node"


def _count_gpus(slurm: SlurmOptions, ray: Ray) -> list[int]:
    """The number of GPUs of each node, the head node first."""
    return [
        gpus
        for component in slurm.components
        for gpus in [ray.gpus_per_node or component.gpus] * component.nodes
    ]


def _count_service_nodes(services: list[Service]) -> int:
    """The number of nodes that are for services alone."""
    return max(
        (service.where for service in services if isinstance(service.where, int) and not service.shared),
        default=0,
    )


def _runs_on(service: Service, role: str) -> bool:
    """Whether a service runs on a node of this role: head, workers, or services alone (the last node)."""
    return service.where in ("all", role) or (role == "services" and isinstance(service.where, int))


def _count_service_gpus(services: list[Service], role: str) -> int:
    return sum(service.gpus for service in services if _runs_on(service, role))


def _describe_shares(services: list[Service], role: str) -> str:
    used = [service for service in services if service.gpus and _runs_on(service, role)]
    return " + ".join(f"{service.name} {service.gpus}" for service in used)
