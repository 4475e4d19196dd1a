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
    return text[: here.start_mark.index] + format_scalar(value) + text[here.end_mark.index :]


def _append(text: str, section: yaml.MappingNode, names: tuple[str, ...], value: str) -> str:
    """Append a value to a section. All names but the last one are new sections around it."""
    last: yaml.Node = section
    while isinstance(last, yaml.CollectionNode) and last.value and not last.flow_style:
        entry = last.value[-1]
        last = entry[1] if isinstance(last, yaml.MappingNode) else entry
    end = text.find("\n", last.end_mark.index - 1) + 1
    indent = section.value[0][0].start_mark.column
    lines = [" " * (indent + 2 * depth) + f"{name}:" for depth, name in enumerate(names)]
    return text[:end] + "\n".join(lines) + f" {format_scalar(value)}\n" + text[end:]


def format_scalar(value: str) -> str:
    """Return a text as a YAML scalar, quoted if necessary."""
    plain = r"(?!\.\.\.|null$)(?:[\w./]|--?(?=[a-zA-Z0-9]))(?:[\w./:@+=,-]*[\w./])?"
    return value if re.fullmatch(plain, value, re.ASCII) else as_json(value)


def as_json(value: object) -> str:
    """Return a value as JSON that is YAML, too."""
    text = json.dumps(value, ensure_ascii=False)
    # JSON leaves these as they are, and YAML does not accept them, or takes them for line ends.
    return re.sub("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]", lambda match: f"\\u{ord(match[0]):04x}", text)
