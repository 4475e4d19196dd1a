"""Rehearsals: errors."""

from __future__ import annotations

import subprocess

import pytest

from slurmray.errors import RehearsalError
from slurmray.rehearsal.session import hangs_as_errors


def test_a_command_that_does_not_end_is_no_bug_of_slurmray() -> None:
    wanted = r"scontrol show job 7 has not ended within 60 s: is this machine overloaded\?"
    with pytest.raises(RehearsalError, match=wanted), hangs_as_errors():
        raise subprocess.TimeoutExpired(["nsenter", "-t", "1", "scontrol", "show", "job", "7"], 60)
