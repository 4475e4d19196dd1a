"""A page about a job, as HTML that needs no other file. No I/O except for its template."""

from __future__ import annotations

import functools
import itertools
import json
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import jinja2

from slurmray._version import __version__
from slurmray.agent import script_parts
from slurmray.agent.controller.findings import normalize
from slurmray.agent.controller.host_list import host_list
from slurmray.diagnosis.exit_codes import fix_of
from slurmray.resources import data_folder
from slurmray.slurm.account import GPU_HOURS, MEANINGS, Account
from slurmray.slurm.job_status import Status, Step
from slurmray.slurm.starts import Start, list_losses, list_starts
from slurmray.slurm.states import FINAL, Event
from slurmray.slurm.timeline import STEPS, Count, NodeTimes, Timeline, duration, exact_duration
from slurmray.slurm.usage import NodeHeat

GENERATOR = '<meta name="generator" content="slurmray'
"""In the first lines of each page."""

# Both charts: places in the SVG's own unit.
_WIDTH, _LEFT, _RIGHT = 1000.0, 160.0, 985.0
_CHART = {"left": _LEFT, "right": _RIGHT, "width": _WIDTH, "height": 110.0}
_LABEL = 22  # characters of a node's name that fit beside its row
_TALL = 48  # nodes, up to which each row has a label
_TICKS = (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 60, 120, 300, 600, 1800, 3600, 7200, 14400, 43200)  # seconds
_MAX_TICKS = 9
_DAY = 86400
# Class of a cell of the heat map -> the utilization from which on it has it, %.
_HEAT_LEVELS = {"heat0": 0, "heat1": 2, "heat2": 25, "heat3": 50, "heat4": 75}
_HIDDEN = "..."
_NAME = (
    r"(?i:(?<![a-z0-9])"
    r"(?:(?:api|access|secret|private|auth)[_-]?key|token|secret|password|passwd|credentials?))"
)
_QUOTED = r"""'[^']*'|"(?:\\.|[^"\\])*\""""
_VALUE = rf"""((?:{_QUOTED})(?:{_QUOTED}|\\.|[^\s"'\\])*|[^\s"']+)"""  # a word of bash
_REST = "{0,200}"  # letters of a name beside that of a secret: with any number, a long text takes minutes
# NAME=VALUE with the name of a secret, but not `data.prompt_key=`.
_SECRET = re.compile(rf"((?<![A-Z0-9])KEY(?:_[A-Z0-9_]{_REST})?|{_NAME}(?:_\w{_REST})?)={_VALUE}")
# Its value is the next argument, or follows after `=`.
_SECRET_OPTION = re.compile(rf"--?(?:[\w.-]*{_NAME}|(?:[\w.]+-)*key)")
# In a text: from the begin of the word on, in which a dash is before the name, or in it.
_OPTION_AND_VALUE = re.compile(rf"((?<![\w.-])(?=[\w.]*-)[\w.-]*(?:{_NAME}|(?<=-)key)(?:\s+(?!-)|=)){_VALUE}")
_URL_PASSWORD = re.compile(r"""(://(?:[^/\s:@]*:)?)[^/\s"']+(?=@)""")
_HEADER = re.compile(
    r"(Authorization|Token|Api-Key|Secret|Password)(\s*:\s*)(?:[\w-]+ +)?[^\s\"'\\]+", re.IGNORECASE
)
_JSON_VALUE = re.compile(
    rf"""(["'][\w.-]{_REST}(?:{_NAME}|(?i:authorization))[\w-]{_REST}\\*["']\s*:\s*)"""
    rf"""({_QUOTED}|\\+"[^"]*"|[\w.-]+)"""  # the second one in a string of bash
)
_VARIABLES = ("env", "env_vars")  # fields of the settings with variables and their values


class _Row(NamedTuple):
    """A row of a chart of times. label: at its side. bars: (class, left, width)."""

    label: str
    title: str
    bars: Sequence[tuple[str, float, float]]


