"""The sections `prepare` and `services` of the job spec."""

from __future__ import annotations

import re
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, field_validator, model_validator

from slurmray.agent.paths import MARKS
from slurmray.spec.image_names import ImageName
from slurmray.spec.slurm_section import Model
from slurmray.spec.types import (
    Command,
    Count,
    EnvName,
    Flag,
    Integer,
    ItemName,
    Line,
    Text,
    Where,
    accept,
    shown,
)


def _is_url(url: str) -> bool:
    try:
        parts = urlsplit(url)
        is_usable = parts.hostname and parts.port != 0 and "@" not in parts.netloc
    except ValueError:  # a bracket that is not closed, or a port that is no number
        return False
    return bool(is_usable and re.fullmatch("[!-~]+", url))


def _check_http(url: str) -> str:
    if not (re.match("https?://", url) and _is_url(url)):
        raise ValueError(f"expected a URL, e.g. http://127.0.0.1:8000/health, got {shown(url)}")
    return url


def _check_tcp(address: str) -> str:
    if not (re.fullmatch("[^/?#]+:[0-9]{1,5}", address) and _is_url(f"tcp://{address}")):
        raise ValueError(f"expected HOST:PORT, e.g. 127.0.0.1:8000 or [::1]:8000, got {shown(address)}")
    return address


class Prepare(Model):
    """A command in Ray's container that must succeed before the trainer starts."""

    name: ItemName
    """Name in the log."""
    run: Command
    """A list of arguments, or a text for bash."""
    where: Literal["head", "all"] = "head"
    """The head node or all nodes."""
    needs_ray: Flag = False
    """Start it when the cluster is ready. Otherwise it runs while Ray starts."""
    once: Flag = False
    """Do not run it again after a requeue or restart if it has succeeded."""


class Ready(Model):
    """The readiness check of a service: one of http, tcp and run."""

    http: Annotated[Line, AfterValidator(_check_http)] | None = None
    """URL that answers with a status below 400, requested from the service's node."""
    post: Text | None = None
    """Body of a POST request to the URL, often JSON. Not set: a GET request."""
    tcp: Annotated[Line, AfterValidator(_check_tcp)] | None = None
    """HOST:PORT that accepts a connection."""
    run: Command | None = None
    """Command that exits with 0, in Ray's container."""
    timeout: Count = 600
    """Seconds from the start of the service."""

    @model_validator(mode="after")
    def _check_kind(self) -> Ready:
        given = [name for name in ("http", "tcp", "run") if getattr(self, name) is not None]
        wrong = []
        if len(given) != 1:
            wrong.append(f"expected one of http, tcp and run, got {' and '.join(given) or 'none'}")
        if self.post is not None and self.http is None:
            wrong.append("post needs http; set it, or leave post out")
        return accept(self, wrong)


class Service(Model):
    """A process beside Ray, from before the trainer starts until after it ends."""

    name: ItemName
    """Name in the log."""
    run: Command
    """A list of arguments, or a text for bash."""
    where: Where = "all"
    """The head node, all other nodes in Ray, all nodes, or a number of nodes for services.

    These are the last ones of the job's node list. They are not in Ray, and the trainer does not count them.
    """
    shared: Flag = False
    """With a number in `where`: these nodes are also in Ray."""
    image: ImageName | None = None
    """Image for a separate container, with /bin/sh, and for pyxis setsid. Not set: Ray's container."""
    host: Flag = False
    """Run on the host without a container, in the submit folder."""
    needs_ray: Flag = False
    """Start it when the cluster is ready, with RAY_ADDRESS. With gpus: 0 it sees the GPUs that Ray has."""
    env: dict[EnvName, Text] = Field(default={})
    """Environment of the service, which overrides the job's."""
    gpus: Integer = Field(default=0, ge=0)
    """GPUs of each node where it runs. Ray gets that many fewer there. See also ray.head.gpus."""
    ready: Ready | None = None
    """The trainer starts after this check. Not set: after the service has started."""
    restarts: Integer = Field(default=0, ge=0)
    """How many times to restart it when it ends."""
    on_end: Literal["fail", "ignore"] = "fail"
    """When it ends and is not restarted. fail: the job ends; ignore: only if it was not ready yet."""

    @field_validator("env")
    @classmethod
    def _check_env(cls, value: dict[str, str]) -> dict[str, str]:
        fix = "leave it out; clean-up finds processes by it"
        return accept(value, [f"{name}: {fix}" for name in MARKS if name in value])

    @model_validator(mode="after")
    def _check_place(self) -> Service:
        wrong = []
        if self.image and self.host:
            wrong.append("image and host are both set; keep one of them")
        if self.host and self.gpus:
            wrong.append("gpus need a container: leave host out, or give the service an image")
        if self.needs_ray and (self.host or self.image):
            wrong.append("needs_ray is for services in Ray's container: leave host and image out")
        if self.needs_ray and isinstance(self.where, int) and not self.shared:
            wrong.append("needs_ray is for nodes in Ray: set shared: true, or use where: workers")
        if self.shared and not isinstance(self.where, int):
            wrong.append("shared is for a number of nodes in where; leave it out")
        if self.shared and self.gpus:
            wrong.append(
                "gpus: Ray has the same number on all workers; use where: workers, or leave shared out"
            )
        return accept(self, wrong)
