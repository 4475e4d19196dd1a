"""The `preset:` part of the job spec: which trainer, of which version, with which configuration."""

from __future__ import annotations

import re
from typing import Any, Literal

from pydantic import field_validator, model_validator

from slurmray.spec.slurm import Model
from slurmray.spec.types import Line, shown

TrainerName = Literal["verl", "search-r1", "rlinf", "roll", "openrlhf"]


class Preset(Model):
    """A trainer that slurmray knows: docs/reference/presets.md has what it fills in and checks."""

    name: TrainerName
    """The trainer. A preset that is only this name may be written as a text."""
    version: Line | None = None
    """The trainer's version, as `0.11.2`, where its flags changed. Not set: judged by the flags' form."""
    config: Line | None = None
    """RLinf's and ROLL's own YAML file, read when the script is rendered; relative to the current folder."""

    @model_validator(mode="before")
    @classmethod
    def _short(cls, value: object) -> object:
        return {"name": value} if isinstance(value, str) else value

    @field_validator("version")
    @classmethod
    def _numbers(cls, value: str | None) -> str | None:
        if value is not None and not re.match(r"v?[0-9]{1,9}(?![0-9])", value):
            raise ValueError(f"expected numbers with dots, as 0.11.2, got {shown(value)}")
        return value

    def since(self, *release: int) -> bool | None:
        """Return whether the version is that release or a later one; None: the spec does not say."""
        if self.version is None:
            return None
        numbers = re.findall(r"[0-9]+", self.version)[: len(release)]
        return tuple(int(number[:9]) for number in numbers) >= release


def name_or_section(schema: dict[str, Any]) -> None:
    """Say in the JSON Schema that a trainer's name alone will do."""
    schema["anyOf"].insert(0, {"type": "string", "enum": list(TrainerName.__args__)})  # type: ignore[attr-defined]