class _Axis:
    """A time axis from 0 to so many seconds. ticks: (place, label)."""

    def __init__(self, seconds: float) -> None:
        self._scale = (_RIGHT - _LEFT) / max(seconds, 0.001)
        days = (int(seconds / _DAY / _MAX_TICKS) + 1) * _DAY
        step = next((tick for tick in _TICKS if seconds / tick < _MAX_TICKS), days)
        times = [number * step for number in range(int(seconds / step) + 1)]
        self.ticks = [(self.place(moment), _tick_label(moment, step)) for moment in times]

    def place(self, seconds: float) -> float:
        """The place of a time."""
        return round(_LEFT + seconds * self._scale, 1)


def render_report(
    status: Status,
    events: Sequence[Event],
    earlier: Sequence[Sequence[Event]],
    text: str,
    now: float,
    heat: Mapping[str, NodeHeat],
    account: Account | None,
) -> str:
    """Return the page. Values of variables and secrets are not in it.

    events: of the last attempt. earlier: those of each attempt before it. text: the job's script; "" if Slurm
    does not have it any more. now: seconds since 1970. heat: of the nodes whose GPUs have samples. account:
    None before the first start.
    """
    timeline = status.timeline
    starts = _label_starts(status, earlier)
    page = (
        _environment()
        .get_template("report.html.j2")
        .render(
            version=__version__,
            now=now,
            status=status,
            is_final=status.state in FINAL,
            fix=fix_of(status.end),
            steps=_bars(status),
            timeline=timeline,
            meanings=STEPS,
            bring_up=_bring_up(timeline) if timeline else None,
            charts=_charts(timeline, status.steps[-1]) if timeline else [],
            heat=heat,
            heat_map=_heat_map(heat, status) if heat else None,
            heat_levels=_HEAT_LEVELS,
            findings=_findings(status.findings),
            losses=[event for event in events if event["event"] == "node_loss"],
            starts=starts,
            starts_chart=_chart_starts(starts) if starts else None,
            node_failures=list_losses([start for _, start in starts]),
            gpu_hours=account.total if account and account.unit == GPU_HOURS else 0.0,
            account=account,
            account_rows=_account_rows(account) if account else [],
            attempts=[_attempt(number, attempt) for number, attempt in enumerate(earlier)],
            restart=_restart(events),
            settings=_settings(text),
        )
    )
    # Names of files may have bytes that are not UTF-8, and texts what acts on a terminal.
    shown = (letter if letter.isprintable() or letter in "\n\t" else " " for letter in page)
    return "".join(shown)


@functools.cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(data_folder("templates")),
        undefined=jinja2.StrictUndefined,
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "duration": duration,
        "utc": _utc,
        "seconds": exact_duration,
        "hide": hide,
        "hosts": host_list,
    }
    return environment


def hide(text: str) -> str:
    """Return a text with `...` in place of the values of variables and options that look like secrets."""
    text = _URL_PASSWORD.sub(rf"\1{_HIDDEN}", text)
    text = _JSON_VALUE.sub(rf'\1"{_HIDDEN}"', text)
    text = _HEADER.sub(rf"\1\2{_HIDDEN}", text)
    return _OPTION_AND_VALUE.sub(rf"\1{_HIDDEN}", _SECRET.sub(rf"\1={_HIDDEN}", text))


def _utc(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(seconds))


def _tick_label(seconds: float, step: float) -> str:
    """A time on an axis. step: seconds between two ticks."""
    for unit, name in ((_DAY, "d"), (3600, "h"), (60, "min")):
        if step >= unit:
            return f"{seconds / unit:g} {name}"
    return f"{seconds:g} s"


def _account_rows(account: Account) -> list[tuple[str, float | None, float, str]]:
    """Name, hours, part of all in percent and meaning of each use of the allocations."""
    rows = []
    for field, meaning in MEANINGS.items():
        hours = getattr(account, field)
        part = 0.0 if field == "queue" else 100 * (hours or 0.0) / max(account.total, 1e-9)
        rows.append((field.replace("_", "-"), hours, round(part, 2), meaning))
    return rows


def _bars(status: Status) -> list[tuple[Step, float, float]]:
    """Each step of the job with begin and length in percent of all."""
    if not status.steps:
        return []
    first, last = status.steps[0], status.steps[-1]
    total = max(0.001, last.began + last.seconds - first.began)
    return [
        (step, round(100 * (step.began - first.began) / total, 2), round(100 * step.seconds / total, 2))
        for step in status.steps
    ]


