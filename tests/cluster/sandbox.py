"""Hosts with Apptainer, which only Debian sid has, and a folder as its image, as that needs no conversion."""

from __future__ import annotations

import tarfile
from pathlib import Path

from slurmray.rehearsal import machine
from slurmray.rehearsal.cluster.layout import Layout
from slurmray.rehearsal.images import cache as store
from slurmray.rehearsal.images import suites

# Without squashfuse, which not every machine lets an ordinary user have, Apptainer unpacks a .sif file.
_PACKAGES = ("apptainer", "tzdata")


def layout(share: Path, archive: Path) -> Layout:
    """Hosts of sid, which see the image."""
    machine.require("none", own_slurm=False, builds=True)
    root = suites.root(machine.cache_folder(), "sid", print, _PACKAGES)
    return Layout(share, "none", root=root, files=[image(archive)])


def image(archive: Path) -> Path:
    """The folder with what is in the rehearsal's image."""

    def build(path: Path) -> None:
        with tarfile.open(archive) as tar:
            (layer,) = [member for member in tar.getnames() if member.endswith(".tar")]
        # /dev is not in it; Podman and Docker make it themselves.
        unpack = 'mkdir -p "$3/dev" && tar -xOf "$1" "$2" | tar -x -C "$3"'
        words = [*store.as_root(), "sh", "-c", unpack, "-"]
        store.call([*words, str(archive), layer, str(path)], "the image could not be unpacked")

    return store.once(machine.cache_folder(), f"sandbox-{archive.stem}", build, print)
