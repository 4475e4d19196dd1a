"""The `slurm:` part of the job spec: one field for every long option of sbatch, made from syntax.OPTIONS."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    create_model,
    field_validator,
    model_validator,
)

from slurmray.slurm import syntax
from slurmray.spec.types import Count, Flag, Line, Switch, repeated


class Model(BaseModel):
    """Base of every part of the job spec: nothing unknown, null means not set."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        use_attribute_docstrings=True,
        coerce_numbers_to_str=True,
    )

    @model_validator(mode="before")
    @classmethod
    def _null_is_not_set(cls, data: object) -> object:
        if not isinstance(data, dict):
            return data
        return {
            name: value for name, value in data.items() if value is not None or name not in cls.model_fields
        }


def _extra(word: str) -> str:
    syntax.split_extra(word)
    return word


class SlurmBase(Model):
    """sbatch's long options, with underscores for dashes; what is not set is left to the site's defaults."""

    nodes: Count = Field(default=1, le=65536)
    """Number of nodes."""
    gpus_per_node: Line | None = None
    """GPUs on each node, as `8` or `h100:8`. Ray is told this number."""
    gres: Line | None = None
    """Generic resources on each node; `gpu:h100:8` means the same as gpus_per_node: h100:8."""
    cpus_per_task: Count | None = None
    """CPUs on each node, for Ray and all that runs in it. Not set: what Slurm gives."""
    extra: list[Annotated[Line, AfterValidator(_extra)]] = Field(default=[])
    """Options that slurmray does not know, as `--option=value`, one to an entry."""

    @field_validator("nodes", mode="before")
    @classmethod
    def _fixed_number(cls, value: object) -> object:
        if isinstance(value, str) and re.fullmatch(r"[0-9]+-[0-9]+(:[0-9]+)?|[0-9]+(,[0-9]+)+", value):
            raise ValueError(f"slurmray renders for a fixed number of nodes: write one number, not {value!r}")
        return value

    @field_validator("gpus_per_node")
    @classmethod
    def _count(cls, value: str | None) -> str | None:
        if value is not None:
            syntax.gpus_in_count(value)
        return value

    @field_validator("gres")
    @classmethod
    def _gres(cls, value: str | None) -> str | None:
        if value is not None:
            syntax.gpus_in_gres(value)
        return value

    @model_validator(mode="after")
    def _said_once(self) -> SlurmBase:
        names = [name for name, _ in self.given()]
        wrong = [f"--{name} is given twice, look in slurm.extra" for name in repeated(names)]
        if self.gpus_per_node and self.gres and syntax.gpus_in_gres(self.gres) != (None, 0):
            wrong.append("gpus_per_node and gres both ask for GPUs; use one of them")
        if wrong:
            raise ValueError(*wrong)
        return self

    def given(self) -> Iterator[tuple[str, str | None]]:
        """Yield (option, value) of what is set, in the table's order, `extra` last; None: a bare flag."""
        for option in syntax.OPTIONS:
            value = None if option == "extra" else getattr(self, option.replace("-", "_"), None)
            if value is not None and value is not False:
                yield option, None if value is True else str(value)
        for word in self.extra:
            yield syntax.split_extra(word)


def _option_fields() -> dict[str, Any]:
    """One field for every option that SlurmBase lacks; `--extra` itself goes through slurm.extra."""
    kinds: dict[syntax.Kind, tuple[Any, Any]] = {
        "value": (Line | None, None),
        "flag": (Flag, False),
        "optional": (Switch, False),
    }
    return {
        name: (kinds[option.kind][0], Field(default=kinds[option.kind][1], description=option.help))
        for option_name, option in syntax.OPTIONS.items()
        if (name := option_name.replace("-", "_")) not in SlurmBase.model_fields
    }


if TYPE_CHECKING:
    SlurmOptions = SlurmBase
else:
    SlurmOptions = create_model(
        "SlurmOptions", __base__=SlurmBase, __doc__=SlurmBase.__doc__, **_option_fields()
    )
