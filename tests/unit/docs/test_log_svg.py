"""The picture of a job's log in the README."""

import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[3]
LOG = (
    """[slurmray   0.0 s] start: job 1 on 2 nodes
node1: a & b < c
[slurmray   9.0 s] failed (71 node lost): node2: no heartbeat for 25 s
[slurmray  12.5 s] """
    + "attach: "
    + "x" * 80
    + " "
    + "y" * 40
)


@pytest.fixture
def log_svg(import_script: Callable[[str], Any]) -> Any:
    return import_script("log_svg")


def shown(svg: str) -> list[str]:
    """Return the lines of text that a picture shows, from top to bottom."""
    lines: dict[float, str] = {}
    for text in ET.fromstring(svg).iter("{http://www.w3.org/2000/svg}text"):
        x, y = float(text.attrib["x"]), float(text.attrib["y"])
        lines[y] = lines.get(y, "").ljust(round(x / 12.2)) + (text.text or "").replace("\xa0", " ")
    return [line for _, line in sorted(lines.items())]


def test_picture_shows_the_log(log_svg: Any) -> None:
    svg = log_svg.draw(LOG, "a title")
    lines = [line.rstrip() for line in shown(svg)]
    assert "a title" in (line.strip() for line in lines)
    assert [line for line in lines if line in LOG.splitlines()] == LOG.splitlines()[:3]
    assert lines[-2:] == ["[slurmray  12.5 s] attach: " + "x" * 80, " " * 19 + "y" * 40]
    assert ET.fromstring(svg).findtext("{http://www.w3.org/2000/svg}desc") == LOG


def test_picture_loads_no_other_files(log_svg: Any) -> None:
    for svg in (log_svg.draw(LOG, "a title"), (ROOT / "docs/log.svg").read_text()):
        assert "http" not in svg.replace("http://www.w3.org/2000/svg", "")
