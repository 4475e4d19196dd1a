"""When `slurmray dashboard` forwards Ray's dashboard."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any, cast

import pytest

from slurmray.cli import dashboard

from ..test_events import event_line


def test_it_waits_for_the_dashboard_of_the_last_start(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ["start", "dashboard", "restart", "dashboard"]
    events = [json.loads(event_line(name)) for name in names]
    known = [events[:1], events[:3], events]
    monkeypatch.setattr("time.sleep", lambda _: None)
    dashboard._wait_for_dashboard(cast(Any, SimpleNamespace(id=7, events=lambda: known.pop(0))))
    assert known == []
