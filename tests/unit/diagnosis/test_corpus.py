"""Ends of logs as jobs print them, from public threads and programs' sources: the first cause is found.

corpus/FAMILY.yaml has what is expected of corpus/FAMILY/NAME.log; in corpus/silent nothing is found.
"""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml

from slurmray.diagnosis.entries import Message
from slurmray.diagnosis.failures import failures, literals
from slurmray.diagnosis.messages import FAMILIES, MESSAGES

CORPUS = Path(__file__).parent / "corpus"
WANTED = {
    f"{index.stem}/{name}": wanted
    for index in sorted(CORPUS.glob("*.yaml"))
    for name, wanted in (yaml.safe_load(index.read_text()) or {}).items()
}


def found_in(path: Path) -> list[Any]:
    return failures(MESSAGES, [("log", path.read_text())])


@pytest.mark.parametrize("name", WANTED)
def test_the_first_cause_is_found(name: str) -> None:
    wanted = WANTED[name]
    found = found_in(CORPUS / name)
    shown = [(each.message.name, each.line) for each in found]
    if not wanted["name"]:
        assert all(each.message.is_follow_up for each in found), shown
        return
    assert found and found[0].message.name == wanted["name"], shown
    # Where the line itself has none, lines above or torchrun's summary may: see test_failures.py.
    assert wanted["node"] in ("", found[0].node), found[0]
    assert wanted["rank"] in (None, found[0].rank), found[0]


@pytest.mark.parametrize("path", sorted(CORPUS.glob("silent/*.log")), ids=lambda path: path.name)
def test_noise_is_no_cause(path: Path) -> None:
    assert [(each.message.name, each.line) for each in found_in(path)] == []


def test_each_log_is_expected_and_names_are_known() -> None:
    logs = {f"{path.parent.name}/{path.name}" for path in CORPUS.glob("*/*.log")}
    assert {name for name in logs if not name.startswith("silent/")} == set(WANTED)
    assert {wanted["name"] for wanted in WANTED.values()} - {each.name for each in MESSAGES} <= {""}
    assert [name for name, wanted in WANTED.items() if not wanted["source"]] == []


def test_names_are_unique() -> None:
    counts = Counter(each.name for each in MESSAGES)
    assert [name for name, count in counts.items() if count > 1] == []
    assert [name for name in counts if not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", name)] == []


@pytest.mark.parametrize("message", MESSAGES, ids=lambda each: each.name)
def test_a_pattern_is_fast(message: Message) -> None:
    """It has a text to look for first, and no repetition within a repetition."""
    assert min(map(len, literals(message.pattern))) >= 8, literals(message.pattern)
    assert any(literal in message.example for literal in literals(message.pattern))
    assert not re.search(r"\((?:[^()\\]|\\.)*[*+](?:[^()\\]|\\.)*\)[*+{]", message.pattern)
    assert not message.pattern.startswith("(?")


def test_each_match_has_a_text_to_look_for() -> None:
    lines = {each.example for each in MESSAGES}
    lines.update(line for path in CORPUS.glob("*/*.log") for line in path.read_text().splitlines())
    missed = [
        (message.name, line)
        for message in MESSAGES
        for line in lines
        if re.search(message.pattern, line) and not any(text in line for text in literals(message.pattern))
    ]
    assert missed == []


def test_each_family_is_in_the_table() -> None:
    assert sum(map(len, FAMILIES.values())) == len(MESSAGES)
