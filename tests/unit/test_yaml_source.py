# ruff: noqa: E501 - a table of tokens
"""YAML as plain data: with libyaml it is the same as with PyYAML's own parser."""

from __future__ import annotations

from typing import Any

import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from slurmray import yaml_source
from slurmray.errors import SpecError

# fmt: off
TOKENS = [
    "a: ", "b:", "- ", "\n", "\n  ", "\n    ", " ", "  ", ": ", ":", ", ", "[", "]", "{", "}", "'", '"', "#", " # x",
    "|\n", ">-\n", "&x ", "*x", "!t ", "? ", "---\n", "...\n", "~", "null", "12:00:00", "1e-6", "x", "é", "\t", "%", "@", "`",
    "\\", "<<: ", "\r\n", "\u2028", "\x85",
]
# fmt: on


def parsed(text: str, is_fast: bool) -> Any:
    try:
        return yaml_source.read("x", text, is_fast=is_fast).data
    except SpecError:
        return "an error"


@given(st.lists(st.sampled_from(TOKENS), max_size=15).map("".join))
@example("a: [1, {b: 'c'}]\nd: |\n  x\n  y\n")
@example("a: &x\n  b: 1\nc:\n  <<: *x\n")
@example("a: \t")
@example("\\\u2028\u2028a: ")
def test_libyaml_changes_no_value(text: str) -> None:
    """Where it finds an error, the text is parsed again without it.

    A tab between two tokens is valid YAML and valid for libyaml; PyYAML's own scanner finds an error there.
    """
    fast, slow = parsed(text, is_fast=True), parsed(text, is_fast=False)
    assert fast in ("an error", slow) or (slow == "an error" and "\t" in text)


def test_libyaml_is_used() -> None:
    """Without it, a job spec takes five times as long."""
    assert issubclass(yaml_source._FastLoader, yaml.CSafeLoader)