def _bring_up(timeline: Timeline) -> dict[str, Any]:
    """The chart of the nodes' bring-up: a row for each node. `waiting` is the step in progress."""
    axis = _Axis(timeline.seconds)
    return _chart_rows(
        [
            _Row(_label(node.name), _title(node), _node_bars(node, axis, timeline.seconds))
            for node in timeline.nodes
        ],
        axis,
    )


def _heat_map(heat: Mapping[str, NodeHeat], status: Status) -> dict[str, Any]:
    """The chart of the utilization of the nodes' GPUs: a row for each node, equal cells in one bar."""
    last = status.steps[-1]
    began = status.timeline.began if status.timeline else last.began
    axis = _Axis(last.began + last.seconds - began)
    rows = []
    for name, node in heat.items():
        levels = ["" if cell is None else _heat_level(cell) for cell in node.cells]
        width, place, bars = (_RIGHT - _LEFT) / len(levels), 0, []
        for level, group in itertools.groupby(levels):
            count = len(list(group))
            if level:
                bars.append((level, round(_LEFT + place * width, 1), round(count * width, 1)))
            place += count
        title = f"{name}: {node.mean:.0f} % on average, idle in {node.idle:.0%} of the samples"
        rows.append(_Row(_label(name), title, bars))
    return _chart_rows(rows, axis)


def _heat_level(utilization: float) -> str:
    return next(name for name, least in reversed(_HEAT_LEVELS.items()) if utilization >= least)


def _label_starts(status: Status, earlier: Sequence[Sequence[Event]]) -> list[tuple[str, Start]]:
    """The starts of Ray and trainer in all attempts, each with a short name."""
    attempts = [
        (number, list_starts(events, events[-1]["time"])) for number, events in enumerate(earlier) if events
    ]
    labelled = []
    for number, starts in [*attempts, (status.attempt, status.starts)]:
        label, restart = f"attempt {number}", 0
        for start in starts:
            if start.restart > restart:
                label, restart = f"restart {start.restart}", start.restart
            labelled.append((label, start))
            label = "start again"  # no trainer had started
    return labelled


def _chart_starts(starts: Sequence[tuple[str, Start]]) -> dict[str, Any]:
    """The chart of the starts of Ray and trainer: a row for each."""
    began = starts[0][1].began
    axis = _Axis(max(start.ended for _, start in starts) - began)
    rows = []
    for label, start in starts:
        bars = []
        left = start.began - began
        for kind, seconds in (("idle", start.idle), ("lost" if start.failed else "trained", start.trained)):
            if seconds:
                bars.append((kind, axis.place(left), round(axis.place(seconds) - _LEFT, 1)))
            left += seconds
        title = f"{label}: {duration(start.idle)} without the trainer, {duration(start.trained)} with it"
        rows.append(_Row(label, title, bars))
    return _chart_rows(rows, axis)


def _chart_rows(rows: Sequence[_Row], axis: _Axis) -> dict[str, Any]:
    """A chart of times, with these rows from top to bottom."""
    height, bar, font_size, rows_per_label = (18, 13, 12, 1) if len(rows) <= _TALL else (5, 4, 4, 4)
    return {
        "rows": [
            (number * height, row if number % rows_per_label == 0 else row._replace(label=""))
            for number, row in enumerate(rows)
        ],
        "ticks": axis.ticks,
        "height": len(rows) * height,
        "bar": bar,
        "text": font_size,
        "left": _LEFT,
        "width": _WIDTH,
    }


def _node_bars(node: NodeTimes, axis: _Axis, seconds: float) -> list[tuple[str, float, float]]:
    ends = [*node.done.items(), *([] if node.is_ready else [("waiting", seconds)])]
    places = [axis.place(0.0), *(axis.place(end) for _, end in ends)]
    widths = [round(right - left, 1) for left, right in itertools.pairwise(places)]
    return [
        (step, left, width) for (step, _), left, width in zip(ends, places, widths, strict=False) if width > 0
    ]


def _title(node: NodeTimes) -> str:
    times = ", ".join(f"{step} {seconds:.1f} s" for step, seconds in node.done.items()) or "no answer"
    return f"{node.name}: {times}{'' if node.is_ready else ', not ready'}"


