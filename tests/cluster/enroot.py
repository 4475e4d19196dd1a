"""Hosts with pyxis and enroot, built from their sources in a Debian 12, and squashfs images for them.

Debian does not have them. They are cloned from GitHub, or from where SLURMRAY_PYXIS and SLURMRAY_ENROOT say.
"""

from __future__ import annotations

import os
import shutil
import tarfile
from pathlib import Path

from slurmray.rehearsal import machine
from slurmray.rehearsal.cluster.layout import Layout
from slurmray.rehearsal.images import cache as store
from slurmray.rehearsal.images import suites

VERSIONS = {"pyxis": "v0.24.0", "enroot": "v4.1.2"}  # tags in github.com/NVIDIA
_PACKAGES = ("squashfs-tools", "gcc", "make", "libc6-dev", "libslurm-dev", "libbsd-dev")
_BUILD = Path(__file__).with_name("build_pyxis.sh")
# Programs of the image for services.
_APPLETS = ("cat", "echo", "id", "ls", "mv", "setsid", "sh", "sleep", "test", "touch", "wc")


def layout(share: Path, archive: Path) -> Layout:
    """Hosts with pyxis, and two images as files."""
    machine.require("none", own_slurm=False, builds=True)
    return Layout(share, "none", root=_root(), files=[image(archive), service_image()])


def options(share: Path) -> dict[str, str]:
    """Lines of slurm.conf for pyxis. It runs TaskProlog in the container, in which `share` is mounted."""
    prolog = share / "task_prolog"
    prolog.write_text("#!/bin/sh\necho export SLURMRAY_ACCELERATOR=none\n")
    prolog.chmod(0o755)
    return {"PlugStackConfig": "/opt/plugstack.conf", "TaskProlog": str(prolog)}


def image(archive: Path) -> Path:
    """A squashfs file with the content of the rehearsal's image."""

    def build(path: Path) -> None:
        with tarfile.open(archive) as tar, path.with_suffix(".tar").open("wb") as file:
            (layer,) = [member for member in tar.getmembers() if member.name.endswith(".tar")]
            content = tar.extractfile(layer)
            assert content
            shutil.copyfileobj(content, file)
        _squash(path)

    return store.build_once(machine.cache_folder(), f"{archive.stem}.sqsh", build, print)


def service_image() -> Path:
    """A squashfs file with busybox only: neither bash nor Python."""

    def build(path: Path) -> None:
        with tarfile.open(path.with_suffix(".tar"), "w") as tar:
            for name in ("bin", "dev", "etc", "home", "proc", "root", "run", "sys", "tmp", "usr", "var"):
                folder = tarfile.TarInfo(name)
                folder.type, folder.mode = tarfile.DIRTYPE, 0o755
                tar.addfile(folder)
            tar.add(_root() / "bin/busybox", "bin/busybox")
            for name in _APPLETS:
                link = tarfile.TarInfo(f"bin/{name}")
                link.type, link.linkname = tarfile.SYMTYPE, "busybox"
                tar.addfile(link)
        _squash(path)

    return store.build_once(machine.cache_folder(), f"busybox-{store.key(_APPLETS)}.sqsh", build, print)


def _squash(path: Path) -> None:
    """Make a squashfs file from the tar file beside it, with the program of the hosts."""
    options = "-quiet -no-progress -noI -noD -noF -noX"  # not compressed
    make = f'chroot "$0" sqfstar {options} /tmp/new.sqsh <"$1" && mv "$0/tmp/new.sqsh" "$2"'
    argv = [*store.as_root(), "sh", "-c", make, str(_root()), str(path.with_suffix(".tar")), str(path)]
    store.call(argv, "the image could not be made")


def _root() -> Path:
    """A Debian 12 with Slurm, pyxis and enroot."""
    cache = machine.cache_folder()
    sources = [_source(cache, name) for name in VERSIONS]
    hooks = [
        'mkdir -p "$1/opt/src"',
        *(f'cp -r {source} "$1/opt/src/{name}"' for name, source in zip(VERSIONS, sources, strict=True)),
        f'chroot "$1" bash <{_BUILD}',
    ]
    packages = [*suites.HOST, *_PACKAGES, "busybox-static"]
    argv = suites.command("bookworm", packages, hooks)
    key = store.key(packages, VERSIONS, _BUILD.read_text())

    def build(path: Path) -> None:
        print("building a Debian bookworm with pyxis (once, about a minute)", flush=True)
        suites.bootstrap(argv, path)

    return store.build_once(cache, f"root-pyxis-{key}", build, print)


def _source(cache: Path, name: str) -> Path:
    """A clone of the sources."""
    tag = VERSIONS[name]
    place = os.environ.get(f"SLURMRAY_{name.upper()}") or f"https://github.com/NVIDIA/{name}"
    argv = [
        "git",
        "-c",
        "advice.detachedHead=false",
        "clone",
        "--quiet",
        "--depth=1",
        f"--branch={tag}",
        place,
    ]

    def build(path: Path) -> None:
        store.call(
            [*argv, str(path)],
            f"{name} could not be cloned from {place}; SLURMRAY_{name.upper()} may name another place",
        )

    return store.build_once(cache, f"{name}-{tag}", build, print)
