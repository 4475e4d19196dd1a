"""A plugin of pytest's that keeps what the fault matrix measures; docs/faults.py makes a page of it."""

from __future__ import annotations

import time
from typing import Any

import pytest

from .rows import RESULTS


class Recorder:
    """Keeps outcome and measurements of each case, as soon as it is over, in pytest's cache."""

    def __init__(self, cache: pytest.Cache):
        self.cache = cache
        self.entries: dict[str, dict[str, Any]] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Add what a phase of a test says; the last phase completes the case."""
        case = report.nodeid
        if "tests/cluster/faults/" not in case:
            return
        entry = self.entries.setdefault(case, {"outcome": "passed"})
        if report.skipped and isinstance(report.longrepr, tuple):
            entry |= {"outcome": "skipped", "reason": report.longrepr[2].removeprefix("Skipped: ")}
        elif report.failed:
            said = [line[1:].strip() for line in report.longreprtext.splitlines() if line.startswith("E ")]
            said.sort(key=lambda line: not line.startswith("assert "))  # what did not hold tells most
            entry |= {"outcome": "failed", "reason": "".join(said[:1])[:200]}
        if report.when == "teardown":
            results = self.cache.get(RESULTS, {})
            passed = entry["outcome"] == "passed"
            streak = results.get(case, {}).get("in_a_row", 0) + 1 if passed else 0
            when = time.strftime("%Y-%m-%d %H:%M", time.gmtime())
            results[case] = {**entry, **dict(report.user_properties), "in_a_row": streak, "date": when}
            self.cache.set(RESULTS, results)
