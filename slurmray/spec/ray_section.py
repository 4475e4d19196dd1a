"""The section `ray` of the job spec: how Ray is started."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, field_validator, model_validator

from slurmray.agent.paths import TEMP_DIR_MAX, TEMP_DIR_PATTERN
from slurmray.spec.slurm_section import Model
from slurmray.spec.types import (
    AbsolutePath,
    Count,
    Flag,
    Line,
    Natural,
    Port,
    RuntimeEnv,
    Text,
    matches,
    pattern,
    shown,
)

# Options of `ray start` that slurmray sets, each with what to use instead.
RAY_RESERVED: dict[str, str] = {
    "--address": "slurmray sets it; leave it out",
    "--block": "slurmray sets it; leave it out",
    "--dashboard-port": "use ray.dashboard_port",
    "--head": "slurmray sets it; leave it out",
    "--node-ip-address": "use network.interface and network.family",
    "--node-name": "slurmray sets it; leave it out",
    "--num-cpus": "use slurm.cpus_per_task, or ray.head.cpus",
    "--num-gpus": "use slurm.gpus_per_node, or ray.head.gpus",
    "--port": "use ray.port",
    "--ray-debugger-external": "use ray.debug: legacy",
    "--temp-dir": "use ray.temp_dir",
}

# ray.debug -> variables for Ray and the trainer, which override the image's: the debuggers exclude each other
# (docs.ray.io, "Ray Distributed Debugger" and "Using the Ray Debugger"; ray/util/rpdb.py reads both).
DEBUG_ENV: dict[str, dict[str, str]] = {
    "none": {},
    "post-mortem": {"RAY_DEBUG": "1", "RAY_DEBUG_POST_MORTEM": "1"},
    "legacy": {"RAY_DEBUG": "legacy", "RAY_DEBUG_POST_MORTEM": "0"},
}


# Resources that have options of their own, which Ray requires (ray/_private/resource_spec.py).
_OWN_OPTION = {
    "CPU": RAY_RESERVED["--num-cpus"],
    "GPU": RAY_RESERVED["--num-gpus"],
    "memory": "use --memory, or ray.head.memory",
    "object_store_memory": "use --object-store-memory",
}


def _check_option(argument: str) -> str:
    option, _, value = argument.partition("=")
    if instead := RAY_RESERVED.get(option):
        raise ValueError(f"{option}: {instead}")
    if option == "--resources":
        _check_resources(value)
    return argument


def _check_resources(value: str) -> None:
    try:
        resources = json.loads(value)
    except ValueError:
        resources = None
    if not isinstance(resources, dict):
        raise ValueError(
            """--resources: expected JSON in the same entry, e.g. '--resources={"fast-disk": 1}'"""
        )
    if wrong := [f"--resources: {name}: {_OWN_OPTION[name]}" for name in resources if name in _OWN_OPTION]:
        raise ValueError(*wrong)


_MEMORY = "[1-9][0-9]{0,17}[KMGT]"
_MEMORY_RULE = matches(_MEMORY, "expected a number with K, M, G or T, e.g. 32G, got {got}")
MemorySize = Annotated[Line, _MEMORY_RULE, pattern(f"^{_MEMORY}$")]
RayOption = Annotated[Text, AfterValidator(_check_option)]


class Head(Model):
    """What the head node offers to Ray's tasks, where that is less than what the other nodes offer.

    The trainer's first process always runs there. A field that is not set: as on the other nodes.
    """

    gpus: Natural | None = None
    """GPUs. With fewer than the others offer, the head is none of the nodes that the trainer counts."""
    cpus: Natural | None = None
    """CPUs. 0 keeps tasks and actors away that ask for some."""
    memory: MemorySize | None = None
    """Memory that tasks can ask for, e.g. 32G."""


class Ray(Model):
    """How Ray is started. Options that are not set have Ray's defaults."""

    start: Literal["fast", "standard"] = "fast"
    """standard: `ray start`. fast: the same, but faster, by changes to Ray's internals.

    fast is used with the Ray versions that it was tested with. With others it falls back to standard, with
    one line in the log.
    """
    gpus_per_node: Count | None = None
    """GPUs on each node where Slurm counts none (no GRES), instead of slurm.gpus_per_node.

    The job asks Slurm for none, and counts them on the nodes. Such jobs need whole nodes: slurm.exclusive.
    """
    port: Port = "auto"
    """Port of the GCS on the head node; auto: a free one."""
    dashboard_port: Port = "auto"
    """Port of the dashboard on the head node."""
    ready_timeout: Count = 600
    """Seconds from the first answer of the head node's GCS until all nodes are in Ray with their GPUs.

    The job also fails if no node makes progress for this time plus 15 seconds before the trainer starts,
    e.g. because `setup` hangs. A pull, a build, a lock that Podman waits for, a prepare step and a
    starting service count as progress.
    """
    head: Head = Field(default_factory=Head.model_construct)
    temp_dir: AbsolutePath = "/tmp"  # noqa: S108 - the default of Ray
    """Folder on the node's local disk for the job's private folder. At most 18 characters.

    With variables, e.g. $TMPDIR: 18 characters after they have been expanded.
    """
    auth: Literal["auto", "token", "none"] = "auto"
    """auto: token authentication if Ray has it (2.52 and later). token: the job fails with an older Ray."""
    metrics: Flag = False
    """Export Prometheus metrics, unauthenticated, and write `metrics` in the run directory: watching.md."""
    keep_logs: Literal["on_failure", "always", "never"] = "on_failure"
    """When to keep Ray's logs of each node, as logs/NODE-ray.tar.gz in the run directory.

    Of each file the last MiB, of all files the 20 MiB that were written last, before compression. Only the
    submitter can read them: Ray logs a runtime environment with its values.
    """
    debug: Literal["none", "post-mortem", "legacy"] = "none"
    """post-mortem: Ray's distributed debugger waits at breakpoints and failures; legacy: for `ray debug`.

    While a debugger waits, anyone who reaches the node can run code through it.
    """
    runtime_env: RuntimeEnv = None
    """Runtime environment for `launch: ray-job`: a mapping, or the path of a YAML file.

    The path is relative to container.workdir, as is `working_dir` in it.
    """
    args: list[RayOption] = Field(default=[])
    """More options of `ray start`, on every node."""
    head_args: list[RayOption] = Field(default=[])
    """More options of `ray start`, on the head node."""
    worker_args: list[RayOption] = Field(default=[])
    """More options of `ray start`, on the worker nodes."""

    @field_validator("temp_dir")
    @classmethod
    def _check_temp_dir(cls, value: str) -> str:
        if "$" in value:
            return value  # the nodes check it
        if len(value) > TEMP_DIR_MAX:
            raise ValueError(
                f"has {len(value)} characters; use at most {TEMP_DIR_MAX}, because Ray's sockets are below it"
            )
        if not re.fullmatch(TEMP_DIR_PATTERN, value):
            raise ValueError(f"use only letters, digits and _ . - / in it, got {shown(value)}")
        return value

    @model_validator(mode="after")
    def _check_ports(self) -> Ray:
        if self.port == self.dashboard_port != "auto":
            raise ValueError(f"port and dashboard_port are both {self.port}; change one of them")
        return self


def find_debug_variables(debug: str, env: Mapping[str, str | None]) -> list[str]:
    """Return what is wrong where `env` of the job spec sets up debugging, too."""
    return [
        f"{name} is in env; remove it and use ray.debug"
        for name in ("RAY_DEBUG_POST_MORTEM", "RAY_DEBUG")
        # RAY_DEBUG=0, which turns breakpoints off, is possible with `none`.
        if name in env and (debug != "none" or name != "RAY_DEBUG" or env[name] in (None, "legacy"))
    ]
