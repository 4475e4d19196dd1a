"""Events that jobs write fit the documented schema."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from slurmray import events
from slurmray.agent import job_log
from slurmray.agent.inherited import LOGIN_SESSION
from tests.attacks import tried

SCHEMA = json.loads((Path(__file__).parents[2] / "docs/reference/events.schema.json").read_text())
EXAMPLES = {"string": "text", "integer": 3, "number": 1.5}


def example(name: str) -> dict[str, Any]:
    """Return a value for each field of an event."""
    return {field: _example_value(kind) for field, (kind, _) in events.EVENTS[name][1].items()}


def _example_value(kind: dict[str, Any]) -> Any:
    if "enum" in kind:
        return kind["enum"][0]
    if kind.get("pattern", "").startswith("^/"):
        return "/tmp/ray-7-0-abcdef"
    return [_example_value(kind["items"])] if kind["type"] == "array" else EXAMPLES[kind["type"]]


def event_line(name: str, **fields: Any) -> str:
    """A line of events.jsonl as a job writes it, with example values for the fields that are not given."""
    assert fields.keys() <= events.EVENTS[name][1].keys()
    return job_log.event_line(name, {**example(name), **fields})


def test_each_line_of_the_log_is_that_of_an_event() -> None:
    assert job_log.LINES.keys() <= events.EVENTS.keys()


@pytest.mark.parametrize("name", events.EVENTS)
def test_an_event_fits_the_schema_and_makes_its_line(name: str, tmp_path: Path) -> None:
    written = job_log.JobLog(0.0)
    written.open(str(tmp_path))
    written.event(name, **example(name))
    written.finish()
    (line,) = (tmp_path / "events.jsonl").read_text().splitlines()
    jsonschema.validate(json.loads(line), SCHEMA)


@pytest.mark.parametrize("change", [{"event": "other"}, {"v": 2}, {"time": "now"}, {"exit_code": None}])
def test_schema_rejects_wrong_events(change: dict[str, Any]) -> None:
    event = {"v": 1, "time": 1.5, "event": "end", **example("end")}
    jsonschema.validate(event, SCHEMA)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**event, **change}, SCHEMA)


BEYOND: dict[tuple[str, str], list[Any]] = {
    ("phase", "time"): [-1, 1 << 38, float("nan"), "1", True],
    ("phase", "text"): ["x" * 65537, None, ["x"]],
    ("attempt", "chances"): [1 << 31, -(1 << 31) - 1, 1.0, True],
    ("start", "attempt"): [-1, 1 << 31],
    ("start", "components"): [[1] * 65537, [-1], {}, 1],
    ("start", "nodes"): [["a"] * 65537, [], ["a", "b\n"], "abc", {"a": 1}],
    ("start", "head"): ["a" * 256, "..", ".a", "-a", "a/b", "a\nb", "a\n", ""],
    ("dashboard", "port"): [0, 65536],
    ("attach", "runtime"): ["sh"],
    ("attach", "folder"): ["a", "/a b", "/a\n", "/a$b"],
    ("attach", "unset"): [["PATH"], [LOGIN_SESSION[0]] * 3],
    ("end", "exit_code"): [-1, 256],
}


@pytest.mark.attack("a damaged events.jsonl")
def test_values_beyond_the_limits_do_not_fit() -> None:
    for (name, field), values in BEYOND.items():
        event = {"v": 1, "time": 1.5, "event": name, **example(name)}
        assert events.fits(event)
        for value in tried(values):
            assert not events.fits({**event, field: value}), (name, field, str(value)[:20])


@pytest.mark.parametrize("name", events.EVENTS)
def test_no_field_may_be_missing(name: str) -> None:
    event = {"v": 1, "time": 1.5, "event": name, **example(name)}
    for field in example(name):
        assert not events.fits({k: v for k, v in event.items() if k != field})


def test_lines_of_the_log_have_no_control_characters(capfd: pytest.CaptureFixture[str]) -> None:
    written = job_log.JobLog(0.0)
    written.event("trainer", command="python3 \x1b[31m train.py\r")
    written.finish()
    line = capfd.readouterr().err
    assert line.endswith("trainer: python3  [31m train.py \n")


def test_a_file_that_cannot_be_written_is_ignored(tmp_path: Path) -> None:
    written = job_log.JobLog(0.0)
    written.open(str(tmp_path / "gone"))
    written.event("stop")
    written.finish()
