"""Writes docs/inside/faults.md: the latest results of tests/cluster/faults and of attacks."""

from __future__ import annotations

import itertools
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))
from tests.cluster.faults.rows import NOT_RUN, RESULTS, ROWS, VARIANTS  # noqa: E402

Result = Mapping[str, Any]

_HEAD = """<!-- Written by docs/scripts/faults.py (`make test-all`, `make pyxis`). Do not edit. -->

# Faults

Every fault on this page was caused in a job on a real Slurm, with each of the systems in the first table
that it applies to. {passed} of these runs ended as they must, {failed} did not;
[what was not run](#failed-left-out-without-a-result) is at the end. Each section begins with what must
happen, and each row is one case. A cell has two numbers: seconds until the log named the fault or the job
was over, and seconds until no container, process or file of the job was left on any host. All hosts are
namespaces of one machine without GPUs, and the numbers are up to half a second too high, as the tests check
twice a second.

"In a row" counts runs since the last change of slurmray. "(differs)" marks a case that ended in another
state, or with another exit code or last line, on some of the systems: these ends are below the table. Job
ids, folders of the tests and the runtime's name do not count as a difference.
"""


class Case(NamedTuple):
    """A collected test: row of the matrix, its title, its variant and its id."""

    row: str
    title: str
    variant: str
    id: str


class Collector:
    """A pytest plugin that keeps the collected cases, and the results of earlier sessions."""

    def __init__(self) -> None:
        self.cases: list[Case] = []
        self.attacks: list[str] = []  # their ids
        self.results: dict[str, Result] = {}

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Keep what `page` needs."""
        for item in session.items:
            if item.get_closest_marker("attack"):
                self.attacks.append(item.nodeid)
            mark = item.get_closest_marker("fault")
            if mark and isinstance(item, pytest.Function):
                parts = item.callspec.id if hasattr(item, "callspec") else ""
                variant = next((str(system) for system in VARIANTS if str(system) in parts), "")
                more = parts.replace(variant, "").strip("-")
                title = item.originalname.removeprefix("test_").replace("_", " ")
                self.cases.append(
                    Case(mark.args[0], f"{title}: {more}" if more else title, variant, item.nodeid)
                )
        if session.config.cache:
            self.results = session.config.cache.get(RESULTS, {})


def page(cases: Sequence[Case], results: Mapping[str, Result], attacks: Sequence[str] = ()) -> str:
    """Return the text of faults.md. attacks: ids of their tests."""
    known = {case.id: results[case.id] for case in cases if case.id in results}
    outcomes = [result["outcome"] for result in known.values()]
    head = _HEAD.format(passed=outcomes.count("passed"), failed=outcomes.count("failed"))
    parts = (
        _versions(cases, known),
        _tree(known),
        _rows(cases, known),
        _attacks(attacks, results),
        _left_out(cases, known),
    )
    return "\n".join([head, *itertools.chain(*parts), ""])


def _versions(cases: Sequence[Case], results: Mapping[str, Result]) -> Iterator[str]:
    yield "| | Slurm | runtime | Ray | kernel | from (UTC) | to | passed | failed | in a row, at least |"
    yield "|---|---|---|---|---|---|---|---|---|---|"
    for variant in map(str, VARIANTS):
        ran = [results[case.id] for case in cases if case.variant == variant and case.id in results]
        ran = [result for result in ran if result["outcome"] != "skipped"]
        dates = sorted(result["date"] for result in ran) or ["", ""]
        programs = [
            ", ".join(sorted({str(result[name]) for result in ran if name in result}))
            for name in ("Slurm", "runtime", "Ray", "kernel")
        ]
        failed = sum(result["outcome"] == "failed" for result in ran)
        streak = min((result["in_a_row"] for result in ran), default=0)
        yield _line(variant, *programs, dates[0], dates[-1], len(ran) - failed, failed, streak)


def _tree(results: Mapping[str, Result]) -> Iterator[str]:
    trees = {result.get("tree", "") for result in results.values() if result["outcome"] != "skipped"}
    tree = trees.pop() if len(trees) == 1 else ""
    several = "Of several trees: slurmray/ or templates/ changed in between."
    yield f"\nOf one tree: {tree[:12]}, a hash of slurmray/ and templates/." if tree else f"\n{several}"


def _rows(cases: Sequence[Case], results: Mapping[str, Result]) -> Iterator[str]:
    for row, wanted in ROWS.items():
        yield f"\n## {row[0].upper()}{row[1:]}\n\nWanted: {wanted}.\n"
        titles = dict.fromkeys(case.title for case in cases if case.row == row)
        if not titles:
            yield "No case."
            continue
        yield _line("case", *VARIANTS, "ended as", "last line of the log")
        yield "|---" * (len(VARIANTS) + 3) + "|"
        notes = []
        for title in titles:
            ids = {case.variant: case.id for case in cases if (case.row, case.title) == (row, title)}
            cells = [_cell(ids.get(str(variant)), results) for variant in VARIANTS]
            ends = _ends({variant: results[key] for variant, key in ids.items() if key in results})
            if len(ends) > 1:
                yield _line(f"{title} (differs)", *cells, "see below", "see below")
                notes.append(f"- {title}")
                notes += map(_note, ends)
            else:
                yield _line(title, *cells, *(ends[0].state_and_line if ends else ("", "")))
        if notes:
            yield "\n" + "\n".join(notes)


def _attacks(ids: Sequence[str], results: Mapping[str, Result]) -> Iterator[str]:
    """Yield the table of attacks, a line for each kind."""
    yield (
        "\n## Attacks\n\nWanted: what another user, a trainer, a damaged file or a forged script hands to "
        "slurmray is data. Nothing of it runs, and no command hangs or ends with a traceback.\n"
    )
    kinds: dict[str, list[Result]] = {}
    for result in (results[key] for key in ids if "attack" in results.get(key, {})):
        kinds.setdefault(result["attack"][0], []).append(result)
    yield _line("attack", "tests", "inputs tried", "failed", "left out")
    yield "|---|---|---|---|---|"
    for kind, attacks in sorted(kinds.items()):
        outcomes = [result["outcome"] for result in attacks]
        inputs = sum(result["attack"][1] for result in attacks if result["outcome"] != "skipped")
        skipped = outcomes.count("skipped")
        yield _line(kind, len(attacks) - skipped, inputs, outcomes.count("failed"), skipped or "")


class _End(NamedTuple):
    """How a case ended, state with exit code and last line, and on which variants."""

    state_and_line: tuple[str, str]
    variants: list[str]


def _ends(results: Mapping[str, Result]) -> list[_End]:
    """Return the different ends of a case. results: by variant."""
    ends: dict[tuple[str, str], _End] = {}
    for variant, result in results.items():
        if "ended" in result:
            outcome = result["ended"], result["last_line"]
            end = ends.setdefault((outcome[0], _normalize(outcome[1], variant)), _End(outcome, []))
            end.variants.append(variant)
    return list(ends.values())


def _note(end: _End) -> str:
    return f"  - {', '.join(end.variants)}: {_escape(': '.join(end.state_and_line))}"


def _normalize(line: str, variant: str) -> str:
    """Return a log line without what always differs: test folder, job id, the runtime's name."""
    line = re.sub(r"\S*/slurmray-tests-\w+(/tmp\w+)?", "FOLDER", line)
    line = re.sub(r"(slurmray-|/)\d+(?=-\d+\b)", r"\1JOB", line)
    runtime = variant.partition("-")[0]
    return re.sub(rf"(?<![\w./]){runtime}(?![\w./])", "RUNTIME", line)  # not in docker.io/


