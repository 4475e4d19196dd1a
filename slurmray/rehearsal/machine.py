"""What this machine has: the cache folder, and what a rehearsal needs of it."""

from __future__ import annotations

import os
from pathlib import Path


def cache_folder() -> Path:
    """Return the only folder of the machine that a rehearsal writes to."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "slurmray")
