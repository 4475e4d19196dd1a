"""Draws the log of a job or what a terminal shows, for example docs/log.svg, the picture in the README.

    slurmray rehearse --nodes 2 --build-image | python docs/scripts/log_svg.py docs/log.svg
    grep -E '^(\\[slurmray|start|step)' slurm-1.out | python docs/scripts/log_svg.py docs/node-loss.svg

The second one is of examples/resume.yaml on three hosts, of which one was switched off. docs/verl-cpu.svg is
of `make demo-verl`, with what is between `step:1` and `train/loss:5.6` cut. docs/init-from.svg is what these
commands print for the script of docs/first-hour.md, with `$` before each:

    slurmray init --from train.slurm -o job.yaml
    sed -n 2,23p job.yaml

It needs rich. The picture holds the log as text in <desc>, for screen readers and for the tests.
"""

from __future__ import annotations

import argparse
import io
import re
import sys
from pathlib import Path
from xml.sax.saxutils import escape

from rich.console import Console
from rich.table import Table
from rich.terminal_theme import DEFAULT_TERMINAL_THEME
from rich.text import Text

COLUMNS = 110  # longer lines are wrapped
TRAINER = "#ffffff"  # color of what is not slurmray's

# rich's own format, CONSOLE_SVG_FORMAT, without the web font: sites that show pictures do not load one.
# rich stretches each piece of text to its place, so any monospace font will do.
FORMAT = """\
<svg viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg" role="img">
    <desc/>
    <style>
    .{unique_id}-matrix {{
        font-family: ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace;
        font-size: {char_height}px;
        line-height: {line_height}px;
    }}
    .{unique_id}-title {{
        font-size: 18px;
        font-weight: bold;
        font-family: system-ui, sans-serif;
    }}
    {styles}
    @media (prefers-color-scheme: light) {{
    .{unique_id}-title {{ fill: #000000 }}
    rect[rx="8"] {{ fill: #f6f8fa; stroke: rgba(0,0,0,0.35) }}
    /* light */
    }}
    </style>
    <defs>
    <clipPath id="{unique_id}-clip-terminal">
      <rect x="0" y="0" width="{terminal_width}" height="{terminal_height}" />
    </clipPath>
    {lines}
    </defs>
    {chrome}
    <g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
    {backgrounds}
    <g class="{unique_id}-matrix" xml:space="preserve">
    {matrix}
    </g>
    </g>
</svg>
"""


def draw(log: str, title: str) -> str:
    """SVG of a job's log, in light or dark colors as the reader's system has them."""
    console = Console(
        file=io.StringIO(),
        record=True,
        width=min(COLUMNS, max(len(line) for line in log.splitlines())),
        force_terminal=True,
        color_system="truecolor",
        legacy_windows=False,
    )
    for line in log.splitlines():
        console.print(_style(line))
    light = console.export_svg(
        theme=DEFAULT_TERMINAL_THEME, code_format="{styles}", unique_id="log", clear=False
    )
    svg = console.export_svg(title=title, code_format=FORMAT, unique_id="log")
    svg = svg.replace("/* light */", light.replace(TRAINER, "#000000"))
    return svg.replace("<desc/>", f"<desc>{escape(log)}</desc>")


def _style(line: str) -> Table | Text:
    """Time, subject and text of a line from slurmray; one from the trainer, or a command, in one color."""
    if line.startswith("$ "):
        return Text(line, "bold")
    field, comment, rest = line.partition("# ")
    if comment and not line.startswith("["):
        return Text.assemble((field, TRAINER), (comment + rest, "dim"))
    match = re.fullmatch(r"(\[slurmray +[0-9.]+ s\]) ([^:]+:)(.*)", line)
    if match is None:
        return Text(line, TRAINER)
    time, subject, text = match.groups()
    color = {"done": "green", "failed": "red"}.get(re.findall(r"\w+", subject)[0], "cyan")
    row = Table.grid(padding=(0, 1, 0, 0))  # so that wrapped text is indented
    row.add_row(Text(time, "dim"), Text.assemble((subject, f"bold {color}"), text))
    return row


def main() -> None:
    """Read a log from standard input and write the picture."""
    parser = argparse.ArgumentParser(description="Draws the log of a job from standard input.")
    parser.add_argument("picture", type=Path, help="the SVG file to write")
    parser.add_argument("--title", default="slurm-1.out", help="title of the window")
    arguments = parser.parse_args()
    log = sys.stdin.read()
    if not log.strip():
        parser.error("the log is empty")
    arguments.picture.write_text(draw(log.strip("\n"), arguments.title))


if __name__ == "__main__":
    main()
