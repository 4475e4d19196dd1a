"""Rehearsals: what they read of a script, and errors."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from slurmray.errors import RehearsalError
from slurmray.loading.load import load_plan
from slurmray.rehearsal.session import hangs_as_errors, read_container
from slurmray.rendering.script import render_script


def test_a_command_that_does_not_end_is_no_bug_of_slurmray() -> None:
    wanted = r"scontrol show job 7 has not ended within 60 s: is this machine overloaded\?"
    with pytest.raises(RehearsalError, match=wanted), hangs_as_errors():
        raise subprocess.TimeoutExpired(["nsenter", "-t", "1", "scontrol", "show", "job", "7"], 60)


def test_the_container_of_a_rendered_script(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    settings = [
        ("container.image", "my/image:1"),
        ("container.mounts", "['~/a b:/b:ro', /odd):/c, 'x:/d']"),
        ("container.runtime", "docker"),
    ]
    script = render_script(load_plan(None, settings, ["echo", "IMAGE=no"]))
    sources = [Path("/home/me/a b"), Path("/odd)")]
    assert read_container(script) == ("docker.io/my/image:1", ["docker"], sources)


@pytest.mark.parametrize("text", ["IMAGE=x\n", ": <<'SETTINGS'\n[]\nSETTINGS\n"])
def test_a_script_that_slurmray_did_not_render(text: str) -> None:
    with pytest.raises(ValueError, match="did not render"):
        read_container(f"#!/bin/bash\n{text}")
