"""Templates of sites: text with a few elements of Jinja, which are checked and measured before rendering.

So a template is data: nothing in it calls a function, opens a file or runs long, on any machine.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeAlias, cast

from jinja2 import Environment, Template, TemplateSyntaxError, nodes

from slurmray import files, yaml_source
from slurmray.errors import SpecError, UsageError
from slurmray.spec.types import check_text, shown

MAX_BYTES = 64 << 10  # of a template: compiling takes time by the square of this
MAX_DEPTH = 20  # of elements: Python has a limit of 20 loops in each other
MAX_WORK = 64 << 20  # characters that rendering reads and writes, where each element counts as _ELEMENT
_ELEMENT = 100

Values: TypeAlias = Mapping[str, Any]  # texts, or lists of texts


def _has_constants(node: nodes.Node) -> bool:
    return isinstance(node, nodes.List | nodes.Tuple) and all(map(_is_const, node.items))


def _is_const(node: Any, kind: type = object) -> bool:
    return isinstance(node, nodes.Const) and isinstance(node.value, kind)


# Elements that a template may have -> the form that they must have.
_FORMS: dict[type[nodes.Node], Callable[[Any], bool]] = {
    **dict.fromkeys((nodes.Template, nodes.Block, nodes.Output, nodes.TemplateData), lambda _: True),
    **dict.fromkeys((nodes.If, nodes.CondExpr, nodes.Name, nodes.Const), lambda _: True),
    **dict.fromkeys((nodes.Compare, nodes.Operand, nodes.And, nodes.Or, nodes.Not), lambda _: True),
    **dict.fromkeys((nodes.List, nodes.Tuple), _has_constants),
    nodes.Extends: lambda node: _is_const(node.template, str),
    nodes.Filter: lambda node: node.name == "verbatim",
    nodes.Getitem: lambda node: _is_const(node.arg, int),
    nodes.Assign: lambda node: isinstance(node.target, nodes.Name),
    nodes.For: lambda node: (
        isinstance(node.target, nodes.Name)
        and (isinstance(node.iter, nodes.Name) or _has_constants(node.iter))
    ),
    nodes.Call: lambda node: node == nodes.Call(nodes.Name("super", "load"), [], [], None, None),
}
_POSSIBLE = (
    "not for templates, which have text, blocks, super(), values, verbatim, if, set, and for over a list"
)


def load(template: Path, environment: Environment, values: Values) -> Template:
    """Return a site's template that will get these values. UsageError if it cannot be used."""
    try:
        raw = files.read(template.expanduser())
        if len(raw) > MAX_BYTES:
            raise UsageError(
                f"{template}: is larger than {MAX_BYTES >> 10} KB; put commands into other files"
            )
        tree = environment.parse(yaml_source.decode(str(template), raw))
        if not isinstance(next(tree.iter_child_nodes(), None), nodes.Extends):
            raise UsageError(f'{template}: its first line must be {{% extends "job.sbatch.j2" %}}')
        assigned = _find_assigned(tree, values)
        if (work := _measure(tree, {**values, **assigned}, assigned, MAX_DEPTH)) <= MAX_WORK:
            return environment.from_string(tree)
    except OSError as error:
        raise UsageError(f"{template}: {error.strerror}; name a file that extends job.sbatch.j2") from None
    except SpecError as error:
        raise UsageError(str(error)) from None
    except TemplateSyntaxError as error:
        raise UsageError(f"{template}:{error.lineno}: {error.message}; correct the template") from None
    except (RecursionError, MemoryError, ValueError):  # of the parsers of Jinja or Python
        raise UsageError(f"{template}: nested too deeply, or too long a number; shorten it") from None
    except RuntimeError:
        raise UsageError(f"{template}: no such home folder here; write the path without ~") from None
    raise UsageError(f"{template}: would handle {work >> 20} MB of text; use fewer loops and values")


def _find_assigned(tree: nodes.Template, values: Values) -> dict[str, str]:
    """Return the names that a template sets, each with a text as long as any that it can get."""
    has_calls = any(tree.find_all(nodes.Call))  # of blocks, which may have all values
    used = {node.name for node in tree.find_all(nodes.Name)}
    texts = [str(value) for name, value in values.items() if has_calls or name in used]
    constants = [repr(node) for node in tree.find_all((nodes.Const, nodes.List, nodes.Tuple))]
    longest = max([*texts, *constants], key=len, default="")
    names = (name for node in tree.find_all(nodes.Assign) for name in node.find_all(nodes.Name))
    return {name.name: longest for name in names if name.ctx == "store"}


def _measure(node: nodes.Node, values: Values, assigned: Values, depth: int) -> int:
    """Return the work of an element. TemplateSyntaxError for one that a template cannot have.

    assigned: names that the template sets, with the longest value that they can have. depth: levels left.
    """
    passes, size = 1, 0
    if wrong := _find_mistake(node, values) if depth else "nested too deeply":
        # Jinja gives some elements no line: those of autoescape.
        line = next(part.lineno for part in (node, *node.find_all(nodes.Node)) if part.lineno)
        raise TemplateSyntaxError(wrong, line)
    if isinstance(node, nodes.Call):  # a block of ours has less than all values and the story
        return _ELEMENT + 2 * sum(len(str(value)) for value in values.values())
    if isinstance(node, nodes.TemplateData):
        size = len(node.data)
    elif isinstance(node, nodes.Name) and node.ctx == "load":
        size = len(str(values[node.name]))
    elif isinstance(node, nodes.For):
        target, over = cast("nodes.Name", node.target), cast("Any", node.iter)
        is_name = isinstance(over, nodes.Name)
        items = values.get(over.name, "") if is_name else [str(item.value) for item in over.items]
        passes, longest = len(items), items if isinstance(items, str) else max(items, key=len, default="")
        values = {**values, target.name: longest, **assigned}
    parts = (_measure(part, values, assigned, depth - 1) for part in node.iter_child_nodes())
    return passes * (_ELEMENT + size + sum(parts))


def _find_mistake(node: nodes.Node, values: Values) -> str:
    """Return what is wrong with an element itself; "" if nothing is."""
    if isinstance(node, nodes.Name) and node.ctx == "load" and node.name not in values:
        return f"{shown(node.name)} is undefined"
    if isinstance(node, nodes.Const) and isinstance(node.value, str):
        try:
            check_text(node.value)
        except ValueError as error:
            return str(error)
    is_possible = _FORMS.get(type(node), lambda _: False)
    return "" if is_possible(node) else f"{type(node).__name__.lower()} is {_POSSIBLE}"
