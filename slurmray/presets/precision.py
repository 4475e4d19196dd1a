"""Finds out whether a job uses bf16, from the trainer's arguments and its own file, but not its defaults."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

_NAMES = ("bf16", "bfloat16")
_ENABLED = ("", "true", "True")


def uses_bf16(argv: Iterable[str], config: Any) -> bool:
    """Whether an argument (`x.dtype=bfloat16`, `--bf16`) or a value of the trainer's own file enables bf16.

    A section with that name is DeepSpeed's: `bf16: {enabled: true}`.
    """
    pairs = (argument.partition("=")[::2] for argument in argv)
    return any(_enables(*pair) for pair in pairs) or _is_in(config)


def _enables(name: str, value: str) -> bool:
    return value in _NAMES or (name.lstrip("+-").rpartition(".")[2] in _NAMES and value in _ENABLED)


def _is_in(data: Any) -> bool:
    match data:
        case dict():
            return any(
                _enables(name, value)
                if isinstance(value, str)
                else (name in _NAMES and isinstance(value, dict) and value.get("enabled") in _ENABLED)
                or _is_in(value)
                for name, value in data.items()
            )
        case list():
            return any(map(_is_in, data))
    return data in _NAMES
