"""The cgroups of a rehearsal's Docker containers, the one thing that does not end with the namespaces."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path

from slurmray.rehearsal.machine import birth

_ROOTS = ("/sys/fs/cgroup", "/sys/fs/cgroup/unified")  # the second one where there are both v1 and v2


def parent(first_process: int) -> str:
    """Return the name of a rehearsal's cgroup, below that of the process which booted it."""
    return f"slurmray-{first_process}"


def sweep() -> None:
    """Remove the cgroups of rehearsals that have ended."""
    own = re.search("^0::/?(.*)$", Path("/proc/self/cgroup").read_text(), re.MULTILINE)
    for top in (top for root in _ROOTS for top in Path(root, own[1] if own else "").glob("slurmray-*")):
        if not birth(int(re.sub(".*-", "", top.name))):
            for folder, _, _ in os.walk(top, topdown=False):
                with suppress(OSError):  # another sweep was faster
                    Path(folder).rmdir()
