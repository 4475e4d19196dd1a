"""docs/stale-flags.md says what tests here try."""

from __future__ import annotations

from pathlib import Path

from tests.judges import stale

PAGE = Path(__file__).parents[2] / "docs/stale-flags.md"


def test_the_page_has_these_rows_and_no_others() -> None:
    cells = [
        [cell.strip().strip("`") for cell in line.strip("|").split("|")]
        for line in PAGE.read_text().splitlines()
        if line.startswith("| `")
    ]
    rows = [*stale.VERL, *stale.OPENRLHF, *stale.RLINF]
    assert cells == [[row.refused, row.since, row.instead or "nothing"] for row in rows]
