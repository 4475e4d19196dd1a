"""Hosts with Apptainer, from Debian sid, and a sandbox (folder) image, which needs no conversion."""

from __future__ import annotations

import tarfile
from pathlib import Path

from slurmray.rehearsal import machine
from slurmray.rehearsal.cluster.layout import Layout
from slurmray.rehearsal.images import cache as store
from slurmray.rehearsal.images import suites

# Without squashfuse, which some machines forbid for ordinary users: Apptainer then unpacks .sif files.
_PACKAGES = ("apptainer", "tzdata")


def layout(share: Path, archive: Path) -> Layout:
    """Hosts of Debian sid, on which the image is mounted."""
    machine.require("none", own_slurm=False, builds=True)
    root = suites.root(machine.cache_folder(), "sid", print, _PACKAGES)
    return Layout(share, "none", root=root, files=[image(archive)])


def image(archive: Path) -> Path:
    """A folder with the content of the rehearsal's image."""

    def build(path: Path) -> None:
        with tarfile.open(archive) as tar:
            (layer,) = [member for member in tar.getnames() if member.endswith(".tar")]
        # The archive has no /dev, which Podman and Docker create themselves.
        unpack = 'mkdir -p "$3/dev" && tar -xOf "$1" "$2" | tar -x -C "$3"'
        argv = [*store.as_root(), "sh", "-c", unpack, "-"]
        store.call([*argv, str(archive), layer, str(path)], "the image could not be unpacked")

    return store.build_once(machine.cache_folder(), f"sandbox-{archive.stem}", build, print)
