"""The container settings of a rendered script, as far as a rehearsal needs them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from slurmray.agent.script_parts import read_settings


@dataclass(frozen=True)
class ContainerSettings:
    """The image with its registry, the runtimes that the script may use, and the sources of its mounts."""

    image: str
    runtimes: tuple[str, ...]
    mounts: tuple[str, ...]

    def sources(self, home: Path) -> list[Path]:
        """Return the sources of mounts outside the submit folder; `~` is `home`."""
        resolved = [re.sub(r"^~(?=/|$)", str(home), source) for source in self.mounts]
        return [Path(source) for source in resolved if source.startswith("/")]


def read_container_settings(script: str) -> ContainerSettings:
    """Read the container settings of a script; ValueError if slurmray did not render it."""
    try:
        container = read_settings(script)["container"]
        return ContainerSettings(
            container["image_with_registry"],
            tuple(container["runtimes"]),
            tuple(mount["source"] for mount in container["mounts"]),
        )
    except (ValueError, KeyError, TypeError):
        message = "slurmray did not render this script; rehearse a job spec or a rendered script"
        raise ValueError(message) from None
