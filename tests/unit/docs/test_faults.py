"""The page of the fault matrix, and the recorder of its results."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.faults import recorder
from tests.cluster.faults.rows import RESULTS, VARIANTS

ROOT = Path(__file__).parents[3]
OTHERS = " |" + "  |" * (len(VARIANTS) - 2) + " "  # cells of variants after the first two


@pytest.fixture
def faults(import_script: Callable[[str], Any]) -> Any:
    return import_script("faults")


def test_the_page_hides_nothing(faults: Any) -> None:
    cases = [
        faults.Case("scancel", title, variant, f"{title}-{variant}")
        for title in ("passes", "fails", "skipped", "not run")
        for variant in ("podman-own", "docker-own")
    ]
    cases += [faults.Case("scancel", "alone", "none-own", "alone")]
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
    assert f"| passes | 0.5 / 1.5 | 0.5 / 1.5{OTHERS}FAILED 7:0 | end \\| here |" in text
    assert "| fails | **failed** | no result |" in text
    assert "- scancel, fails: failed: assert 1 == 2 (podman-own)" in text
    assert "- scancel, skipped: skipped: no such device (podman-own)" in text
    assert "- scancel, not run: no result (podman-own, docker-own)" in text
    assert "- all rows with none-own: no result\n" in text
    assert "(none-own)" not in text
    assert "- requeue: no case" in text
    assert "| podman-own | slurm 1 |  |  |  | 2026-01-02 03:04 | 2026-01-02 03:04 | 1 | 1 | 0 |" in text
    assert "| docker-own | slurm 1 |  |  |  | 2026-01-02 03:04 | 2026-01-02 03:04 | 1 | 0 | 2 |" in text
    assert "outdated" not in text


@pytest.mark.parametrize(
    ("podman", "docker"),
    [
        ("FAILED 7:0, done: trainer exited with 7", "CANCELLED 7:0, done: trainer exited with 7"),
        ("FAILED 7:0, done: trainer exited with 7", "FAILED 8:0, done: trainer exited with 7"),
        ("FAILED 71:0, node2: podman run exited with 1", "FAILED 71:0, node2: the task was killed"),
        ("FAILED 71:0, node2: podman run exited with 1", "FAILED 71:0, node1: docker run exited with 1"),
        ("FAILED 71:0, node2: podman run exited with 1", "FAILED 71:0, node2: docker run exited with 2"),
    ],
    ids=["state", "exit code", "last line", "node", "number in the last line"],
)
def test_variants_that_end_differently(faults: Any, podman: str, docker: str) -> None:
    third = str(VARIANTS[2])  # depends on this machine's suite
    ends = {"podman-own": podman, "docker-own": docker, third: podman}
    text = page_of_one_case(faults, ends)
    assert f"| x (differs) | 0.5 / 1.5 | 0.5 / 1.5 | 0.5 / 1.5{OTHERS[3:]}see below | see below |\n" in text
    listed = [(f"podman-own, {third}", podman), ("docker-own", docker)]
    notes = [f"  - {variants}: {end.replace(', ', ': ', 1)}\n" for variants, end in listed]
    assert "|\n\n- x\n" + "".join(notes) in text


@pytest.mark.parametrize(
    ("podman", "docker"),
    [
        ("done: trainer exited with 0", "done: trainer exited with 0"),
        (
            "node2: podman run docker.io/rayproject/ray:2.60.0-py311 exited with 137",
            "node2: docker run docker.io/rayproject/ray:2.60.0-py311 exited with 137",
        ),
        ("node1: slurmray-4-0-node1 exists", "node1: slurmray-15-0-node1 exists"),
        ("cannot write to /run/runs/3-0: full", "cannot write to /run/runs/4-0: full"),
        (
            "fix /tmp/slurmray-tests-ab_1/tmpx_y/recipe: /tmp/slurmray-tests-ab_1/tmpx_y/runs/3-0/logs",
            "fix /tmp/slurmray-tests-cd/tmpz/recipe: /tmp/slurmray-tests-cd/tmpz/runs/14-0/logs",
        ),
    ],
    ids=["equal", "runtime", "container name", "run directory", "folder of the test"],
)
def test_variants_that_end_in_the_same_way(faults: Any, podman: str, docker: str) -> None:
    ends = {"podman-own": f"FAILED 7:0, {podman}", "docker-own": f"FAILED 7:0, {docker}"}
    text = page_of_one_case(faults, ends)
    assert f"| x | 0.5 / 1.5 | 0.5 / 1.5{OTHERS}FAILED 7:0 | {podman} |\n" in text
    assert "see below" not in text


def page_of_one_case(faults: Any, ends: Mapping[str, str]) -> str:
    """The page of a case that passed. ends: by variant, `STATE CODE, LAST LINE`."""
    results = {}
    for variant, end in ends.items():
        ended, _, last_line = end.partition(", ")
        about = {"outcome": "passed", "date": "2026-01-02 03:04", "in_a_row": 1, "notice": 0.5, "clean": 1.5}
        results[variant] = {**about, "ended": ended, "last_line": last_line}
    text: str = faults.page([faults.Case("scancel", "x", variant, variant) for variant in ends], results)
    return text


@pytest.mark.parametrize(
    ("trees", "line"),
    [
        (["abcdefabcdef0123"] * 2, "\nOf one tree: abcdefabcdef,"),
        (["abcdefabcdef0123", "0123"], "\nOf several trees:"),
        ([None, None], "\nOf several trees:"),  # results that have none
    ],
)
def test_which_slurmray_was_measured(faults: Any, trees: list[str | None], line: str) -> None:
    cases = [faults.Case("scancel", "x", variant, variant) for variant in ("podman-own", "docker-own")]
    results = {
        case.id: {
            "outcome": "passed",
            "date": "2026-01-02 03:04",
            "in_a_row": 1,
            **({"tree": of} if of else {}),
        }
        for case, of in zip(cases, trees, strict=True)
    }
    assert line in faults.page(cases, results)


def test_a_row_ends_with_a_change(monkeypatch: pytest.MonkeyPatch) -> None:
    kept: dict[str, Any] = {}

    class Cache:
        get = staticmethod(kept.get)
        set = staticmethod(kept.__setitem__)

    case = "tests/cluster/faults/test_x.py::test_y"
    streaks = []
    for of, outcome in (("a", "passed"), ("a", "passed"), ("b", "passed"), ("b", "failed"), ("b", "passed")):
        monkeypatch.setattr(recorder, "tree", lambda of=of: of)
        run: Any = recorder.Recorder(Cache())  # type: ignore[arg-type]
        for when in ("setup", "call", "teardown"):
            failed = outcome == "failed" and when == "call"
            run.pytest_runtest_logreport(
                pytest.TestReport(
                    case, ("", 0, ""), {}, "failed" if failed else "passed", "E no" if failed else None, when
                )
            )
        streaks.append((kept[RESULTS][case]["in_a_row"], kept[RESULTS][case]["tree"]))
    assert streaks == [(1, "a"), (2, "a"), (1, "b"), (0, "b"), (1, "b")]


def test_the_hash_of_a_tree(tmp_path: Path) -> None:
    for name in ("slurmray/__pycache__", "templates/node"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "slurmray/a.py").write_text("1")
    first = recorder.tree(tmp_path)
    (tmp_path / "slurmray/__pycache__/a.pyc").write_text("x")
    (tmp_path / "README.md").write_text("x")
    assert recorder.tree(tmp_path) == first
    (tmp_path / "templates/node/a.py").write_text("1")
    second = recorder.tree(tmp_path)
    (tmp_path / "templates/node/a.py").rename(tmp_path / "templates/node/b.py")
    assert len({first, second, recorder.tree(tmp_path)}) == 3


def test_attacks_are_counted_by_kind(faults: Any) -> None:
    run = {"date": "2026-01-02 03:04", "in_a_row": 1}
    results = {
        "a": {**run, "outcome": "passed", "attack": ["a forged event", 3]},
        "b": {**run, "outcome": "failed", "attack": ["a forged event", 4]},
        "gone": {**run, "outcome": "passed", "attack": ["a forged event", 5]},  # a test that was removed
        "c": {**run, "outcome": "skipped", "attack": ["a forged event", 6]},
    }
    page = faults.page([], results, ["a", "b", "c", "not run"])
    assert "| a forged event | 2 | 7 | 1 | 1 |" in page


TRIES = """
import pytest
from hypothesis import given, settings, strategies
from tests.attacks import tried

