import importlib
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def faults(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    monkeypatch.delitem(sys.modules, "faults", raising=False)
    return importlib.import_module("faults")


def test_the_page_hides_nothing(faults: Any) -> None:
    cases = [
        faults.Case("scancel", title, variant, f"{title}-{variant}")
        for title in ("passes", "fails", "skipped", "not run")
        for variant in ("podman-own", "docker-own")
    ]
    about = {"date": "2026-01-02 03:04", "Slurm": "slurm 1", "in_a_row": 3}
    measured = {"notice": 0.5, "clean": 1.5, "ended": "FAILED 7:0", "last_line": "end | here"}
    results = {
        "passes-podman-own": {"outcome": "passed", **about, **measured},
        "passes-docker-own": {"outcome": "passed", **about, **measured, "in_a_row": 2},
        "fails-podman-own": {"outcome": "failed", "reason": "assert 1 == 2", **about, "in_a_row": 0},
        "skipped-podman-own": {"outcome": "skipped", "reason": "no such device", **about},
        "of a test that is gone": {"outcome": "failed", "reason": "outdated", **about},
    }
    text = faults.page(cases, results)
    assert "| passes | 0.5 / 1.5 | 0.5 / 1.5 |  |  |  |  | FAILED 7:0 | end \\| here |" in text
    assert "| fails | **failed** | no result |" in text
    assert "- scancel, fails: failed: assert 1 == 2 (podman-own)" in text
    assert "- scancel, skipped: skipped: no such device (podman-own)" in text
    assert "- scancel, not run: no result (podman-own, docker-own)" in text
    assert "- requeue: no case" in text
    assert "| podman-own | slurm 1 |  |  |  | 2026-01-02 03:04 | 2026-01-02 03:04 | 1 | 1 | 0 |" in text
    assert "| docker-own | slurm 1 |  |  |  | 2026-01-02 03:04 | 2026-01-02 03:04 | 1 | 0 | 2 |" in text
    assert "outdated" not in text
