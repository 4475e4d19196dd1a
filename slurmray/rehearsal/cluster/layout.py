"""The plan for a rehearsal's first process (`first_process.py`): the cluster on this machine."""

from __future__ import annotations

import os
import resource
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from slurmray.rehearsal.cluster import cgroups, slurm_conf
from slurmray.rehearsal.images.suites import slurm_major
from slurmray.rehearsal.machine import PATH, Runtime, cache_folder, is_root


@dataclass(frozen=True)
class Layout:
    """Root filesystem, images and folders of a rehearsal's hosts."""

    folder: Path  # the submit folder, shared by the machine and all hosts, writable
    runtime: Runtime = "podman"  # with "docker" each node runs a Docker daemon
    store: Path | None = None  # Podman's graph root or Docker's data root with the images; read-only
    root: Path = Path("/")  # the root filesystem with the hosts' programs
    copy_on_write: Sequence[Path] = ()  # more folders of the machine; changes are lost at the end
    files: Sequence[Path] = ()  # more files of the machine; read-only
    missing: Sequence[Path] = ()  # mount sources that the machine lacks; each host gets an empty folder


def environment() -> dict[str, str]:
    """Return the environment for a rehearsal's programs: an ordinary user's PATH lacks /usr/sbin."""
    packages = str(Path(__file__).parents[3])
    return {**os.environ, "PATH": f"{os.environ.get('PATH', os.defpath)}:{PATH}", "PYTHONPATH": packages}


def plan(cluster: slurm_conf.ClusterConfig, layout: Layout) -> dict[str, Any]:
    """Return the plan, JSON types only."""
    daemons = dict.fromkeys(cluster.nodes, "slurmd") | {slurm_conf.LOGIN: "munged slurmctld"}
    if layout.runtime == "docker":
        daemons |= dict.fromkeys(cluster.nodes, "dockerd slurmd")
    images = [(str(layout.store), slurm_conf.IMAGES)] if layout.store and layout.runtime == "podman" else []
    mount_point = cache_folder() / "cluster"
    rootless = cache_folder() / "rootless"
    for folder in (mount_point, rootless):
        folder.mkdir(parents=True, exist_ok=True)
    return {
        "mount_point": str(mount_point),
        "root": str(layout.root),
        "etc": slurm_conf.etc_files(cluster, slurm_major(layout.root), _limits(), str(Path.home())),
        "pid_namespace": cgroups.pid_namespace(),
        "controllers": cgroups.controllers() if cluster.confined else [],
        "devices": slurm_conf.gres_devices(cluster),
        "overlay_options": "" if is_root() else ",userxattr",
        "docker_root": str(layout.store or "") if layout.runtime == "docker" else "",
        "copy_on_write": [str(path) for path in _distinct(layout.copy_on_write)],
        "missing": [str(path) for path in layout.missing],
        "read_only": [*images, *((str(path), str(path)) for path in layout.files)],
        "binds": [(str(layout.folder), str(layout.folder)), (str(rootless), slurm_conf.ROOTLESS)],
        "homes": {user.home: user.uid for user in slurm_conf.USERS} if is_root() else {},
        "gateways": [slurm_conf.GATEWAY_V4, slurm_conf.GATEWAY_V6],
        "hosts": {
            host: {
                "daemons": daemons[host],
                "addresses": [
                    f"{address}/{64 if ':' in address else 16}"
                    for address in slurm_conf.addresses(cluster, host)
                ],
            }
            for host in cluster.hosts
        },
    }


def _distinct(paths: Sequence[Path]) -> list[Path]:
    """Drop folders below another one of the list, if both are on one filesystem."""
    kept: list[Path] = []
    for path in sorted({path.resolve() for path in paths}):
        device = path.stat().st_dev
        if not any(path.is_relative_to(other) and device == other.stat().st_dev for other in kept):
            kept.append(path)
    return kept


def _limits() -> dict[str, int]:
    """Ulimits for containers: without CAP_SYS_RESOURCE, no higher than those of this process."""
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    tasks = resource.getrlimit(resource.RLIMIT_NPROC)[1]
    return {
        "nofile": 1_048_576 if files < 0 else min(files, 1_048_576),
        "nproc": 4_194_304 if tasks < 0 else min(tasks, 4_194_304),
    }
