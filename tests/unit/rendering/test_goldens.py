"""Rendered scripts as files, so that changes to them show up in review.

`hello.sh` is a complete script, except that the number of the agent's files replaces the agent.
`every-field.settings` has the directives and the settings of a job spec with a value in every field.
"""

import re
from pathlib import Path

import pytest

from slurmray.agent import loader, script_parts
from slurmray.cli.rendered import render_job
from slurmray.rendering.script import render_script
from slurmray.spec.job_spec import JobSpec
from tests.plans import plan_of

from .cases import GOLDENS, MARKED


def compare(name: str, text: str, request: pytest.FixtureRequest) -> None:
    """Compare a script with a golden, without the hashes that every change to the agent changes."""
    text = re.sub(r"^(# slurmray-(?:sha256|story|agent): ).+$", r"\1...", text, flags=re.MULTILINE)
    if request.config.getoption("write_goldens"):
        (GOLDENS / name).write_text(text)
    assert (GOLDENS / name).read_text() == text, "the script changed: look at it, then make goldens"


@pytest.mark.usefixtures("in_checkout")
def test_a_complete_script(request: pytest.FixtureRequest) -> None:
    text = render_job(Path("examples/hello.yaml"), [], [])[1]
    agent = script_parts.read_agent(text)
    files = len(loader.split_sections(agent))
    compare("hello.sh", text.replace(agent, f"{files} files of slurmray/agent"), request)


def test_the_settings_of_every_field(request: pytest.FixtureRequest) -> None:
    text = render_script(plan_of(JobSpec.model_validate(MARKED)), "slurmray render job.yaml")
    compare("every-field.settings", text[: text.index(script_parts.STORY_BEGIN)], request)
