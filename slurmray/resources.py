"""Where slurmray's own files are, however it was installed."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path


def own(name: str) -> Path:
    """Return the folder of that name: inside the installed package, or beside it in a checkout."""
    package = Path(str(files("slurmray")))
    installed = package / name
    return installed if installed.is_dir() else package.parent / name
