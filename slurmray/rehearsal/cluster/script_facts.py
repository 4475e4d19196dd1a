"""What a rehearsal reads in a rendered script other than its `#SBATCH` lines: some of the settings."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from slurmray.agent.script import settings_of


@dataclass(frozen=True)
class Facts:
    """The image with its registry, the runtimes that the script may use, and the sources of its mounts."""

    image: str
    runtimes: tuple[str, ...]
    mounts: tuple[str, ...]

    def sources(self, home: Path) -> list[Path]:
        """Return the sources of mounts outside of the submit folder; `~` is `home`."""
        resolved = [re.sub(r"^~(?=/|$)", str(home), source) for source in self.mounts]
        return [Path(source) for source in resolved if source.startswith("/")]


def facts(script: str) -> Facts:
    """Read the settings of a script; ValueError where slurmray did not render it."""
    try:
        container = settings_of(script)["container"]
        return Facts(
            container["image_with_registry"],
            tuple(container["runtimes"]),
            tuple(mount["source"] for mount in container["mounts"]),
        )
    except (ValueError, KeyError, TypeError):
        text = "slurmray did not render this script; rehearse a job spec or a rendered script"
        raise ValueError(text) from None
