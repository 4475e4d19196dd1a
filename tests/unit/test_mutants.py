"""The tool that measures the tests, on a small checkout of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import mutants

FILES = {
    "slurmray/__init__.py": "",
    "slurmray/a/__init__.py": "",
    "slurmray/a/b.py": "ONE = 1\nTWO = 2\nTHREE = 3\nFOUR = 4\nFIVE = 5\nSIX = 6\n",
    "tests/unit/a/test_b.py": "from slurmray.a import b\ndef test_one(): assert b.ONE == 1\n",
    "tests/unit/a/test_c.py": "from slurmray.a import b\ndef test_two(): assert b.TWO == 2\n",
    "tests/unit/test_d.py": (
        "import pathlib, pytest\nfrom slurmray.a import b\n"
        "@pytest.mark.parametrize('x', ['a b', 'c - d'])\ndef test_three(x): assert b.THREE == 3\n"
        "def test_once():\n"
        "    file = pathlib.Path('tried')\n    is_first = not file.exists()\n    file.touch()\n"
        "    assert b.FIVE == 5 or not is_first\n"
    ),
    "tests/unit/test_wheel.py": "def test_lint(): assert False\n",
}
NUMBERS = {"ONE": 1, "TWO": 2, "THREE": 3, "FOUR": 4, "FIVE": 5}


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, text in FILES.items():
        (tmp_path / "checkout" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "checkout" / name).write_text(text)
    monkeypatch.setattr(mutants, "ROOT", tmp_path / "checkout")
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)
    return tmp_path / "checkout"


def measure(checkout: Path, *rows: str) -> int:
    file = checkout.parent / "defects.yaml"
    file.write_text("".join(f"- {{path: slurmray/a/b.py, {row}, user: x}}\n" for row in rows))
    return mutants.main([str(file)])


@pytest.mark.full
def test_the_nearest_test_that_notices(checkout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Also one with blanks in its id; not one that passes again. The checkout stays as it is."""
    (checkout / "tests/unit/test_d.py").write_text(
        FILES["tests/unit/test_d.py"].replace("once():", "once():\n    return", 1)
    )
    rows = [f"old: {name} = {number}, new: {name} = 7" for name, number in NUMBERS.items() if name != "FIVE"]
    assert measure(checkout, *rows) == 0
    lines = [
        line.strip()
        for line in capsys.readouterr().out.splitlines()
        if line.startswith("  ") and "no" in line.lower()
    ]
    results = [line for line in lines if line.startswith(("noticed", "NOT"))]
    assert results == [
        "noticed: tests/unit/a/test_b.py::test_one",
        "noticed: tests/unit/a/test_c.py::test_two",
        "noticed: tests/unit/test_d.py::test_three[a b]",
        "NOT NOTICED",
    ]
    assert (checkout / "slurmray/a/b.py").read_text() == FILES["slurmray/a/b.py"]


@pytest.mark.full
def test_a_failure_that_does_not_come_again(checkout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The tests pass without a defect, and write down that they ran."""
    (checkout / "tests/unit/test_d.py").write_text(
        FILES["tests/unit/test_d.py"].replace("file.touch()", "b.FIVE == 5 or file.touch()")
    )
    assert measure(checkout, "old: FIVE = 5, new: FIVE = 7") == 0
    out = capsys.readouterr().out
    assert "tests/unit/test_d.py::test_once failed only once" in out
    assert out.endswith("  NOT NOTICED\n0 of 1 noticed\n")


def test_defects_that_do_not_apply(checkout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert measure(checkout, "old: SEVEN, new: x", "old: ' = ', new: x") == 1
    out = capsys.readouterr().out
    assert "does not apply: the file has the text 0 times: SEVEN" in out
    assert "does not apply: the file has the text 6 times:  = " in out
    assert out.endswith("0 of 2 noticed\n")


def test_a_test_that_fails_anyway(checkout: Path) -> None:
    (checkout / "tests/unit/a/test_b.py").write_text("def test_x(): assert False\n")
    with pytest.raises(SystemExit, match=r"test_b.py::test_x fails without a defect"):
        measure(checkout, "old: ONE, new: TEN")
