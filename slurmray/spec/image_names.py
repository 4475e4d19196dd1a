"""Names of images: references, and the other forms that some runtimes accept."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator

from slurmray.spec.runtimes import RUNTIMES
from slurmray.spec.types import Line, shown

# Transports that `apptainer build` accepts before a colon (apptainer-build(1)).
APPTAINER_SOURCES = (
    *("docker", "docker-archive", "docker-daemon", "http", "https", "library"),
    *("oci", "oci-archive", "oras", "shub"),
)
# Paths, also those that begin with a variable, names with a transport, and [USER@]REGISTRY#IMAGE of pyxis.
_OTHER_FORM = re.compile(rf"[~/.$]|[a-z-]+:[~/.]|(?:{'|'.join(APPTAINER_SOURCES)}):|.*#|.*\.sif$")
# [HOST[:PORT]/]NAME[:TAG][@DIGEST], and for pyxis USER@ before it. Registries allow fewer characters.
_REFERENCE = re.compile(
    r"(?:[^/:@]+@)?(?:(?:\[[0-9a-fA-F:]+\]|[^/:@]+)(?::[0-9]+)?/)?"
    r"(?:[^/:@]+/)*[^/:@]+(?::[^/:@]+)?(?:@[^/:@]+:[0-9a-f]+)?"
)


_PATH = re.compile(r"[~/.$]|.*\.(?:sif|sqsh)$")
_FOR_PYXIS = re.compile(r"[^/#]+#")  # a tag may have a #, too
_TRANSPORT = re.compile(r"[a-z-]+:[~/.]|(?:docker|oci)-archive:|docker-daemon:")


_FILE = "a file or folder needs runtime apptainer, singularity or pyxis"
_SIF = "a .sif file needs runtime apptainer or singularity"
_NOT_PYXIS = "REGISTRY#IMAGE is for pyxis: write REGISTRY/IMAGE"
_NO_TRANSPORT = "only apptainer and singularity know docker:// and the like: write only the image's name"
# In the part after the registry, if there is one, and before the tag.
_CAPITALS = re.compile(r"(?:[^/.:]*[.:][^/]*/|(?![^/.:]*[.:][^/]*/))[^:@$]*[A-Z]")
_NO_CAPITALS = "names of images have small letters only, but for the tag"
# Kind of names -> (form of an image that it cannot have, why).
_MISFITS: dict[str, tuple[tuple[re.Pattern[str], str], ...]] = {
    "engine": (
        (_FOR_PYXIS, _NOT_PYXIS),
        (_TRANSPORT, _NO_TRANSPORT),
        (_PATH, _FILE),
        (_CAPITALS, _NO_CAPITALS),
    ),
    "apptainer": ((_FOR_PYXIS, _NOT_PYXIS),),
    "pyxis": (
        (re.compile(r".*\.sif$"), _SIF),
        (re.compile(r"(?!/|\./|\$).*\.sqsh$"), "begin a path with / or ./"),
    ),
    "none": (),
}


def find_misfit(image: str, runtime: str) -> str:
    """Return why a runtime cannot have an image of this form; "" if it can."""
    rules = _MISFITS[RUNTIMES[runtime].images]
    return next((why for form, why in rules if form.match(image)), "")


def _check_image(value: str) -> str:
    if value.startswith("-") or re.search(r"\s", value):
        raise ValueError(f"expected the name of an image, got {shown(value)}")
    if not _OTHER_FORM.match(value) and not _REFERENCE.fullmatch(value):
        raise ValueError(f"expected [HOST[:PORT]/]NAME[:TAG] or NAME@DIGEST, got {shown(value)}")
    return value


ImageName = Annotated[Line, AfterValidator(_check_image)]
