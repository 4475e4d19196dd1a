"""Where the hosts of a rehearsal get the job's image from."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

from slurmray import process
from slurmray.errors import RehearsalError
from slurmray.rehearsal.cluster.layout import Runtime
from slurmray.rehearsal.images import cache as store
from slurmray.rehearsal.images import ray_image, stores
from slurmray.rehearsal.machine import cache_folder

Say = Callable[[str], None]


def image(name: str, runtime: Runtime, *, build: bool, say: Say) -> Path:
    """Return a Podman graph root or a Docker data root that holds the image `name`, with its registry.

    With build it is a small one with Ray, made without a registry. Else the machine's own Podman or Docker
    has it, or RehearsalError says what to do.
    """
    if build:
        return _load(ray_image.archive(cache_folder(), name, say), runtime, say)
    podman = _identity("podman", name)
    if podman and runtime == "podman" and (graph_root := _graph_root()):
        say(f"image {name}: this machine's own Podman has it")
        return graph_root
    docker = _identity("docker", name)
    for client, identity in (("podman", podman), ("docker", docker)):
        if identity:
            say(f"image {name}: this machine's own {client} has it")
            return _load(_save(client, name, identity, say), runtime, say)
    raise RehearsalError(
        f"image {name} is not on this machine: {runtime} pull {name}, or rehearse with --build-image, "
        "which makes a small image with Debian and Ray and uses it in its place"
    )


def _load(archive: Path, runtime: Runtime, say: Say) -> Path:
    load = stores.podman_store if runtime == "podman" else stores.docker_root
    return load(cache_folder(), archive, say)


def _identity(client: str, name: str) -> str:
    if not shutil.which(client):
        return ""
    done = process.run([client, "image", "inspect", "--format", "{{.Id}}", name])
    return done.stdout.strip().removeprefix("sha256:")[:12] if done.returncode == 0 else ""


def _graph_root() -> Path | None:
    done = process.run(["podman", "info", "--format", "{{.Store.GraphDriverName}} {{.Store.GraphRoot}}"])
    driver, _, root = done.stdout.strip().partition(" ")
    return Path(root) if driver == "overlay" else None


def _save(client: str, name: str, identity: str, say: Say) -> Path:
    def build(path: Path) -> None:
        say(f"saving {name} from {client} (once)")
        form = ["--format=docker-archive"] if client == "podman" else []
        store.call([client, "save", *form, "--output", str(path), name], f"{client} could not save {name}")

    return store.once(cache_folder(), f"saved-{identity}.tar", build, say)
