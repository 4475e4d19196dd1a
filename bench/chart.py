"""Draws the tables of bench.boot and bench.recovery as SVG bar charts.

usage: python -m bench.chart docs/inside/figures.md
Writes beside the page, for those of these tables that the page has:
  figures.svg         bench.boot: seconds to the trainer's first line, for each number of hosts and each way
  recovery.svg        bench.recovery: seconds from a power loss to the trainer's next first line
  recovery-parts.svg  the parts of each restart, above each other
Text and bars are mid-tones on a transparent background, readable in light and dark mode.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree as ET

COLORS = ("#8c959f", "#2f81f7", "#79b0ff", "#d29922", "#db6d28", "#3fb950", "#a371f7")
TEXT = "#7a828c"  # contrast of at least 3.8 with white and with GitHub's dark background
TITLE = "Seconds from the batch script's start to the trainer's first line"
RECOVERY = "Seconds from a power loss to the trainer's next first line"
RESTART = "Parts of a restart with a spare node, by failure and hosts"
BAR, GAP, STACKED_GAP, LEFT, RIGHT, TOP, HEIGHT = 34, 30, 60, 50, 20, 56, 260  # pixels
LEGEND_LINE, X_AXIS = 20, 60


class Value(NamedTuple):
    """One bar. group: bars beside or above each other. way: has its own color."""

    group: str
    way: str
    seconds: float


def charts(page: str) -> dict[str, str]:
    """Return {file name: SVG} for the page's tables; ValueError if it has none."""
    boot, recovery = table(page, "hosts", "way"), table(page, "hosts", "failure", "way")
    if not (boot or recovery):
        raise ValueError("no table with the columns `hosts` and `way`, or `hosts`, `failure` and `way`")
    starts = [Value(f"{row[0]} hosts", row[1].replace("`", ""), seconds(row[2])) for row in boot[1:]]
    losses = [Value(f"{row[0]} hosts", row[2], seconds(row[3])) for row in recovery if row[1] == "power"]
    parts = [
        Value(f"{row[1]}, {row[0]}", part, seconds(cell))
        for row in recovery
        if row[2] == "restart"
        for part, cell in zip(recovery[0][4:], row[4:], strict=True)
    ]
    drawn = {
        "figures.svg": starts and draw(TITLE, starts),
        "recovery.svg": losses and draw(RECOVERY, losses),
        "recovery-parts.svg": parts and draw(RESTART, parts, is_stacked=True),
    }
    return {name: svg for name, svg in drawn.items() if svg}


def table(page: str, *columns: str) -> list[list[str]]:
    """Return the page's first table that begins with these columns, with its header; [] if it has none."""
    head = r" \| ".join(columns)
    match = re.search(rf"^(\| {head} \|.*\n)\|[-|]+\n((?:\|.*\n?)+)", page, re.MULTILINE)
    lines = "".join(match.groups()).splitlines() if match else []
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]


def seconds(cell: str) -> float:
    """The number in a cell, without the ratio behind it."""
    return float(cell.split(maxsplit=1)[0])


def draw(title: str, values: list[Value], is_stacked: bool = False) -> str:
    """Return the SVG: a group of bars with a label, beside or above each other, a color for each way."""
    groups = list(dict.fromkeys(value.group for value in values))
    ways = list(dict.fromkeys(value.way for value in values))
    totals = {name: sum(value.seconds for value in values if value.group == name) for name in groups}
    highest = max(totals.values() if is_stacked else [value.seconds for value in values])
    step = next(step for step in (1, 2, 5, 10, 20, 50, 100, 1000) if highest / step <= 8)
    top_tick = step * -(-highest // step)
    gap = STACKED_GAP if is_stacked else GAP
    group = (1 if is_stacked else len(ways)) * BAR + gap
    width, bottom = LEFT + len(groups) * group + RIGHT, TOP + HEIGHT
    size = {"width": str(width), "height": str(bottom + X_AXIS + len(ways) * LEGEND_LINE)}
    style = {"role": "img", "font-family": "sans-serif", "font-size": "12", "fill": TEXT}
    svg = ET.Element("svg", {"xmlns": "http://www.w3.org/2000/svg", **size, **style})
    ET.SubElement(svg, "title").text = title

    def text(x: float, y: float, content: str, anchor: str = "middle", **more: str) -> None:
        ET.SubElement(
            svg, "text", {"x": f"{x:g}", "y": f"{y:g}", "text-anchor": anchor, **more}
        ).text = content

    def rectangle(x: float, y: float, w: float, h: float, color: str, opacity: float = 1) -> None:
        place = {"x": f"{x:g}", "y": f"{y:.1f}", "width": f"{w:g}", "height": f"{h:.1f}"}
        ET.SubElement(svg, "rect", {**place, "fill": color, "opacity": f"{opacity:g}"})

    text(width / 2, 20, title, **{"font-weight": "bold"})
    text(8, TOP - 14, "seconds", "start")
    for tick in range(0, int(top_tick) + 1, step):
        y = bottom - HEIGHT * tick / top_tick
        rectangle(LEFT, y, width - LEFT - RIGHT, 1, TEXT, 0.3)
        text(LEFT - 8, y + 4, str(tick), "end")
    tops = dict.fromkeys(groups, float(bottom))
    for value in values:
        place = 0 if is_stacked else ways.index(value.way)
        x = LEFT + gap / 2 + groups.index(value.group) * group + place * BAR
        height = HEIGHT * value.seconds / top_tick
        top = (tops[value.group] if is_stacked else bottom) - height
        tops[value.group] = top
        rectangle(x + 2, top, BAR - 4, height, COLORS[ways.index(value.way) % len(COLORS)])
        if not is_stacked:
            text(x + BAR / 2, top - 4, f"{value.seconds:.1f}")
    for number, name in enumerate(groups):
        middle = LEFT + (number + 0.5) * group
        text(middle, bottom + 18, name)
        if is_stacked:
            text(middle, tops[name] - 4, f"{totals[name]:.1f}")
    for number, way in enumerate(ways):
        y = bottom + X_AXIS - 18 + number * LEGEND_LINE
        rectangle(LEFT, y, 12, 12, COLORS[number % len(COLORS)])
        text(LEFT + 20, y + 11, way, "start")
    ET.indent(svg)
    return ET.tostring(svg, encoding="unicode") + "\n"


def main() -> None:
    """Write the charts of the page named on the command line."""
    page = Path(sys.argv[1])
    for name, svg in charts(page.read_text()).items():
        page.with_name(name).write_text(svg)


if __name__ == "__main__":
    main()
