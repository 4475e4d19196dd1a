"""The section `slurm` of the job spec: a field for each long option of sbatch, from syntax.OPTIONS."""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Callable, Container, Iterator, Sequence
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    ValidationInfo,
    create_model,
    field_validator,
    model_validator,
)
from typing_extensions import Self

from slurmray.errors import UsageError
from slurmray.slurm import syntax
from slurmray.spec.types import Count, Flag, Integer, Line, Switch, accept, find_duplicates, matches, pattern


class Model(BaseModel):
    """Base of every section of the job spec: refuses unknown fields; null means not set."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        coerce_numbers_to_str=True,
        defer_build=True,
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

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: Any, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        """Describe fields by the docstrings below them.

        Pydantic's use_attribute_docstrings takes a fifth of `slurmray render` for that.
        """
        schema = handler(core_schema)
        properties = handler.resolve_ref_schema(schema).get("properties", {})
        for model in cls.__mro__[: cls.__mro__.index(Model)]:
            for name, text in _read_field_docstrings(model).items():
                properties[name].setdefault("description", text)
        return schema


def _read_field_docstrings(model: type) -> dict[str, str]:
    """Docstrings of the fields that a class declares."""
    source = textwrap.dedent(inspect.getsource(model))
    docstrings = {}
    for statement, after in pairwise(ast.walk(ast.parse(source))):  # a class's statements follow one another
        match statement, after:
            case ast.AnnAssign(target=ast.Name(name)), ast.Expr(ast.Constant(str(text))):
                docstrings[name] = inspect.cleandoc(text)
    return docstrings


_GROUP_NAME = "[A-Za-z0-9][A-Za-z0-9_.-]{0,31}"
_GROUP_NAME_RULE = matches(_GROUP_NAME, "expected up to 32 letters, digits and _ . -, e.g. gpu, got {got}")


def _parses(parse: Callable[[str], object]) -> AfterValidator:
    """Return a check that a text can be parsed: `parse` raises a ValueError if not."""

    def check(value: str) -> str:
        parse(value)
        return value

    return AfterValidator(check)


class Component(Model):
    """Nodes of a job that are alike: a group, or all of them."""

    nodes: Count = Field(default=1, le=65536)
    """Number of nodes."""
    gpus_per_node: Annotated[Line, _parses(syntax.gpus_in_count)] | None = None
    """GPUs on each node, e.g. `8` or `h100:8`. Ray gets this number, less those of services."""
    gres: Annotated[Line, _parses(syntax.gpus_in_gres)] | None = None
    """Generic resources on each node; `gpu:h100:8` means the same as gpus_per_node: h100:8."""
    cpus_per_task: Count | None = None
    """CPUs on each node. Not set: Slurm's default, often 1."""
    extra: list[Annotated[Line, _parses(syntax.split_extra)]] = Field(default=[])
    """Options that slurmray does not know, one `--option=value` per entry."""

    @field_validator("nodes", mode="before")
    @classmethod
    def _check_nodes(cls, value: object) -> object:
        if isinstance(value, str) and re.fullmatch(r"[0-9]+-[0-9]+(:[0-9]+)?|[0-9]+(,[0-9]+)+", value):
            raise ValueError(
                f"expected one number, because scripts are for a fixed number of nodes, got {value[:100]!r}"
            )
        return value

    @field_validator("exclusive", check_fields=False)  # see _make_fields
    @classmethod
    def _check_exclusive(cls, value: bool | str) -> bool | str:
        if isinstance(value, str) and value not in ("user", "mcs", "topo"):
            raise ValueError(f"expected true, false, user, mcs or topo, got {value!r}")
        return value

    @model_validator(mode="after")
    def _check_duplicates(self) -> Self:
        names = [name for name, _ in self.given()]
        wrong = [f"--{name} is set twice; remove it from slurm.extra" for name in find_duplicates(names)]
        for group in syntax.EXCLUSIVE:
            fields = [name.replace("-", "_") for name in group if name in names]
            if len(fields) > 1:
                wrong.append(f"{' and '.join(fields)} exclude each other; use one of them")
        if self.gpus_per_node and self.gres and syntax.gpus_in_gres(self.gres) != (None, 0):
            wrong.append("gpus_per_node and gres both request GPUs; use one of them")
        return accept(self, wrong)

    @property
    def gpus(self) -> int:
        """GPUs on each node that are requested from Slurm."""
        if self.gpus_per_node is not None:
            return syntax.gpus_in_count(self.gpus_per_node)[1]
        return syntax.gpus_in_gres(self.gres)[1] if self.gres is not None else 0

    def given(self) -> Iterator[tuple[str, str | None]]:
        """Yield (option, value) of each option that is set, in the order of OPTIONS; value None: a flag."""
        for option in syntax.OPTIONS:
            value = None if option == "extra" else getattr(self, option.replace("-", "_"), None)
            if value is not None and value is not False:
                yield option, None if value is True else str(value)
        for entry in self.extra:
            yield syntax.split_extra(entry)


