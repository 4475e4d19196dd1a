"""Ray for hosts without containers: a folder for PYTHONPATH, as an environment module would set it."""

from __future__ import annotations

import sys
from pathlib import Path

from slurmray import run
from slurmray.rehearsal import cache as store
from slurmray.rehearsal import images, machine, suites
from slurmray.rehearsal.layout import Layout

_PYTHON = "/usr/bin/python3"


def layout(share: Path) -> Layout:
    """Hosts with the machine's own Slurm and Python."""
    machine.require("none", own_slurm=True, builds=True)
    folder = packages(machine.cache_folder())
    root = suites.hosts_root(machine.cache_folder(), None, print)
    return Layout(share, "none", root=root, copy_on_write=[folder])


def packages(cache: Path) -> Path:
    """A folder with ray[default] for the machine's own Python."""
    version = run.run([_PYTHON, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"]).stdout.strip()
    wanted = [f"--python-version={version}", "--only-binary=:all:", f"ray[default]=={images.RAY_VERSION}"]

    def build(path: Path) -> None:
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--target", str(path), *wanted]
        store.call(pip, "Ray could not be fetched", {"TMPDIR": str(path.parent)})

    return store.once(cache, f"packages-{store.key(wanted)}", build)


def setup() -> str:
    """What a job spec says to have it."""
    return f"export PYTHONPATH={packages(machine.cache_folder())}"
