"""The cgroups of a rehearsal's Docker containers, the one thing that namespaces do not end."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path

_ROOT = Path("/sys/fs/cgroup")


def parent() -> str:
    """Return the name of the cgroup, at the top of each hierarchy, for this process's rehearsal."""
    return f"slurmray-{os.getpid()}"


def sweep() -> None:
    """Remove the cgroups of this process's rehearsal, and of those whose process is gone."""
    for top in [*_ROOT.glob("slurmray-*"), *_ROOT.glob("*/slurmray-*")]:
        pid = re.sub(".*-", "", top.name)
        if int(pid) == os.getpid() or not Path("/proc", pid).exists():
            for folder, _, _ in os.walk(top, topdown=False):
                with suppress(OSError):  # another sweep was faster
                    Path(folder).rmdir()