@pytest.mark.attack("loop", inputs=99)
def test_loop():
    for each in tried("abc"):
        if each == "b":
            break

@pytest.mark.attack("parameters", inputs=99)
@pytest.mark.parametrize("each", "ab")
def test_parameters(each):
    for _ in tried(range(3) if each == "b" else ()):
        pass

@pytest.mark.attack("examples")
@settings(max_examples=7, database=None)
@given(strategies.integers())
def test_examples(number):
    pass

@pytest.mark.attack("one text with all", inputs=4)
def test_text():
    pass

@pytest.mark.attack("left out", inputs=4)
@pytest.mark.skipif(True, reason="x")
def test_left_out():
    pass

@pytest.mark.attack("no fixture", inputs=4)
def test_error(no_such_fixture):
    pass
"""


def test_inputs_are_counted_where_they_are_tried(tmp_path: Path) -> None:
    """Not where a number is written, as far as a test can count them. Each has an outcome."""
    (tmp_path / "test_x.py").write_text(TRIES)
    (tmp_path / "conftest.py").write_text(
        "from tests.attacks import Counter\nfrom tests.cluster.faults.recorder import Recorder\n"
        "def pytest_configure(config):\n"
        "    config.pluginmanager.register(Counter())\n"
        "    config.pluginmanager.register(Recorder(config.cache))\n"
        "    config.addinivalue_line('markers', 'attack')\n"
    )
    argv = [sys.executable, "-m", "pytest", "-q", "-p", "no:xdist", f"--rootdir={tmp_path}", str(tmp_path)]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(argv, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
    assert "5 passed, 1 skipped, 1 error" in done.stdout
    results = json.loads((tmp_path / f".pytest_cache/v/{RESULTS}").read_text())
    assert {
        name.partition("::")[2]: (entry["outcome"], entry["attack"][1]) for name, entry in results.items()
    } == {
        "test_loop": ("passed", 2),
        "test_parameters[a]": ("passed", 1),
        "test_parameters[b]": ("passed", 3),
        "test_examples": ("passed", 7),
        "test_text": ("passed", 4),
        "test_left_out": ("skipped", 0),
        "test_error": ("failed", 0),
    }