class GroupBase(Component):
    """Nodes with the same resources, a component of a heterogeneous job.

    All other fields of `slurm` are fields here, except for options of the whole job. An option of `slurm`
    counts for every group that does not set it. null: not for this group.
    """

    name: Annotated[Line, _GROUP_NAME_RULE, pattern(f"^{_GROUP_NAME}$")]
    """Name. In Ray, each of the nodes has 1 of the resource `group:NAME`."""
    spares: Integer = Field(default=0, ge=0)
    """Nodes of the group in addition to `nodes`, which take the place of its nodes that fail."""


class SlurmBase(Component):
    """sbatch's long options, with underscores for dashes. Those that are not set have the site's defaults."""

    if TYPE_CHECKING:

        @property
        def groups(self) -> Sequence[GroupBase]:
            """The groups of nodes; none for a job without groups."""

    @field_validator("groups", mode="before", check_fields=False)  # see SlurmOptions
    @classmethod
    def _complete_groups(cls, value: object, info: ValidationInfo) -> object:
        """Give each group the options of the section that it does not set."""
        if not isinstance(value, list | tuple):
            return value
        common = {
            name: given
            for name, given in info.data.items()
            if name in SlurmGroup.model_fields and name != "nodes" and given != cls.model_fields[name].default
        }
        groups = [
            {name: getattr(group, name) for name in group.model_fields_set}
            if isinstance(group, SlurmGroup)
            else group
            for group in value
        ]
        return [{**common, **group} if isinstance(group, dict) else group for group in groups]

    @model_validator(mode="after")
    def _check_groups(self) -> Self:
        if not self.groups:
            return self
        names = [group.name for group in self.groups]
        wrong = [f"two groups are called {name}; rename one" for name in find_duplicates(names)]
        if len(names) == 1:
            wrong.append("groups: one group is a job without groups; move its fields into slurm")
        if "nodes" in self.model_fields_set:
            wrong.append("nodes: each group has its own; leave it out")
        if dict(self.given()).get("array"):
            wrong.append("array: Slurm has none of jobs with groups; leave one of them out")
        counts = sorted({group.gpus for group in self.groups if group.gpus})
        if len(counts) > 1:
            counted = " and ".join(map(str, counts))
            wrong.append(
                f"groups: nodes with {counted} GPUs; trainers count nodes with the same number, so give all "
                "groups with GPUs the same"
            )
        wrong += self._inherited_options()
        return accept(self, wrong)

    def _inherited_options(self) -> Iterator[str]:
        """Yield a problem for each option that Slurm would pass on to a group without it."""
        for option in syntax.PASSED_ON:
            having = [group.name for group in self.groups if option in dict(group.given())]
            lacking = [group.name for group in self.groups if group.name not in having]
            order = [group.name for group in self.groups]
            if having and lacking and order.index(having[0]) < order.index(lacking[-1]):
                yield (
                    f"groups: {option} of {having[0]} would be that of {lacking[-1]}, too: Slurm passes it "
                    "on; set it in both"
                )

    @property
    def components(self) -> list[Component]:
        """The groups, or this section as the only component of a job without groups."""
        return [*self.groups] or [self]

    @property
    def node_count(self) -> int:
        """Number of nodes of the job."""
        return sum(component.nodes for component in self.components)


def _make_fields(left_out: Container[str] = ()) -> dict[str, Any]:
    """Return the fields that Component lacks, for create_model. Option --extra is possible in slurm.extra."""
    kinds: dict[syntax.Kind, tuple[Any, Any]] = {
        "value": (Line | None, None),
        **{
            kind: (
                Annotated[Line, AfterValidator(partial(syntax.check, kind)), pattern(f"^(?:{form})$")] | None,
                None,
            )
            for kind, form in syntax.PATTERNS.items()
        },
        "flag": (Flag, False),
        "optional": (Switch, False),
    }
    return {
        name: (kinds[option.kind][0], Field(default=kinds[option.kind][1], description=option.help))
        for option_name, option in syntax.OPTIONS.items()
        if option_name not in left_out
        and (name := option_name.replace("-", "_")) not in Component.model_fields
    }


if TYPE_CHECKING:
    from slurmray.spec.slurm_fields import GroupFields, SlurmFields

    class SlurmGroup(GroupBase, GroupFields):
        """See GroupBase."""

    class SlurmOptions(SlurmBase, SlurmFields):
        """See SlurmBase."""

        groups: list[SlurmGroup] = []

else:
    SlurmGroup = create_model(
        "SlurmGroup",
        __base__=GroupBase,
        __doc__=GroupBase.__doc__,
        **_make_fields(syntax.OF_WHOLE_JOB),
    )
    SlurmOptions = create_model(
        "SlurmOptions",
        __base__=SlurmBase,
        __doc__=SlurmBase.__doc__,
        **_make_fields(),
        # The last field, as the groups get the values of the others.
        groups=(
            list[SlurmGroup],
            Field(
                default=[],
                description="Groups of nodes with different resources, e.g. a head node without GPUs: a "
                "heterogeneous job. The first node of the first group is the head node.",
            ),
        ),
    )
