"""Finds slurmray's own files, in a checkout or an installation."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path


def data_folder(name: str) -> Path:
    """Return e.g. the folder `templates`: inside the installed package, or beside it in a checkout."""
    package = Path(str(files("slurmray")))
    installed = package / name
    return installed if installed.is_dir() else package.parent / name
