"""Writes a job spec as YAML, with comments behind its fields."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import yaml

from slurmray import yaml_source


class _Dumper(yaml.SafeDumper):
    """Writes YAML as `yaml_source` reads it: all scalars but null are texts."""

    yaml_implicit_resolvers = yaml_source.RESOLVERS

    def ignore_aliases(self, data: object) -> bool:
        """Write a value that is there twice as it is."""
        del data
        return True

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        """Indent lists, too."""
        del indentless
        super().increase_indent(flow)

    def choose_scalar_style(self) -> str:
        """Quote by ", and write blocks also where lines have tabs or end with blanks, as those of scripts."""
        style: str = super().choose_scalar_style()
        is_block = getattr(self.event, "style", None) == "|"
        return "|" if is_block else style and '"'


def _represent(dumper: yaml.SafeDumper, value: object) -> yaml.Node:
    text = value if isinstance(value, str) else json.dumps(value)
    has_lines = "\n" in text and all(character.isprintable() or character in "\n\t" for character in text)
    style = "|" if has_lines and not text[0].isspace() else None if text.isprintable() else '"'
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style)


for _kind in (str, bool, int, float):
    _Dumper.add_representer(_kind, _represent)


def write_yaml(spec: Mapping[str, Any], comments: Mapping[tuple[str, ...], str]) -> str:
    """Return a job spec as YAML. SpecError if no job spec may be so large.

    comments: by path, the items of lists by number; those of paths that are not there are left out.
    """
    text = yaml.dump(spec, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=1 << 30)
    source = yaml_source.read("the job spec", text, is_fast=True)
    lines = text.split("\n")
    for path, comment in comments.items():
        key = tuple(int(name) if name.isdecimal() else name for name in path)
        if place := source.keys.get(key) or source.values.get(key):
            lines[place[0] - 1] += f" # {comment}"
    return "\n".join(lines)
