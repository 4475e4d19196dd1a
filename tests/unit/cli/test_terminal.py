"""Durations, and jobs by name."""

from __future__ import annotations

import click
import pytest

from slurmray import history
from slurmray.cli.terminal import complete_job, duration


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        (0, "0.0 s"),
        (3.14, "3.1 s"),
        (59.9, "59.9 s"),
        (60, "1 min"),
        (3599, "1 h 0 min"),
        (7800, "2 h 10 min"),
        (86400, "1 d 0 h"),
        (100000, "1 d 3 h"),
    ],
)
def test_durations(seconds: float, expected: str) -> None:
    assert duration(seconds) == expected


def test_jobs_are_completed_by_id_and_name() -> None:
    for number, name in ((12, "verl"), (13, "eval"), (14, "verl")):
        history.remember(history.Run(number, name, None, "/", "runs", 1.0, 1, 0))

    def values(incomplete: str) -> list[str]:
        command = click.Command("x")
        found = complete_job(click.Context(command), click.Argument(["job"]), incomplete)
        return sorted(item.value for item in found)

    assert values("") == ["12", "13", "14", "eval", "verl"]
    assert values("1") == ["12", "13", "14"]
    assert values("ve") == ["verl"]
