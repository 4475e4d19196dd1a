"""Jobs by name."""

from __future__ import annotations

import click
import pytest

from slurmray import history
from slurmray.cli.jobs import complete_job
from slurmray.cli.terminal import bounded, list_row, paragraph


def test_jobs_are_completed_by_id_and_name() -> None:
    for number, name in ((12, "verl"), (13, "eval"), (14, "verl")):
        history.remember(history.Run(number, name, None, "/", "runs", 1.0, 1, 0))

    def values(incomplete: str) -> list[str]:
        command = click.Command("x")
        items = complete_job(click.Context(command), click.Argument(["job"]), incomplete)
        return sorted(item.value for item in items)

    assert values("") == ["12", "13", "14", "eval", "verl"]
    assert values("1") == ["12", "13", "14"]
    assert values("ve") == ["verl"]


def test_a_paragraph_fits_the_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A pipe has no width, whatever COLUMNS has."""
    monkeypatch.setenv("COLUMNS", "60")
    paragraph("word " * 30)
    assert max(map(len, capsys.readouterr().out.splitlines())) in range(95, 101)
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    paragraph("word " * 30)
    assert max(map(len, capsys.readouterr().out.splitlines())) in range(55, 61)


def test_the_last_column_of_a_list_fits_the_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A program that reads the list gets one line for each row."""
    monkeypatch.setenv("COLUMNS", "60")
    text = "a-long-word " * 20 + "x" * 70
    list_row("name  ", text)
    assert capsys.readouterr().out == f"name  {text}\n"
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    list_row(click.style("name", fg="red") + "  ", text)
    first, *others = click.unstyle(capsys.readouterr().out).splitlines()
    assert first.startswith("name  a-long-word a-long-word")
    assert " ".join(line.strip() for line in [first[6:], *others]) == text
    assert all(line.startswith(" " * 6 + "a-long-word") for line in others[:-1])
    assert max(map(len, [first, *others[:-1]])) in range(48, 61)


def test_a_value_with_bounds() -> None:
    value = {
        "\x1b[2J": "\x1b[31mred\x1b[0m\n\x9b\u202e\0\ud800",
        "text": "x" * 2001,
        "rows": [{"n": n} for n in range(52)],
        "lines": [str(n) for n in range(60)],
        "other": [None, True, 1.5],
    }
    assert bounded(value) == {
        r"\x1b[2J": "red\n" + r"\x9b\u202e\x00\ud800",
        "text": "x" * 2000,
        "rows": [*({"n": n} for n in range(50)), "and 2 more"],
        "lines": [str(n) for n in range(60)],
        "other": [None, True, 1.5],
    }
    assert bounded({"lines": ["x"] * 1001})["lines"][999:] == ["x", "and 1 more"]
