"""bench.recovery: where the seconds go, from a job's log and events, and its output."""

from __future__ import annotations

import contextlib
import json
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bench import recovery
from slurmray.errors import RehearsalError

FAILED = 1000.0  # when the failure was caused
LOG = """\
[slurmray   2.0 s] trainer: bash recovery_trainer.sh
trainer began 970.0
trainer runs 1030.9
trainer runs 1031.0
trainer runs 103[slurmray  71.5 s] restart 1 of 3: node2: no heartbeat for 25 s
trainer began 1045.5
"""
RESTART: list[tuple[str, float, dict[str, Any]]] = [
    ("start", 960.0, {"nodes": ["node1", "node2"]}),
    ("nodes", 968.0, {"step": "ray", "nodes": ["node1", "node2"]}),
    ("trainer", 969.0, {}),
    ("restart", 1033.0, {"nodes": ["node1", "node3"]}),
    ("nodes", 1034.0, {"step": "image", "nodes": ["node1"]}),
    ("nodes", 1035.0, {"step": "image", "nodes": ["node3"]}),
    ("nodes", 1039.0, {"step": "image", "nodes": ["node4"]}),  # a spare node
    ("nodes", 1037.0, {"step": "container", "nodes": ["node1", "node3"]}),
    ("nodes", 1045.0, {"step": "ray", "nodes": ["node3", "node1"]}),
    ("trainer", 1045.2, {}),
]


def events(*rows: tuple[str, float, dict[str, Any]]) -> list[dict[str, Any]]:
    return [{"event": name, "time": time, **fields} for name, time, fields in rows]


def test_parts_of_a_restart() -> None:
    attempt = events(*RESTART)
    parts = recovery.split(FAILED, LOG, attempt, attempt)
    expected = {"detection": 31.0, "stop": 2.0, "Slurm": 0.0, "checks": 2.0, "containers": 2.0}
    assert parts == pytest.approx({**expected, "Ray": 8.0, "trainer": 0.5})
    assert list(parts) == list(recovery.PARTS)


def test_parts_of_a_requeue() -> None:
    before = events(*RESTART[:3], ("requeue", 1033.0, {}))
    start = ("start", 1040.0 - 7, {"nodes": ["node1", "node3"]})
    after = events(start, *RESTART[4:])
    waited = [{**event, "time": event["time"] + 400} for event in after]
    parts = recovery.split(FAILED, LOG.replace("1045.5", "1445.5"), before, waited)
    assert parts["Slurm"] == pytest.approx(400)
    assert sum(parts.values()) == pytest.approx(445.5)


def test_a_sign_of_life_before_the_failure_is_no_negative_time() -> None:
    attempt = events(*RESTART)
    parts = recovery.split(1031.05, LOG, attempt, attempt)
    assert parts["detection"] == 0
    assert sum(parts.values()) == pytest.approx(14.45)


def test_events_without_another_start() -> None:
    attempt = events(*RESTART[:3])
    with pytest.raises(RehearsalError, match="no event restart or requeue"):
        recovery.split(FAILED, LOG, attempt, attempt)


def test_events_without_a_step() -> None:
    attempt = [event for event in events(*RESTART) if event.get("step") != "container"]
    with pytest.raises(RehearsalError, match="no event of the step container"):
        recovery.split(FAILED, LOG, attempt, attempt)


def parts(seconds: float) -> dict[str, float]:
    return dict.fromkeys(recovery.PARTS, seconds)


def test_table_has_the_ratio_to_the_requeue() -> None:
    results = {
        recovery.Case(2, "power", "default", "requeue"): [parts(60.0), parts(50.0), parts(70.0)],
        recovery.Case(2, "power", "default", "restart"): [parts(6.0)],
        recovery.Case(8, "raylet", "short", "restart"): [parts(1.0)],
    }
    assert recovery.table(results).splitlines() == [
        "| hosts | failure | way | the trainer's next first line, s | detection | stop | Slurm | checks "
        "| containers | Ray | trainer |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
        "| 2 | power | requeue | 420.0 (1.00)" + " | 60.0" * 7 + " |",
        "| 2 | power | restart | 42.0 (0.10)" + " | 6.0" * 7 + " |",
        "| 8 | raylet | restart, short timeouts | 7.0" + " | 1.0" * 7 + " |",
    ]


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[list[dict[str, float] | Exception]]:
    """Results of the measurements, in order; an exception is raised."""
    results: list[dict[str, float] | Exception] = []
    terminated = signal.getsignal(signal.SIGTERM)

    def measure(*_: object) -> dict[str, float]:
        result = results.pop(0)
        if isinstance(result, Exception):
            raise result
        return result

    for name in ("require", "wait_idle", "make_layout"):
        monkeypatch.setattr(recovery, name, lambda *_, **__: None)
    monkeypatch.setattr(recovery, "SlurmCluster", lambda *_: contextlib.nullcontext())
    monkeypatch.setattr(recovery, "describe_machine", lambda _: "Slurm 0")
    monkeypatch.setattr(recovery, "measure", measure)
    argv = ["recovery", "--hosts", "2", "--cases", "power", "--timeouts", "short"]
    monkeypatch.setattr(sys, "argv", [*argv, "--json", str(tmp_path / "result.json")])
    yield results
    signal.signal(signal.SIGTERM, terminated)


def test_a_failed_case_does_not_end_the_others(
    measured: list[dict[str, float] | Exception], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    measured += [RehearsalError("the job has failed"), parts(6.0)]
    with pytest.raises(SystemExit, match="1 of 2 measurements failed"):
        recovery.main()
    done = capsys.readouterr()
    assert done.out.startswith("Slurm 0; ")
    assert "; PARTIAL, 1 of 2 measurements: medians of 1 or fewer, " in done.out
    assert "\n| 2 | power | restart, short timeouts | 42.0" + " | 6.0" * 7 + " |\n" in done.out
    assert "2 hosts, power, requeue, short timeouts: the job has failed" in done.err
    data = json.loads((tmp_path / "result.json").read_text())
    assert data["machine"].startswith("Slurm 0")
    assert data["results"] == [
        {"hosts": 2, "failure": "power", "timeouts": "short", "way": "restart", "runs": [parts(6.0)]}
    ]


def test_fields_of_the_job_spec(
    measured: list[dict[str, float] | Exception],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    measured += [parts(1.0)] * 2
    calls: list[tuple[object, ...]] = []

    def measure(*args: object) -> object:
        calls.append(args)
        return measured.pop()

    monkeypatch.setattr(recovery, "measure", measure)
    monkeypatch.setattr(sys, "argv", [*sys.argv, "--set", "heartbeat_timeout=10", "--set", "watch.stall=0"])
    recovery.main()
    assert calls[0][-1] == {"heartbeat_timeout": "10", "watch.stall": "0"}
    assert capsys.readouterr().out.startswith("Slurm 0; heartbeat_timeout: 10; watch.stall: 0; ")


@pytest.mark.parametrize(
    "argv, message",
    [
        (["--hosts", "1,2"], "--hosts: at least 2: the failure is on a worker node"),
        (["--set", "heartbeat_timeout"], "not PATH=VALUE: heartbeat_timeout"),
        (["--cases", "power,fire"], "no such value: fire (choose from power, container, raylet)"),
    ],
)
def test_wrong_options(
    argv: list[str], message: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["recovery", *argv])
    with pytest.raises(SystemExit) as end:
        recovery.main()
    assert end.value.code == 2
    assert message in capsys.readouterr().err
