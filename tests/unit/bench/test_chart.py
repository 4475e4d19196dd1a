"""The chart of docs/inside/figures.md."""

from __future__ import annotations

import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from bench import boot, chart, recovery
from bench.boot import Measured
from bench.recovery import PARTS, Case

SVG = "{http://www.w3.org/2000/svg}"


def elements(svg: str, name: str) -> list[ET.Element]:
    return list(ET.fromstring(svg).iter(SVG + name))


def texts(svg: str) -> list[str]:
    return [element.text or "" for element in elements(svg, "text")]


def test_chart_shows_each_way_and_value_of_the_printed_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = {(way, size): [Measured(size + len(way) / 10, 8, 9, 0, 1)] for size in (2, 4) for way in boot.WAYS}
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


def test_charts_of_bench_recovery(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One compares the ways after a power loss; the other has the parts of each restart above each other."""
    seconds = {"requeue": 40.0, "restart": 6.0}
    results = {
        Case(hosts, failure, "default", way): [dict.fromkeys(PARTS, seconds[way] + hosts)]
        for hosts in (2, 8)
        for failure in ("power", "raylet")
        for way in seconds
    }
    page = tmp_path / "figures.md"
    page.write_text(f"# Figures\n\n{recovery.table(results)}\n")
    monkeypatch.setattr(sys, "argv", ["chart", str(page)])
    chart.main()
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "figures.md",
        "recovery-parts.svg",
        "recovery.svg",
    ]
    shown = texts((tmp_path / "recovery.svg").read_text())
    assert {"2 hosts", "8 hosts", "requeue", "restart", "294.0", "56.0", "336.0", "98.0"} < set(shown)
    svg = (tmp_path / "recovery-parts.svg").read_text()
    assert {"power, 2", "raylet, 2", "power, 8", "raylet, 8", "56.0", "98.0", *PARTS} < set(texts(svg))
    assert not {"requeue", "294.0"} & set(texts(svg))


def test_no_chart_without_its_rows() -> None:
    results = {Case(2, "raylet", "short", "restart"): [dict.fromkeys(PARTS, 1.0)]}
    assert chart.charts(recovery.table(results)) == {}


def test_stacked_bars_stand_on_each_other() -> None:
    values = [chart.Value("a", "x", 3.0), chart.Value("a", "y", 12.0), chart.Value("b", "x", 6.0)]
    bars = bars_of(chart.draw("title", values, is_stacked=True))
    (x1, top1, height1), (x2, top2, height2), (x3, _, height3) = bars
    assert x1 == x2 < x3
    assert [height2 / height1, height3 / height1] == pytest.approx([4, 2], rel=0.01)
    assert top2 + height2 == pytest.approx(top1, abs=0.2)


def bars_of(svg: str) -> list[tuple[float, float, float]]:
    """x, y and height of each bar."""
    rectangles = [
        [float(element.get(name, "")) for name in ("x", "y", "height", "width")]
        for element in elements(svg, "rect")
    ]
    return [(x, y, height) for x, y, height, width in rectangles if width == chart.BAR - 4]


def test_bars_are_as_high_as_their_values() -> None:
    values = [chart.Value("2", "a", 3.0), chart.Value("2", "b", 12.0), chart.Value("3", "a", 6.0)]
    bars = [
        (bar.get("fill"), float(bar.get("height", "")))
        for bar in elements(chart.draw("title", values), "rect")
        if bar.get("width") == str(chart.BAR - 4)
    ]
    assert [height / bars[0][1] for _, height in bars] == pytest.approx([1, 4, 2], rel=0.01)
    assert [color for color, _ in bars] == [chart.COLORS[0], chart.COLORS[1], chart.COLORS[0]]


def test_page_without_the_table() -> None:
    with pytest.raises(ValueError, match="no table with the columns"):
        chart.charts("# Figures\n")
