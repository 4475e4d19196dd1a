"""Pytest plugin that stores the results of fault matrix and attacks for docs/scripts/faults.py."""

from __future__ import annotations

import hashlib
import time
from pathlib import Path
from typing import Any

import pytest

from .rows import RESULTS

ROOT = Path(__file__).parents[3]
MEASURED = ("slurmray", "templates")


def tree(root: Path = ROOT) -> str:
    """Return a hash of the files that results depend on."""
    total = hashlib.sha256()
    for file in sorted(path for part in MEASURED for path in (root / part).rglob("*") if path.is_file()):
        if "__pycache__" not in file.parts:
            name = str(file.relative_to(root)).encode()
            total.update(b"%d %s %s" % (len(name), name, hashlib.sha256(file.read_bytes()).digest()))
    return total.hexdigest()


class Recorder:
    """Stores outcome and measurements of each case in pytest's cache when the case ends."""

    def __init__(self, cache: pytest.Cache):
        self.cache = cache
        self.entries: dict[str, dict[str, Any]] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Add the result of one phase of a test; the last phase completes the case."""
        case = report.nodeid
        if "tests/cluster/faults/" not in case and "attack" not in dict(report.user_properties):
            return
        entry = self.entries.setdefault(case, {"outcome": "passed"})
        if report.skipped and isinstance(report.longrepr, tuple):
            entry |= {"outcome": "skipped", "reason": report.longrepr[2].removeprefix("Skipped: ")}
        elif report.failed:
            lines = [line[1:].strip() for line in report.longreprtext.splitlines() if line.startswith("E ")]
            lines.sort(key=lambda line: not line.startswith("assert "))  # the failed assertion is the reason
            entry |= {"outcome": "failed", "reason": "".join(lines[:1])[:200]}
        if report.when == "teardown":
            results = self.cache.get(RESULTS, {})
            before, current = results.get(case, {}), tree()
            streak = before.get("in_a_row", 0) if before.get("tree") == current else 0
            run = {
                "in_a_row": streak + 1 if entry["outcome"] == "passed" else 0,
                "date": time.strftime("%Y-%m-%d %H:%M", time.gmtime()),
                "tree": current,
            }
            results[case] = {**entry, **dict(report.user_properties), **run}
            self.cache.set(RESULTS, results)
