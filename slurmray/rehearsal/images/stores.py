"""Image stores of Podman and Docker, loaded once and shared by all hosts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from slurmray.rehearsal.images import cache as store
from slurmray.rehearsal.machine import PATH

_LOAD = Path(__file__).with_name("load.sh")


def load(runtime: str, cache: Path, archive: Path, log: Callable[[str], None]) -> Path:
    """Return a store with the image of `archive`.

    podman: a graph root (overlay), for `additionalimagestores`. Its files belong to root; for an ordinary
    user, to the root of `cache.as_root`. docker: a data root (overlay2), which a temporary daemon in separate
    namespaces creates; each daemon needs its own copy.
    """

    def build(path: Path) -> None:
        log(f"loading {archive.name} into an image store of {runtime} (once)")
        argv = [*store.isolated("--net"), "sh", str(_LOAD), runtime, str(path), str(archive)]
        store.call(argv, f"{runtime} could not load {archive.name}", {"PATH": PATH})

    stat = archive.stat()
    identity = store.key(str(archive.resolve()), stat.st_size, stat.st_mtime_ns)
    return store.build_once(cache, f"{runtime}-{identity}", build, log)
