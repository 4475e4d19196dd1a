"""Sets values in the text of a job spec, and keeps its comments and everything else."""

from __future__ import annotations

import json
import re

import yaml


def set_value(text: str, path: tuple[str, ...], value: str) -> str:
    """Return the text with a value at a path of names, adding sections that are missing.

    Down to the value the text must be YAML in block style: one `name: value` per line.
    """
    here: yaml.Node | None = yaml.compose(text, Loader=yaml.SafeLoader)
    for depth, name in enumerate(path):
        if not isinstance(here, yaml.MappingNode):
            raise TypeError(f"{'.'.join(path)}: expected a section around {name}")
        below = next((node for key, node in here.value if key.value == name), None)
        if below is None:
            return _append(text, here, path[depth:], value)
        here = below
    if here is None:
        raise TypeError("path: expected one name or more")
    return text[: here.start_mark.index] + _format_scalar(value) + text[here.end_mark.index :]


def _append(text: str, section: yaml.MappingNode, names: tuple[str, ...], value: str) -> str:
    """Append a value to a section. All names but the last one are new sections around it."""
    last: yaml.Node = section
    while isinstance(last, yaml.CollectionNode) and last.value and not last.flow_style:
        entry = last.value[-1]
        last = entry[1] if isinstance(last, yaml.MappingNode) else entry
    end = text.find("\n", last.end_mark.index - 1) + 1
    indent = section.value[0][0].start_mark.column
    lines = [" " * (indent + 2 * depth) + f"{name}:" for depth, name in enumerate(names)]
    return text[:end] + "\n".join(lines) + f" {_format_scalar(value)}\n" + text[end:]


def _format_scalar(value: str) -> str:
    """Return a text as a YAML scalar, quoted if necessary."""
    if re.fullmatch(r"[A-Za-z0-9](?:[A-Za-z0-9_./:@+-]*[A-Za-z0-9])?", value) and value != "null":
        return value
    return json.dumps(value, ensure_ascii=False)
