"""Finds or builds the job's image for the hosts of a rehearsal."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

from slurmray import local_commands
from slurmray.errors import RehearsalError
from slurmray.rehearsal.images import cache as store
from slurmray.rehearsal.images import ray_image, stores
from slurmray.rehearsal.machine import Runtime, cache_folder

Log = Callable[[str], None]


def image(name: str, runtime: Runtime, *, build: bool, log: Log) -> Path:
    """Return a Podman graph root or a Docker data root with the image `name`, which includes its registry.

    build: build a small image with Ray, without a registry. Otherwise the image is from the machine's Podman
    or Docker; RehearsalError if neither has it.
    """
    if build:
        return stores.load(runtime, cache_folder(), ray_image.archive(cache_folder(), name, log), log)
    podman = _identity("podman", name)
    if podman and runtime == "podman" and (graph_root := _graph_root()):
        log(f"image {name}: found in this machine's Podman")
        return graph_root
    docker = _identity("docker", name)
    for client, identity in (("podman", podman), ("docker", docker)):
        if identity:
            log(f"image {name}: found in this machine's {client}")
            return stores.load(runtime, cache_folder(), _save(client, name, identity, log), log)
    raise RehearsalError(
        f"image {name} is not on this machine: {runtime} pull {name}, or rehearse with --build-image, "
        "which builds a small image with Debian and Ray to use instead"
    )


def _identity(client: str, name: str) -> str:
    if not shutil.which(client):
        return ""
    result = local_commands.run([client, "image", "inspect", "--format", "{{.Id}}", name])
    return result.stdout.strip().removeprefix("sha256:")[:12] if result.returncode == 0 else ""


def _graph_root() -> Path | None:
    result = local_commands.run(
        ["podman", "info", "--format", "{{.Store.GraphDriverName}} {{.Store.GraphRoot}}"]
    )
    driver, _, root = result.stdout.strip().partition(" ")
    return Path(root) if driver == "overlay" else None


def _save(client: str, name: str, identity: str, log: Log) -> Path:
    def build(path: Path) -> None:
        log(f"saving {name} from {client} (once)")
        options = ["--format=docker-archive"] if client == "podman" else []
        store.call([client, "save", *options, "--output", str(path), name], f"{client} could not save {name}")

    return store.build_once(cache_folder(), f"saved-{identity}.tar", build, log)
