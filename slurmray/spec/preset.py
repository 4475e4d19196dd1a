"""The section `preset` of the job spec: the trainer, its version and its own file."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import model_validator

from slurmray.spec.slurm_section import Model
from slurmray.spec.types import FilePath, Line, matches

_VERSION_RULE = matches(r"v?[0-9]{1,9}(?![0-9]).*", "expected numbers with dots, e.g. 0.11.2, got {got}")
TrainerName = Literal["verl", "search-r1", "rlinf", "roll", "openrlhf", "nemo-rl", "skyrl", "slime"]


class Preset(Model):
    """A trainer that slurmray knows. docs/reference/presets.md lists what it fills in and checks."""

    name: TrainerName
    """The trainer. `preset: NAME` is short for `preset: {name: NAME}`."""
    version: Annotated[Line, _VERSION_RULE] | None = None
    """The trainer's version, e.g. `0.11.2`, if its flags have changed. Not set: guessed from the flags."""
    config: FilePath | None = None
    """RLinf's and ROLL's own YAML file, read when the script is rendered; relative to the current folder."""

    @model_validator(mode="before")
    @classmethod
    def _expand_name(cls, value: object) -> object:
        return {"name": value} if isinstance(value, str) else value

    def since(self, *release: int) -> bool | None:
        """Whether the version is this release or a later one; None if the version is not set."""
        if self.version is None:
            return None
        numbers = re.findall(r"[0-9]+", self.version)[: len(release)]
        return tuple(int(number[:9]) for number in numbers) >= release


def allow_name(schema: dict[str, Any]) -> None:
    """Allow a trainer's name alone in the JSON Schema."""
    schema["anyOf"].insert(0, {"type": "string", "enum": list(TrainerName.__args__)})  # type: ignore[attr-defined]
