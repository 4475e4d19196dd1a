"""An image loaded once into what a runtime keeps images in, for all hosts to share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from slurmray.rehearsal.images import cache as store

_LOAD = Path(__file__).with_name("load.sh")


def podman_store(cache: Path, archive: Path, say: Callable[[str], None]) -> Path:
    """A Podman graph root (overlay) with the image of `archive`, to be named in `additionalimagestores`.

    Its files belong to root; an ordinary user's belong to the root that `cache.as_root` maps.
    """
    return _load("podman", cache, archive, say)


def docker_root(cache: Path, archive: Path, say: Callable[[str], None]) -> Path:
    """A Docker data root (overlay2) with the image of `archive`; each daemon needs a copy of its own.

    Made by a daemon in namespaces of its own, which is gone afterwards.
    """
    return _load("docker", cache, archive, say)


def _load(runtime: str, cache: Path, archive: Path, say: Callable[[str], None]) -> Path:
    def build(path: Path) -> None:
        say(f"loading {archive.name} into an image store of {runtime} (once)")
        argv = [*store.contained("--net"), "sh", str(_LOAD), runtime, str(path), str(archive)]
        store.call(argv, f"{runtime} could not load {archive.name}", {"PATH": store.PATH})

    about = archive.stat()
    identity = store.key(str(archive.resolve()), about.st_size, about.st_mtime_ns)
    return store.once(cache, f"{runtime}-{identity}", build, say)
