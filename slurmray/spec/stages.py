"""What runs besides Ray and the trainer: the `prepare:` and `services:` parts of the job spec."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, field_validator, model_validator

from slurmray.spec.image_names import ImageName
from slurmray.spec.slurm import Model
from slurmray.spec.types import Command, Count, EnvName, Flag, ItemName, Line, Text, Whole, shown


class Prepare(Model):
    """A command that has to end well before the trainer starts, in Ray's container."""

    name: ItemName
    """What the log calls it."""
    run: Command
    """A list is a command and its arguments, a text is for bash."""
    where: Literal["head", "all"] = "head"
    """On the head node or on all nodes."""
    needs_ray: Flag = False
    """It starts when the cluster is whole. Else it runs while Ray starts."""
    once: Flag = False
    """Where it has ended well, it does not run again after a requeue."""


class Ready(Model):
    """How one knows that a service can be used: one of http, tcp and run."""

    http: Line | None = None
    """URL that answers with a status below 400, as seen from the service's own node."""
    post: Text | None = None
    """Text, often JSON, that is sent there by POST; without it the URL is read by GET."""
    tcp: Line | None = None
    """HOST:PORT that accepts a connection."""
    run: Command | None = None
    """Command that exits with 0, in Ray's container."""
    timeout: Count = 600
    """Seconds from the start of the service."""

    @field_validator("http")
    @classmethod
    def _http(cls, value: str | None) -> str | None:
        if value is not None and not value.startswith(("http://", "https://")):
            raise ValueError(f"expected a URL, as http://127.0.0.1:8000/health, got {shown(value)}")
        return value

    @field_validator("tcp")
    @classmethod
    def _tcp(cls, value: str | None) -> str | None:
        host, _, port = (value or "localhost:1").rpartition(":")
        if not (host and port.isdecimal() and 0 < int(port) < 65536):
            raise ValueError(f"expected HOST:PORT, as 127.0.0.1:8000, got {shown(value)}")
        return value

    @model_validator(mode="after")
    def _one(self) -> Ready:
        given = [name for name in ("http", "tcp", "run") if getattr(self, name) is not None]
        wrong = []
        if len(given) != 1:
            wrong.append(f"expected one of http, tcp and run, got {' and '.join(given) or 'none'}")
        if self.post is not None and self.http is None:
            wrong.append("post needs http")
        if wrong:
            raise ValueError(*wrong)
        return self


class Service(Model):
    """A process beside Ray, from before the trainer starts until after it has ended."""

    name: ItemName
    """What the log calls it."""
    run: Command
    """A list is a command and its arguments, a text is for bash."""
    where: Literal["head", "all"] = "all"
    """On the head node or on all nodes."""
    image: ImageName | None = None
    """Image of a container of its own, with /bin/sh in it. Not set: it runs in Ray's container."""
    host: Flag = False
    """It runs on the node itself, outside of any container, in the submit folder."""
    env: dict[EnvName, Text] = Field(default={})
    """Environment of this service, over that of the job."""
    gpus: Whole = Field(default=0, ge=0)
    """GPUs of each node that are its own: Ray and the trainer have as many fewer, on all nodes."""
    ready: Ready | None = None
    """The trainer waits for this. Not set: for its start only."""
    restarts: Whole = Field(default=0, ge=0)
    """How many times it is started again when it ends."""
    on_end: Literal["fail", "ignore"] = "fail"
    """What its end does when it is not started again: ends the job, or is only logged."""

    @model_validator(mode="after")
    def _one_place(self) -> Service:
        wrong = []
        if self.image and self.host:
            wrong.append("image and host are both given; keep one of the two")
        if self.host and self.gpus:
            wrong.append("gpus need a container: leave host out, or give the service an image")
        if wrong:
            raise ValueError(*wrong)
        return self
