"""Ray over the nodes of a Slurm job, from a Python function, with submitit.

`RayExecutor` is an executor of submitit. Each function runs once, as the driver of a Ray cluster over all
nodes of its job. The job is a script that slurmray renders, with the same ports, token, checks and clean-up.
"""

from __future__ import annotations

import sys
import zipimport
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from slurmray.native.executor import RayExecutor

__all__ = ["RayExecutor"]

# In the bundle: packages that the image has, too, come before those of the bundle.
if isinstance(__spec__.loader, zipimport.zipimporter):
    sys.path.append(f"{__spec__.loader.archive}/last")


# The driver imports this module, too, where slurmray's own requirements are not installed.
def __getattr__(name: str) -> Any:
    if name != "RayExecutor":
        raise AttributeError(f"module {__name__} has no attribute {name}")
    try:
        from slurmray.native.executor import RayExecutor
    except ModuleNotFoundError as error:
        if error.name != "submitit":
            raise
        raise ModuleNotFoundError(
            "slurmray.native needs submitit: pip install submitit", name="submitit"
        ) from None
    return RayExecutor
