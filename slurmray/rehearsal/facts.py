"""What a rehearsal needs to know of a rendered script besides its `#SBATCH` lines."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

_VALUES = re.compile(r"^# -+ 1\. values -+$(.*?)^# -+ 2\. ", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Facts:
    """The image with its registry, the runtimes that the script may use, and the mounts' sources."""

    image: str
    runtimes: tuple[str, ...]
    mounts: tuple[str, ...]

    def sources(self, home: Path) -> list[Path]:
        """Return the sources of mounts outside of the submit folder; `~` is `home`."""
        resolved = [re.sub(r"^~(?=/|$)", str(home), source) for source in self.mounts]
        return [Path(source) for source in resolved if source.startswith("/")]


def facts(script: str) -> Facts:
    """Read the values of a script that slurmray rendered; ValueError when it is another's."""
    block = _VALUES.search(script)
    if not block:
        raise ValueError("slurmray did not render this script; rehearse a job spec or a rendered script")
    words = shlex.split(block[1], comments=True)
    image = _scalar(words, "IMAGE_NAME") or _scalar(words, "IMAGE")
    return Facts(image, tuple(_array(words, "RUNTIMES", 1)), tuple(_array(words, "MOUNTS", 3)[::3]))


def _scalar(words: list[str], name: str) -> str:
    return next((word[len(name) + 1 :] for word in words if word.startswith(f"{name}=")), "")


def _array(words: list[str], name: str, step: int) -> list[str]:
    """Return the words of a bash array; it ends with a word in `)` that completes a step."""
    start = next((index for index, word in enumerate(words) if word.startswith(f"{name}=(")), None)
    if start is None or words[start] == f"{name}=()":
        return []
    found = [words[start].removeprefix(f"{name}=(")]
    for word in words[start + 1 :]:
        if len(found) % step == 0 and found[-1].endswith(")"):
            break
        found.append(word)
    return [*found[:-1], found[-1].removesuffix(")")]
