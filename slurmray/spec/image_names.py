"""How an image is named: as a reference, or as one of the runtimes has it besides."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator

from slurmray.spec.types import Line, shown

# What `apptainer build` takes before a colon (apptainer-build(1)).
APPTAINER_SOURCES = (
    *("docker", "docker-archive", "docker-daemon", "http", "https", "library"),
    *("oci", "oci-archive", "oras", "shub"),
)
# Paths, what stands behind a transport, and pyxis' [USER@]REGISTRY#IMAGE.
_NO_REFERENCE = re.compile(rf"[~/.]|[a-z-]+:[~/.]|(?:{'|'.join(APPTAINER_SOURCES)}):|.*#|.*\.sif$")
# [HOST[:PORT]/]NAME[:TAG][@DIGEST], for pyxis USER@ before it; registries have more to say of the characters.
_REFERENCE = re.compile(
    r"(?:[^/:@]+@)?(?:(?:\[[0-9a-fA-F:]+\]|[^/:@]+)(?::[0-9]+)?/)?"
    r"(?:[^/:@]+/)*[^/:@]+(?::[^/:@]+)?(?:@[^/:@]+:[0-9a-f]+)?"
)


def _image(value: str) -> str:
    if value.startswith("-") or re.search(r"\s", value):
        raise ValueError(f"expected the name of an image, got {shown(value)}")
    if not _NO_REFERENCE.match(value) and not _REFERENCE.fullmatch(value):
        raise ValueError(f"expected [HOST[:PORT]/]NAME[:TAG] or NAME@DIGEST, got {shown(value)}")
    return value


ImageName = Annotated[Line, AfterValidator(_image)]
