"""Values put into YAML text, which keeps its comments."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurmray import yaml_source
from slurmray.cli.init import init
from slurmray.loading.edit import set_value
from slurmray.loading.load import FLAGS
from tests.unit.examples import CHANGES, EXAMPLES


def comments(text: str) -> Iterator[str]:
    for line in text.splitlines():
        if " #" in f" {line}":
            yield line[f" {line}".index(" #") :]


def changed(before: str, after: str) -> tuple[set[str], set[str]]:
    """Return the removed lines and the new lines."""
    old, new = before.splitlines(), after.splitlines()
    return set(old) - set(new), set(new) - set(old)


@pytest.mark.parametrize("name", EXAMPLES)
@pytest.mark.parametrize("flag", [name for option in init.params for name in option.opts if name in FLAGS])
def test_a_change_is_made_in_place(name: str, flag: str) -> None:
    text = EXAMPLES[name].read_text()
    path = tuple(FLAGS[flag].split("."))
    edited = set_value(text, path, CHANGES[flag])
    section, key = path
    read: Any = yaml_source.read("x", edited).data
    assert read[section][key] == CHANGES[flag]
    gone, new = changed(text, edited)
    assert len(gone) <= 1
    assert {line.split(":")[0].strip() for line in new} <= {section, key}
    assert [*comments(edited)] == [*comments(text)]


@given(st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1))
def test_any_text_is_the_same_when_it_is_read(value: str) -> None:
    text = set_value("slurm:\n  nodes: 1 # two\n", ("slurm", "comment"), value)
    assert "nodes: 1 # two\n" in text
    assert yaml_source.read("x", text).data == {"slurm": {"nodes": "1", "comment": value}}
