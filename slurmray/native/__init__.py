"""Runs Python functions on Ray clusters in Slurm jobs, with submitit.

`RayExecutor` is a submitit executor. Each function runs once, as the driver of a Ray cluster over all nodes
of its job. slurmray renders the job's script, with the same ports, token, checks and clean-up as any other.
"""

from __future__ import annotations

import sys
import zipimport
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from slurmray.native.executor import RayExecutor

__all__ = ["RayExecutor"]

# Imported from the bundle: add its folder `last`, whose packages an image may have in a newer version.
if isinstance(__spec__.loader, zipimport.zipimporter):
    sys.path.append(f"{__spec__.loader.archive}/last")


# Lazy: the driver imports this module in images without slurmray's requirements.
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
