"""Mounts of the job spec."""

from __future__ import annotations

import posixpath
from typing import Annotated, NamedTuple

from pydantic import PlainSerializer, PlainValidator, WithJsonSchema

from slurmray.spec.types import check_line, check_path, shown


class Mount(NamedTuple):
    """A host folder or file that is mounted in the containers.

    source: as in the job spec; `~` and relative paths are resolved on the node. destination: absolute path in
    the container; None: the same as the resolved source. options: for the runtime.
    """

    source: str
    destination: str | None
    options: tuple[str, ...]


# At most one of each group. Docker and Podman both have these (docker-run and podman-run, --volume).
_MOUNT_OPTIONS = (
    ("ro", "rw"),
    ("z", "Z"),
    ("shared", "slave", "private", "rshared", "rslave", "rprivate"),
)


def parse_mount(value: object) -> Mount:
    """Parse `SOURCE[:DEST[:OPTIONS]]`; ValueError for a wrong form."""
    if isinstance(value, Mount):
        return value
    if not isinstance(value, str):
        raise ValueError(f"expected SOURCE[:DEST[:OPTIONS]], got {shown(value)}")
    parts = value.split(":")
    if len(parts) > 3 or not all(parts):
        raise ValueError(f"expected SOURCE[:DEST[:OPTIONS]], got {shown(value)}")
    for part in parts:
        check_path(check_line(part))
    destination = None
    if len(parts) > 1:
        destination = posixpath.normpath(parts[1])
        if not parts[1].startswith("$"):  # a variable is expanded on the nodes
            destination = "/" + destination.lstrip("/")
        if not parts[1].startswith(("/", "$")) or destination == "/":
            raise ValueError(f"expected an absolute path below / after the colon, got {shown(parts[1])}")
    options = tuple(parts[2].split(",")) if len(parts) > 2 else ()
    known = [option for group in _MOUNT_OPTIONS for option in group]
    if unknown := [option for option in options if option not in known]:
        names = " and ".join(map(shown, unknown))
        raise ValueError(f"unknown mount option {names}; known are {', '.join(known)}")
    for group in _MOUNT_OPTIONS:
        if len(chosen := [option for option in options if option in group]) > 1:
            raise ValueError(f"mount options {' and '.join(chosen)} exclude each other; keep one")
    return Mount(parts[0], destination, options)


def _format_mount(mount: Mount) -> str:
    return ":".join(part for part in (mount.source, mount.destination, ",".join(mount.options)) if part)


MountField = Annotated[
    Mount,
    PlainValidator(parse_mount),
    PlainSerializer(_format_mount),
    WithJsonSchema({"type": "string", "description": "SOURCE[:DEST[:OPTIONS]]"}),
]
