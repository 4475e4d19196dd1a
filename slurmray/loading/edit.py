"""Values put into the text of a job spec; its comments and all the rest stay as they are."""

from __future__ import annotations

import json
import re

import yaml


def amended(text: str, path: tuple[str, ...], value: str) -> str:
    """Return the text with a value at a path of names; what is missing on the way is added.

    The text is YAML in block style down to the value: one `name: value` to a line.
    """
    here: yaml.Node | None = yaml.compose(text, Loader=yaml.SafeLoader)
    for depth, name in enumerate(path):
        if not isinstance(here, yaml.MappingNode):
            raise TypeError(f"{'.'.join(path)}: {name} is looked up in something else than a section")
        below = next((node for key, node in here.value if key.value == name), None)
        if below is None:
            return _added(text, here, path[depth:], value)
        here = below
    if here is None:
        raise TypeError("a value needs a name to stand at")
    return text[: here.start_mark.index] + _scalar(value) + text[here.end_mark.index :]


def _added(text: str, section: yaml.MappingNode, names: tuple[str, ...], value: str) -> str:
    """Add a value, in sections of its own if there is more than one name, to the end of a section."""
    last: yaml.Node = section
    while isinstance(last, yaml.CollectionNode) and last.value and not last.flow_style:
        entry = last.value[-1]
        last = entry[1] if isinstance(last, yaml.MappingNode) else entry
    end = text.find("\n", last.end_mark.index - 1) + 1
    indent = section.value[0][0].start_mark.column
    lines = [" " * (indent + 2 * depth) + f"{name}:" for depth, name in enumerate(names)]
    return text[:end] + "\n".join(lines) + f" {_scalar(value)}\n" + text[end:]


def _scalar(value: str) -> str:
    """Write a text so that YAML reads it as that text."""
    if re.fullmatch(r"[A-Za-z0-9](?:[A-Za-z0-9_./:@+-]*[A-Za-z0-9])?", value) and value != "null":
        return value
    return json.dumps(value, ensure_ascii=False)
