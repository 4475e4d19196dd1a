"""The chart of docs/inside/figures.md."""

from __future__ import annotations

import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from bench import boot, chart
from bench.boot import Measured

SVG = "{http://www.w3.org/2000/svg}"


def elements(svg: str, name: str) -> list[ET.Element]:
    return list(ET.fromstring(svg).iter(SVG + name))


def texts(svg: str) -> list[str]:
    return [element.text or "" for element in elements(svg, "text")]


def test_chart_shows_each_way_and_value_of_the_printed_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = {(way, size): [Measured(size + len(way) / 10, 9, 0, 1)] for size in (2, 4) for way in boot.WAYS}
    page = tmp_path / "figures.md"
    page.write_text(
        f"# Figures\n\nSome text.\n\n{boot.table(runs)}\n\n| other | table |\n|---|---|\n| 1 | 2 |\n"
    )
    monkeypatch.setattr(sys, "argv", ["chart", str(page)])
    chart.main()
    svg = (tmp_path / "figures.svg").read_text()
    shown = texts(svg)
    assert {way.replace("`", "") for way in boot.WAYS.values()} < set(shown)
    assert {f"{size + len(way) / 10:.1f}" for way, size in runs} < set(shown)
    assert {"2 hosts", "4 hosts", "seconds", chart.TITLE} < set(shown)


def test_bars_are_as_high_as_their_values() -> None:
    values = [chart.Value("2", "a", 3.0), chart.Value("2", "b", 12.0), chart.Value("3", "a", 6.0)]
    bars = [
        (bar.get("fill"), float(bar.get("height", "")))
        for bar in elements(chart.draw(values), "rect")
        if bar.get("width") == str(chart.BAR - 4)
    ]
    assert [height / bars[0][1] for _, height in bars] == pytest.approx([1, 4, 2], rel=0.01)
    assert [color for color, _ in bars] == [chart.COLORS[0], chart.COLORS[1], chart.COLORS[0]]


def test_page_without_the_table() -> None:
    with pytest.raises(ValueError, match="no table with the columns"):
        chart.parse("# Figures\n")
