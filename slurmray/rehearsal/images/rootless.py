"""Images for the rehearsal's ordinary users, whose Podman cannot use a store of root's."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from slurmray.errors import RehearsalError
from slurmray.rehearsal.cluster import config
from slurmray.rehearsal.cluster.lab import Lab
from slurmray.rehearsal.images import cache as store
from slurmray.rehearsal.machine import cache_folder

_CONFIG = """[storage]
driver = "overlay"
graphroot = "{graphroot}"
[storage.options]
additionalimagestores = ["{images}"]
"""


def give(lab: Lab, archive: Path, user: config.User, say: Callable[[str], None]) -> None:
    """Give a user of the hosts the image in `archive`, a docker-archive: loaded once, as that user, and kept.

    Containers are node-local, below /var/tmp, as rootless Podman cannot keep them in a home that nodes share.
    """
    about = archive.stat()
    name = f"{user.name}-{store.key(str(archive), about.st_size, about.st_mtime_ns)}"

    def build(path: Path) -> None:
        path.mkdir()
        os.chown(path, user.uid, user.uid)
        path.parent.chmod(0o755)
        inside = Path(config.ROOTLESS, path.relative_to(cache_folder() / "rootless"))
        with archive.open("rb") as stream:
            load = ["podman", "--root", str(inside), "load", "--quiet"]
            done = lab.run(load, user.name, timeout=None, stdin=stream)
        if done.returncode != 0:
            raise RehearsalError(f"Podman could not load {archive} for {user.name}: {done.stderr.strip()}")

    store.once(cache_folder() / "rootless", name, build, say)
    storage_conf = _CONFIG.format(graphroot=config.graph_root(user), images=f"{config.ROOTLESS}/{name}")
    write = "mkdir -p ~/.config/containers && cat >~/.config/containers/storage.conf"
    lab.run(["bash", "-c", write], user.name, text=storage_conf)
