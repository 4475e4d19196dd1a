"""Image stores of Podman and Docker, loaded once and shared by all hosts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from slurmray.rehearsal.images import cache as store

_LOAD = Path(__file__).with_name("load.sh")


def podman_store(cache: Path, archive: Path, log: Callable[[str], None]) -> Path:
    """Return a Podman graph root (overlay) with the image of `archive`, for `additionalimagestores`.

    Its files belong to root; for an ordinary user, to the root of `cache.as_root`.
    """
    return _load("podman", cache, archive, log)


def docker_root(cache: Path, archive: Path, log: Callable[[str], None]) -> Path:
    """Return a Docker data root (overlay2) with the image of `archive`; each daemon needs its own copy.

    A temporary daemon in separate namespaces creates it.
    """
    return _load("docker", cache, archive, log)


def _load(runtime: str, cache: Path, archive: Path, log: Callable[[str], None]) -> Path:
    def build(path: Path) -> None:
        log(f"loading {archive.name} into an image store of {runtime} (once)")
        argv = [*store.isolated("--net"), "sh", str(_LOAD), runtime, str(path), str(archive)]
        store.call(argv, f"{runtime} could not load {archive.name}", {"PATH": store.PATH})

    stat = archive.stat()
    identity = store.key(str(archive.resolve()), stat.st_size, stat.st_mtime_ns)
    return store.build_once(cache, f"{runtime}-{identity}", build, log)
