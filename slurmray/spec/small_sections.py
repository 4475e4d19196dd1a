"""Sections of the job spec with few fields: network, checks, stop, requeue, restart, watch, notify."""

from __future__ import annotations

import ipaddress
from typing import Annotated, Literal

from pydantic import Field, field_validator, model_validator

from slurmray.spec.slurm_section import Model
from slurmray.spec.types import Count, EnvReference, FilePath, Integer, Line, Seconds

SHORTEST_INTERVAL = 5  # seconds


class Network(Model):
    """Which address of a node Ray uses."""

    interface: Line | None = None
    """Interface on every node, e.g. `ib0`. Not set: the address to which the node's name resolves."""
    subnet: Line | None = None
    """The address is in this subnet, e.g. `10.3.0.0/16`, where interfaces have other names on each node."""
    family: Literal["auto", "ipv4", "ipv6"] = "auto"
    """Address family; auto: either."""

    @field_validator("subnet")
    @classmethod
    def _check_subnet(cls, value: str | None) -> str | None:
        try:
            ipaddress.ip_network(value or "::/0")
        except ValueError as error:
            raise ValueError(f"{error}; expected e.g. 10.3.0.0/16 or fd00:3::/64") from None
        return value

    @model_validator(mode="after")
    def _check_family(self) -> Network:
        if self.subnet and self.family != "auto":
            version = ipaddress.ip_network(self.subnet).version
            if self.family != f"ipv{version}":
                raise ValueError(f"subnet is of IPv{version}, family is {self.family}; leave family out")
        return self


class Checks(Model):
    """Checks of every node, in addition to slurmray's own."""

    paths: list[FilePath] = Field(default=[])
    """Files or folders that must exist. `~` is the submitter's home."""
    same_commit: FilePath | None = None
    """A git work tree that must be at the same commit on all nodes."""
    burn_in: Seconds = 0
    """Seconds in which all GPUs are measured before the trainer, e.g. `10s`; 0: none.

    Matrix products, memory, and all-reduce within and between nodes, with the image's PyTorch. A wrong
    result, or a figure below 80 % of the median, is a finding; a spare node takes the place of such a node.
    See docs/guides/watching.md.
    """


class Stop(Model):
    """How the trainer is stopped, or a prepare step that still runs."""

    lead: Integer = Field(default=60, ge=0, le=65535)
    """Seconds from the signal to the time limit; 0: no signal before the time limit.

    Slurm may send it up to a minute early. SIGKILL follows `lead` - 15 seconds after the signal, or after
    `grace` if that is longer.
    """
    signal: Literal["HUP", "INT", "QUIT", "TERM", "USR1", "USR2"] = "TERM"
    """Signal to the trainer before the time limit, before a restart, and after scancel."""
    grace: Integer = Field(default=10, ge=0)
    """Seconds from the signal after scancel to SIGKILL; fewer if the cluster's KillWait is too short."""


class Requeue(Model):
    """Whether Slurm starts the job again. Each attempt has its own Ray cluster and run directory."""

    max: Integer = Field(default=0, ge=0)
    """Maximum number of restarts after a lost node, a finding of some nodes or preemption.

    SLURMRAY_ATTEMPT counts all restarts.
    """
    exit_code: Integer = Field(default=0, ge=0, le=255)
    """Exit code with which the trainer requests another attempt, any number of times; 0: none.

    `max` does not count these. After scancel there is no other attempt; the trainer then gets TERM instead of
    stop.signal.
    """

    @property
    def is_possible(self) -> bool:
        """Whether there may be another attempt."""
        return bool(self.max or self.exit_code)


class Restart(Model):
    """When the trainer starts again in the same allocation, on nodes that work."""

    max: Integer = Field(default=3, ge=1)
    """Maximum number of restarts in an allocation. SLURMRAY_RESTART counts them."""
    window: Integer = Field(default=600, ge=0)
    """Seconds after a restart in which the same failure ends the job. Not the loss of another host."""
    exit_codes: list[Annotated[Integer, Field(ge=1, le=255)]] = Field(default=[])
    """Exit codes with which the trainer requests a restart."""
    grace: Integer = Field(default=5, ge=0)
    """Seconds from stop.signal to SIGKILL for a trainer that is stalled, or of which another node is lost."""
    min_nodes: Count | None = None
    """Smallest number of nodes on which Ray and trainer start when no spare node is left.

    The preset fills in the number of each start. Numbers to which the trainer's placement does not fit are
    left out. Not set: slurm.nodes.
    """


class Watch(Model):
    """What is recorded while the trainer runs, and what happens when it no longer gets anywhere."""

    interval: Integer = Field(default=30, ge=0)
    """Seconds between two samples of each node's GPUs, CPUs and memory, 5 or more; 0: no samples."""

    stall: Seconds = 1800
    """Seconds, or a time such as `30m`, after which a trainer without a sign of work is stalled; 0: never.

    It prints no line, and every GPU is idle, or busy at the steady low power of a wait in NCCL. Without
    samples of GPUs only `progress` counts.
    """
    action: Literal["report", "restart", "end"] = "report"
    """What happens then, after each node has written what it shows into logs/stall-N of the run directory.

    report: a line in the log and in `slurmray status`. restart: Ray and trainer start again on the same
    nodes, at most restart.max times. end: the job ends with exit code 74.
    """
    progress: FilePath | None = None
    """A file that the trainer changes while it gets on, e.g. a log of steps. Unchanged for `stall`: stalled.

    Relative to the submit folder; `~` is your home.
    """

    @field_validator("interval")
    @classmethod
    def _check_interval(cls, value: int) -> int:
        if 0 < value < SHORTEST_INTERVAL:
            raise ValueError(
                f"{value} s would cost more than it shows; use at least {SHORTEST_INTERVAL}, or 0 for none"
            )
        return value

    @model_validator(mode="after")
    def _check_action(self) -> Watch:
        if self.action != "report" and not (self.stall and (self.interval or self.progress)):
            raise ValueError(f"action: {self.action} needs stall, and interval or progress; set them")
        return self


class Notify(Model):
    """A webhook that gets notices of the job, e.g. of Slack: see docs/guides/jobs.md."""

    url: EnvReference
    """`env:NAME`: the variable that has the webhook's URL when you submit. The script has only its name."""
    on: list[Literal["start", "stall", "loss", "end"]] = Field(default=["start", "stall", "loss", "end"])
    """start: of the trainer. stall: it no longer gets anywhere, see watch.stall. end: of the job.

    loss: a node is lost or set aside, or a restart begins.
    """

    @field_validator("on")
    @classmethod
    def _check_on(cls, value: list[str]) -> list[str]:
        if not value:
            raise ValueError("is empty; leave notify out")
        return value

    @property
    def variable(self) -> str:
        """The variable that has the URL."""
        return self.url.removeprefix("env:")
