"""Writes the reference pages and JSON Schemas beside itself: job spec and events."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from slurmray import events
from slurmray.cli.schema import schema_text

_HEAD = """# The job spec

Written by docs/reference.py. Every field may be left out, but for those marked needed where their section is
given, and null means not set. `[]` is each item of a list. Text fields keep what was typed: `12:00:00`,
`1e-6`, `007` and `true` need no quotes. An editor that reads job-spec.schema.json completes these names.
"""


def files() -> dict[str, str]:
    """Return the generated files by their name in docs/."""
    text = schema_text()
    return {
        "job-spec.schema.json": text,
        "job-spec.md": "\n".join([_HEAD, *_sections(json.loads(text))]),
        "events.schema.json": json.dumps(events.schema(), indent=2) + "\n",
        "events.md": events.reference(),
    }


def _sections(document: dict[str, Any]) -> Iterator[str]:
    """Yield lines of Markdown: the fields of every part, the parts in the order of the file."""
    waiting = [("", document)]
    while waiting:
        name, part = waiting.pop(0)
        if name:
            yield f"\n## {name}\n\n{part['description']}\n"
        yield "| field | value | default | |\n|---|---|---|---|"
        for field, info in part["properties"].items():
            path = f"{name}.{field}" if name else field
            if below := _reference(info):
                waiting.append((path, document["$defs"][below]))
            if below := _reference(info.get("items", {})):
                waiting.append((f"{path}[]", document["$defs"][below]))
            text = " ".join((info.get("description") or "see below").split())
            default = "needed" if field in part.get("required", ()) else _default(info)
            yield f"| `{path}` | {_value(info)} | {default} | {text} |"


def _reference(info: dict[str, Any]) -> str | None:
    found = [option["$ref"] for option in (info, *info.get("anyOf", ())) if "$ref" in option]
    return found[0].rpartition("/")[2] if found else None


_TYPES = {
    "array": "list",
    "object": "names with values",
    "boolean": "true or false",
    "string": "text",
    "['string', 'number', 'boolean']": "text",
}


def _value(info: dict[str, Any]) -> str:
    if "anyOf" in info:
        kinds = [_value(option) for option in info["anyOf"] if option.get("type") != "null"]
        return " or ".join(kinds)
    if _reference(info):
        return "section"
    if "enum" in info:
        return ", ".join(info["enum"])
    if info.get("type") == "integer":
        low, high = info["minimum"], info.get("maximum")
        return f"{low} or more" if high is None else f"{low} to {high}"
    return str(info.get("const") or _TYPES[str(info["type"])])


def _default(info: dict[str, Any]) -> str:
    default = info.get("default")
    return "" if default is None else f"`{json.dumps(default)}`" if default != "" else ""


if __name__ == "__main__":
    for name, text in files().items():
        (Path(__file__).parent / name).write_text(text)
