"""Names of images: references, and the other forms that some runtimes accept."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator

from slurmray.spec.types import Line, shown

# Transports that `apptainer build` accepts before a colon (apptainer-build(1)).
APPTAINER_SOURCES = (
    *("docker", "docker-archive", "docker-daemon", "http", "https", "library"),
    *("oci", "oci-archive", "oras", "shub"),
)
# Paths, names with a transport, and [USER@]REGISTRY#IMAGE of pyxis.
_OTHER_FORM = re.compile(rf"[~/.]|[a-z-]+:[~/.]|(?:{'|'.join(APPTAINER_SOURCES)}):|.*#|.*\.sif$")
# [HOST[:PORT]/]NAME[:TAG][@DIGEST], and for pyxis USER@ before it. Registries allow fewer characters.
_REFERENCE = re.compile(
    r"(?:[^/:@]+@)?(?:(?:\[[0-9a-fA-F:]+\]|[^/:@]+)(?::[0-9]+)?/)?"
    r"(?:[^/:@]+/)*[^/:@]+(?::[^/:@]+)?(?:@[^/:@]+:[0-9a-f]+)?"
)


def _check_image(value: str) -> str:
    if value.startswith("-") or re.search(r"\s", value):
        raise ValueError(f"expected the name of an image, got {shown(value)}")
    if not _OTHER_FORM.match(value) and not _REFERENCE.fullmatch(value):
        raise ValueError(f"expected [HOST[:PORT]/]NAME[:TAG] or NAME@DIGEST, got {shown(value)}")
    return value


ImageName = Annotated[Line, AfterValidator(_check_image)]
