"""Rendered scripts as files, so that changes to them show up in review.

`hello.sh` is a complete script, except that the number of the agent's files replaces the agent. The others
have only the part before the story: directives, header and settings. test_script.py compares story and agent.
"""

import re
from pathlib import Path

import pytest

from slurmray.agent import loader, script
from slurmray.cli.rendered import render_job
from tests.unit.examples import ROOT

from .cases import CASES, GOLDENS, every_case, flags_of

COMPLETE = GOLDENS / "hello.sh"


def golden_text(text: str) -> str:
    """Replace what every change to the agent changes: its text, and the hashes in the header."""
    agent = script.agent_of(text)
    text = text.replace(agent, f"{len(loader.split_sections(agent))} files of slurmray/agent")
    return re.sub(r"^(# slurmray-(?:sha256|story|agent): ).+$", r"\1...", text, flags=re.MULTILINE)


def compare(golden: Path, text: str, is_written: bool) -> None:
    if is_written:
        golden.write_text(text)
    assert golden.read_text() == text, "the script changed: look at it, then make goldens"


@every_case
@pytest.mark.usefixtures("in_checkout")
def test_golden(path: Path, runtime: str | None, request: pytest.FixtureRequest) -> None:
    name = next(name for name, case in CASES.items() if case == (path, runtime))
    text = golden_text(render_job(path.relative_to(ROOT), flags_of(runtime), [])[1])
    is_written = request.config.getoption("write_goldens")
    if COMPLETE.stem == name:
        compare(COMPLETE, text, is_written)
    else:
        compare(GOLDENS / f"{name}.settings", text[: text.index(script.STORY_BEGIN)], is_written)


def test_no_golden_is_left_over() -> None:
    found = {file.name for file in GOLDENS.iterdir() if file.suffix in (".sh", ".settings")}
    assert found == {COMPLETE.name} | {f"{name}.settings" for name in CASES if name != COMPLETE.stem}
