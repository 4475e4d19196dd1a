"""Fixtures for the tests of rendered scripts."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from slurmray.rendering import script


@pytest.fixture(scope="session", params=["bash", "bash 4.4"])
def bash(request: pytest.FixtureRequest) -> str:
    """This machine's bash, and the oldest one that scripts support."""
    return str(request.getfixturevalue("bash_44")) if request.param == "bash 4.4" else "/bin/bash"


@pytest.fixture(scope="module")
def frozen_agent() -> Iterator[None]:
    """Reads the agent's files only once: somebody may edit them during the tests."""
    files = script.agent_files()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(script, "agent_files", lambda: files)
        yield
