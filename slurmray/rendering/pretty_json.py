"""JSON for reviewers: short values on one line, invisible characters as escapes."""

from __future__ import annotations

import json
from typing import Any

from slurmray.spec.types import INVISIBLE

WIDTH = 100  # characters


def format_json(value: object, indent: int = 0) -> str:
    """Return a value as JSON, one key or item per line. Flat lists and objects that fit stay on one line.

    value: as for json.dumps. indent: blanks before all lines but the first.
    """
    flat = _format_flat(value)
    if not isinstance(value, dict | list) or not value:
        return flat
    items = list(value.values()) if isinstance(value, dict) else value
    is_leaf = not any(isinstance(item, dict | list) and item for item in items)
    if indent and is_leaf and indent + len(flat) <= WIDTH:
        return flat
    deeper = indent + 2
    if isinstance(value, dict):
        lines = [f"{_format_flat(str(key))}: {format_json(item, deeper)}" for key, item in value.items()]
    else:
        lines = [format_json(item, deeper) for item in value]
    opening, closing = "{}" if isinstance(value, dict) else "[]"
    blanks = " " * deeper
    return f"{opening}\n{blanks}" + f",\n{blanks}".join(lines) + f"\n{' ' * indent}{closing}"


def _format_flat(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    # sbatch refuses \r, and surrogates are not UTF-8.
    return INVISIBLE.sub(lambda match: json.dumps(match[0])[1:-1], text)
