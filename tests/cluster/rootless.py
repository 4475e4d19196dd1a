"""Images for the hosts' ordinary users, whose Podman cannot use root's image store."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from slurmray.errors import RehearsalError
from slurmray.rehearsal.cluster import slurm_conf
from slurmray.rehearsal.cluster.slurm_cluster import SlurmCluster
from slurmray.rehearsal.images import cache as store
from slurmray.rehearsal.machine import cache_folder

_CONFIG = """[storage]
driver = "overlay"
graphroot = "{graphroot}"
[storage.options]
additionalimagestores = ["{images}"]
"""


def load_for_user(
    cluster: SlurmCluster, archive: Path, user: slurm_conf.User, log: Callable[[str], None]
) -> None:
    """Load the docker-archive `archive` for a user of the hosts: once, as that user, into a cached store.

    Containers are node-local, below /var/tmp: rootless Podman cannot keep them in a shared home.
    """
    stat = archive.stat()
    name = f"{user.name}-{store.key(str(archive), stat.st_size, stat.st_mtime_ns)}"

    def build(path: Path) -> None:
        path.mkdir()
        os.chown(path, user.uid, user.uid)
        path.parent.chmod(0o755)
        inside = Path(slurm_conf.ROOTLESS, path.relative_to(cache_folder() / "rootless"))
        with archive.open("rb") as stream:
            load = ["podman", "--root", str(inside), "load", "--quiet"]
            done = cluster.run(load, user.name, timeout=None, stdin=stream)
        if done.returncode != 0:
            raise RehearsalError(f"Podman could not load {archive} for {user.name}: {done.stderr.strip()}")

    store.build_once(cache_folder() / "rootless", name, build, log)
    storage_conf = _CONFIG.format(
        # On the host's own disk: a shared home cannot hold containers.
        graphroot=f"/var/tmp/containers-{user.uid}",
        images=f"{slurm_conf.ROOTLESS}/{name}",
    )
    write = "mkdir -p ~/.config/containers && cat >~/.config/containers/storage.conf"
    cluster.run(["bash", "-c", write], user.name, text=storage_conf)
