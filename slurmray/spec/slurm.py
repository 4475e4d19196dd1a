"""The section `slurm` of the job spec: a field for each long option of sbatch, from syntax.OPTIONS."""

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

from slurmray.errors import UsageError
from slurmray.slurm import syntax
from slurmray.spec.types import Count, Flag, Line, Switch, pattern, repeated


class Model(BaseModel):
    """Base of every section of the job spec: refuses unknown fields; null means not set."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        use_attribute_docstrings=True,
        coerce_numbers_to_str=True,
    )

    def __setattr__(self, name: str, value: object) -> None:
        """Refuse to change a field."""
        raise UsageError(f"{name}: a job spec does not change; use model_copy(update={{{name!r}: ...}})")

    @model_validator(mode="before")
    @classmethod
    def _drop_nulls(cls, data: object) -> object:
        if not isinstance(data, dict):
            return data
        return {
            name: value for name, value in data.items() if value is not None or name not in cls.model_fields
        }


def _check_extra(entry: str) -> str:
    syntax.split_extra(entry)
    return entry


class SlurmBase(Model):
    """sbatch's long options, with underscores for dashes. Those that are not set have the site's defaults."""

    nodes: Count = Field(default=1, le=65536)
    """Number of nodes."""
    gpus_per_node: Line | None = None
    """GPUs on each node, e.g. `8` or `h100:8`. Ray gets this number, less those of services."""
    gres: Line | None = None
    """Generic resources on each node; `gpu:h100:8` means the same as gpus_per_node: h100:8."""
    cpus_per_task: Count | None = None
    """CPUs on each node. Not set: Slurm's default, often 1."""
    extra: list[Annotated[Line, AfterValidator(_check_extra)]] = Field(default=[])
    """Options that slurmray does not know, one `--option=value` per entry."""

    @field_validator("nodes", mode="before")
    @classmethod
    def _check_nodes(cls, value: object) -> object:
        if isinstance(value, str) and re.fullmatch(r"[0-9]+-[0-9]+(:[0-9]+)?|[0-9]+(,[0-9]+)+", value):
            raise ValueError(
                f"expected one number, because scripts are for a fixed number of nodes, got {value!r}"
            )
        return value

    @field_validator("gpus_per_node")
    @classmethod
    def _check_gpus(cls, value: str | None) -> str | None:
        if value is not None:
            syntax.gpus_in_count(value)
        return value

    @field_validator("gres")
    @classmethod
    def _check_gres(cls, value: str | None) -> str | None:
        if value is not None:
            syntax.gpus_in_gres(value)
        return value

    @field_validator("exclusive", check_fields=False)  # of SlurmOptions
    @classmethod
    def _check_exclusive(cls, value: bool | str) -> bool | str:
        if isinstance(value, str) and value not in ("user", "mcs", "topo"):
            raise ValueError(f"expected true, false, user, mcs or topo, got {value!r}")
        return value

    @model_validator(mode="after")
    def _check_duplicates(self) -> SlurmBase:
        names = [name for name, _ in self.given()]
        wrong = [f"--{name} is set twice; remove it from slurm.extra" for name in repeated(names)]
        for group in syntax.EXCLUSIVE:
            fields = [name.replace("-", "_") for name in group if name in names]
            if len(fields) > 1:
                wrong.append(f"{' and '.join(fields)} exclude each other; use one of them")
        if self.gpus_per_node and self.gres and syntax.gpus_in_gres(self.gres) != (None, 0):
            wrong.append("gpus_per_node and gres both request GPUs; use one of them")
        if wrong:
            raise ValueError(*wrong)
        return self

    def given(self) -> Iterator[tuple[str, str | None]]:
        """Yield (option, value) of each option that is set, in the order of OPTIONS; value None: a flag."""
        for option in syntax.OPTIONS:
            value = None if option == "extra" else getattr(self, option.replace("-", "_"), None)
            if value is not None and value is not False:
                yield option, None if value is True else str(value)
        for entry in self.extra:
            yield syntax.split_extra(entry)


def _option_fields() -> dict[str, Any]:
    """Return the fields that SlurmBase lacks, for create_model. Option --extra is possible in slurm.extra."""
    kinds: dict[syntax.Kind, tuple[Any, Any]] = {
        "value": (Line | None, None),
        **{
            kind: (
                Annotated[Line, AfterValidator(check), pattern(f"^(?:{syntax.PATTERNS[kind]})$")] | None,
                None,
            )
            for kind, check in syntax.CHECKS.items()
        },
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
