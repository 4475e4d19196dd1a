"""Ray for hosts without containers: a folder for PYTHONPATH, like an environment module."""

from __future__ import annotations

import sys
from functools import cache
from pathlib import Path

from slurmray.rehearsal import machine
from slurmray.rehearsal.cluster.layout import Layout
from slurmray.rehearsal.images import cache as store
from slurmray.rehearsal.images import ray_image, suites

_RAY_COMMAND = "#!/usr/bin/python3\nfrom ray.scripts.scripts import main\nmain()\n"


def layout(share: Path) -> Layout:
    """Hosts without containers, with the root filesystem of `suites.hosts_root`."""
    machine.require("none", own_slurm=True, builds=True)
    return Layout(share, "none", root=_root(), copy_on_write=[packages()])


@cache
def _root() -> Path:
    return suites.hosts_root(machine.cache_folder(), None, print)


@cache
def python() -> str:
    """Python version of these hosts, e.g. 3.11."""
    return (_root() / "usr/bin/python3").resolve().name.removeprefix("python")


@cache
def packages() -> Path:
    """A folder with ray[default] for the Python of these hosts."""
    requirements = [
        f"--python-version={python()}",
        "--only-binary=:all:",
        f"ray[default]=={ray_image.RAY_VERSION}",
    ]

    def build(path: Path) -> None:
        print("fetching Ray for hosts without containers (once)", flush=True)
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--target", str(path), *requirements]
        store.call(pip, "Ray could not be fetched", {"TMPDIR": str(path.parent)})
        (path / "bin/ray").write_text(_RAY_COMMAND)

    return store.build_once(
        machine.cache_folder(), f"packages-{store.key(requirements, _RAY_COMMAND)}", build, print
    )


def setup() -> str:
    """Value of `setup` that activates this Ray."""
    return f"export PYTHONPATH={packages()} PATH={packages()}/bin:$PATH"
