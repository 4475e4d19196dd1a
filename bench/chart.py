"""Draws the table of bench.boot as an SVG bar chart.

usage: python -m bench.chart docs/inside/figures.md
Reads the page's first table with the columns `hosts` and `way`, and writes figures.svg beside the page:
seconds to the trainer's first line, for each number of hosts and each way. Text and bars are mid-tones on a
transparent background, readable in light and dark mode.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree as ET

COLORS = ("#8c959f", "#2f81f7", "#79b0ff", "#d29922", "#db6d28")
TEXT = "#7a828c"  # contrast of at least 3.8 with white and with GitHub's dark background
TITLE = "Seconds from the batch script's start to the trainer's first line"
BAR, GAP, LEFT, RIGHT, TOP, HEIGHT = 34, 30, 50, 20, 56, 260  # pixels
LEGEND_LINE, X_AXIS = 20, 60


class Value(NamedTuple):
    """One bar."""

    hosts: str
    way: str
    seconds: float


def parse(page: str) -> list[Value]:
    """Return the rows of the page's first table of bench.boot; ValueError if it has none."""
    table = re.search(r"^\| hosts \| way \|.*\n\|[-|]+\n((?:\|.*\n?)+)", page, re.MULTILINE)
    if not table:
        raise ValueError("no table with the columns `hosts` and `way`")
    rows = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in table[1].splitlines()]
    return [Value(row[0], row[1].replace("`", ""), float(row[2].split()[0])) for row in rows]


def draw(values: list[Value]) -> str:
    """Return the SVG: a group of bars for each number of hosts, a color for each way."""
    hosts = list(dict.fromkeys(value.hosts for value in values))
    ways = list(dict.fromkeys(value.way for value in values))
    step = next(
        step for step in (1, 2, 5, 10, 20, 50, 100, 1000) if max(v.seconds for v in values) / step <= 8
    )
    top_tick = step * -(-max(value.seconds for value in values) // step)
    group = len(ways) * BAR + GAP
    width, bottom = LEFT + len(hosts) * group + RIGHT, TOP + HEIGHT
    size = {"width": str(width), "height": str(bottom + X_AXIS + len(ways) * LEGEND_LINE)}
    style = {"role": "img", "font-family": "sans-serif", "font-size": "12", "fill": TEXT}
    svg = ET.Element("svg", {"xmlns": "http://www.w3.org/2000/svg", **size, **style})
    ET.SubElement(svg, "title").text = TITLE

    def text(x: float, y: float, content: str, anchor: str = "middle", **more: str) -> None:
        ET.SubElement(
            svg, "text", {"x": f"{x:g}", "y": f"{y:g}", "text-anchor": anchor, **more}
        ).text = content

    def rectangle(x: float, y: float, w: float, h: float, color: str, opacity: float = 1) -> None:
        place = {"x": f"{x:g}", "y": f"{y:.1f}", "width": f"{w:g}", "height": f"{h:.1f}"}
        ET.SubElement(svg, "rect", {**place, "fill": color, "opacity": f"{opacity:g}"})

    text(width / 2, 20, TITLE, **{"font-weight": "bold"})
    text(8, TOP - 14, "seconds", "start")
    for tick in range(0, int(top_tick) + 1, step):
        y = bottom - HEIGHT * tick / top_tick
        rectangle(LEFT, y, width - LEFT - RIGHT, 1, TEXT, 0.3)
        text(LEFT - 8, y + 4, str(tick), "end")
    for value in values:
        x = LEFT + GAP / 2 + hosts.index(value.hosts) * group + ways.index(value.way) * BAR
        height = HEIGHT * value.seconds / top_tick
        rectangle(x + 2, bottom - height, BAR - 4, height, COLORS[ways.index(value.way) % len(COLORS)])
        text(x + BAR / 2, bottom - height - 4, f"{value.seconds:.1f}")
    for number, name in enumerate(hosts):
        text(LEFT + (number + 0.5) * group, bottom + 18, f"{name} hosts")
    for number, way in enumerate(ways):
        y = bottom + X_AXIS - 18 + number * LEGEND_LINE
        rectangle(LEFT, y, 12, 12, COLORS[number % len(COLORS)])
        text(LEFT + 20, y + 11, way, "start")
    ET.indent(svg)
    return ET.tostring(svg, encoding="unicode") + "\n"


def main() -> None:
    """Write the chart of the page named on the command line."""
    page = Path(sys.argv[1])
    page.with_suffix(".svg").write_text(draw(parse(page.read_text())))


if __name__ == "__main__":
    main()
