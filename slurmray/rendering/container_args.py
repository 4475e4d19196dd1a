"""Image names and container options in the form that each runtime needs."""

from __future__ import annotations

import hashlib
import re

from slurmray.spec.container import Container
from slurmray.spec.image_names import APPTAINER_SOURCES
from slurmray.spec.runtimes import RUNTIMES


def convert_image(container: Container) -> tuple[str, str]:
    """Return (image, source). source: what Apptainer or Singularity builds the image from; "" for nothing."""
    image, kind = container.image, RUNTIMES[container.runtime].images
    if kind == "pyxis":
        return _convert_for_enroot(image), ""
    if kind != "apptainer":
        return "" if kind == "none" else image, ""
    if container.archive:
        source = f"docker-archive:{container.archive}"
    elif image.partition(":")[0] in APPTAINER_SOURCES:
        source = image
    elif image.startswith(("/", "./", "../", "~", "$")) or image.endswith(".sif"):
        return image, ""
    else:
        source = f"docker://{add_registry(image)}"
    # The hash tells images of different sources apart.
    digest = hashlib.sha256(source.encode()).hexdigest()[:8]
    return f"{re.sub('[^A-Za-z0-9.]+', '-', image)}-{digest}.sif", source


def _convert_for_enroot(image: str) -> str:
    """Return a path unchanged, and a name as [REGISTRY#]IMAGE, without docker.io."""
    if image.startswith(("/", "./", "$")) or "#" in image:
        return image
    registry, _, name = add_registry(image).partition("/")
    return name.removeprefix("library/") if registry == "docker.io" else f"{registry}#{name}"


def add_registry(image: str) -> str:
    """Return the image's name with its registry: its first part, if that looks like a host name."""
    first, slash, _ = image.partition("/")
    if slash and ("." in first or ":" in first or first == "localhost"):
        return image
    return f"docker.io/{image}" if slash else f"docker.io/library/{image}"


def container_args(container: Container) -> list[str]:
    """Return the container's options that are the same on all nodes."""
    args = [] if container.user in ("auto", "image") else ["--user", container.user]
    for limit in container.ulimits:
        args += ["--ulimit", limit]
    return args + container.args