def _cell(case: str | None, results: Mapping[str, Result]) -> str:
    if not case:
        return ""
    result = results.get(case, {"outcome": "no result"})
    if result["outcome"] == "passed":
        return f"{result['notice']} / {result['clean']}" if "clean" in result else "passed"
    return {"failed": "**failed**", "skipped": "left out"}.get(result["outcome"], "no result")


def _left_out(cases: Sequence[Case], results: Mapping[str, Result]) -> Iterator[str]:
    """Yield the cases that failed, were left out or have no result, and the rows without a case."""
    yield "\n## Failed, left out, without a result\n"
    lines = {f"{row}: no case": [""] for row in ROWS if not any(case.row == row for case in cases)}
    silent = {case.variant for case in cases} - {case.variant for case in cases if case.id in results}
    lines |= {f"all rows with {variant}: no result": [""] for variant in sorted(silent)}
    for case in cases:
        result = results.get(case.id, {"outcome": "no result"})
        if result["outcome"] != "passed" and case.variant not in silent:
            reason = f": {_escape(result['reason'])}" if "reason" in result else ""
            lines.setdefault(f"{case.row}, {case.title}: {result['outcome']}{reason}", []).append(
                case.variant
            )
    for what, reason in NOT_RUN.items():
        lines[f"{what}: not run: {reason}"] = [""]
    yield from [f"- {line} ({', '.join(where)})".replace(" ()", "") for line, where in lines.items()]


def _line(*cells: object) -> str:
    return "| " + " | ".join(_escape(str(cell)) for cell in cells) + " |"


def _escape(text: str) -> str:
    """Return text of a program such that Markdown shows it as it is."""
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")


if __name__ == "__main__":
    collector = Collector()
    argv = ["--collect-only", "-qq", "-m", "fault or attack", f"{ROOT}/tests"]
    if code := pytest.main(argv, plugins=[collector]):
        sys.exit(code)
    text = page(collector.cases, collector.results, collector.attacks)
    (ROOT / "docs/inside/faults.md").write_text(text)
