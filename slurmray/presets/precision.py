"""Whether a trainer is asked for bf16: by its words and its own file. Its defaults are not known here."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

_NAMES = ("bf16", "bfloat16")
_YES = ("", "true", "True")


def asks_for_bf16(words: Iterable[str], config: Any) -> bool:
    """Tell whether a word (`x.dtype=bfloat16`, `--bf16`) or a value of the file asks for it."""
    pairs = (word.partition("=")[::2] for word in words)
    return any(_is_asked(*pair) for pair in pairs) or _is_in(config)


def _is_asked(name: str, value: str) -> bool:
    return value in _NAMES or (name.lstrip("+-").rpartition(".")[2] in _NAMES and value in _YES)


def _is_in(data: Any) -> bool:
    match data:
        case dict():
            return any(
                _is_asked(name, value) if isinstance(value, str) else _is_in(value)
                for name, value in data.items()
            )
        case list():
            return any(map(_is_in, data))
    return data in _NAMES