def _label(name: str) -> str:
    """The end of a name, which tells nodes apart, if it is too long."""
    return name if len(name) <= _LABEL else f"…{name[1 - _LABEL :]}"


def _charts(timeline: Timeline, last: Step) -> list[dict[str, Any]]:
    """Charts of the nodes in Ray and of their GPUs, if there are any, from the job's start to its end.

    last: the last step of the job.
    """
    seconds = max(last.began + last.seconds - timeline.began, timeline.counts[-1].seconds)
    axis = _Axis(seconds)
    charts = []
    for name, title in (("nodes", "Nodes in Ray"), ("gpus", "GPUs in Ray")):
        highest = max(getattr(count, name) for count in timeline.counts)
        if highest or name == "nodes":
            path = _path(timeline.counts, name, max(highest, 1), axis) + f"H{axis.place(seconds):g}"
            charts.append({"name": name, "title": title, "highest": highest, "path": path})
    return [{**chart, "ticks": axis.ticks, **_CHART} for chart in charts]


def _path(counts: Iterable[Count], name: str, highest: int, axis: _Axis) -> str:
    """The line of a chart, in the language of SVG paths."""
    height = _CHART["height"]
    parts = [f"M{axis.place(0.0):g} {height:g}"]
    for count in counts:
        top = round(height * (1 - getattr(count, name) / highest), 1)
        parts.append(f"H{axis.place(count.seconds):g}V{top:g}")
    return "".join(parts)


def _findings(findings: Iterable[Event]) -> list[dict[str, str]]:
    """Findings, those that are alike of several nodes as one."""
    fields = ("kind", "check", "found", "wanted", "fix")
    alike: dict[tuple[str, ...], list[Event]] = {}
    for event in findings:
        key = (event["kind"], event["check"], normalize(event["found"]), event["wanted"], event["fix"])
        alike.setdefault(key, []).append(event)
    return [
        {
            "nodes": host_list(event["node"] for event in events),
            **{field: events[0][field] for field in fields},
        }
        for events in alike.values()
    ]


def _attempt(number: int, events: Sequence[Event]) -> dict[str, Any]:
    """An earlier attempt. number: 0 is the first. began: None if nothing is recorded.

    seconds: None if it recorded no end. nodes: a host list. end: the last line of its log. restart: why it
    was restarted.
    """
    by_name = {event["event"]: event for event in events}
    start, end = by_name.get("start"), by_name.get("end")
    return {
        "number": number,
        "began": start and start["time"],
        "seconds": end["time"] - start["time"] if start and end else None,
        "nodes": host_list(start["nodes"]) if start else "",
        "end": end["text"] if start and end else "",
        "restart": _restart(events) if start else "",
    }


def _restart(events: Iterable[Event]) -> str:
    """Why Slurm was asked to start the job again after an attempt; "" if it was not."""
    return next((event["reason"] for event in events if event["event"] == "requeue"), "")


def _settings(text: str) -> str:
    """The settings of a script as JSON, without values of variables; "" if it has none."""
    try:
        settings: Mapping[str, Any] = script_parts.read_settings(text)
    except ValueError:
        return ""
    # The command that renders the script again may have variables with their values.
    shown = {name: value for name, value in settings.items() if name != "render_again"}
    return json.dumps(_hide_values(shown), indent=2, ensure_ascii=False)


def _is_secret_value(option: Any, argument: Any) -> bool:
    """Whether an argument is the value of the option before it, and a secret."""
    are_texts = isinstance(option, str) and isinstance(argument, str)
    return are_texts and bool(_SECRET_OPTION.fullmatch(option)) and not argument.startswith("-")


def _hide_values(value: Any) -> Any:
    """A value of the settings, without values of variables, at any depth."""
    if isinstance(value, dict):
        return {
            name: dict.fromkeys(item, _HIDDEN)
            if name in _VARIABLES and isinstance(item, dict)
            else _hide_values(item)
            for name, item in value.items()
        }
    if isinstance(value, list):
        pairs = zip(["", *value], value, strict=False)
        return [_HIDDEN if _is_secret_value(option, item) else _hide_values(item) for option, item in pairs]
    return hide(value) if isinstance(value, str) else value
