"""The build backend: hatchling's, or a message for a Python without it. Old versions of pip run this file."""

import sys

if sys.version_info < (3, 8):
    sys.exit(
        "slurmray needs Python 3.10 or later; this is Python %s (%s). See docs/install.md, "
        "or let uv bring one: uv tool install ." % (sys.version.split()[0], sys.executable)
    )

from hatchling.build import *  # noqa: F403
